// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "object_store/arena/shelf.h"

#include <utility>

namespace sheaf {

std::optional<Shelf::Place> Shelf::Take(uint64_t footprint) {
  footprint = AlignUp(footprint, kPayloadAlignment);
  if (shelf_ == nullptr || shelf_->range.bytes - used_bytes_ < footprint) return std::nullopt;
  const ExtentRange taken{shelf_->range.offset + used_bytes_, footprint};
  used_bytes_ += footprint;
  table_.AddObject(*shelf_);
  return Place{shelf_, taken};
}

Shelf::Place Shelf::TakeAll(ExtentRange room, uint64_t footprint) {
  Extent* extent = table_.AddExtent(room, ProcessId{}, kNoSlot);
  table_.AddObject(*extent);
  return {extent, {room.offset, footprint}};
}

Shelf::Place Shelf::TakeFrom(ExtentRange room, uint64_t footprint) {
  if (const auto taken = Take(footprint)) {  // Another has brought a shelf meanwhile.
    allocator_.Free(room, /*populated=*/true);
    return *taken;
  }
  if (shelf_ != nullptr) Leave();
  shelf_ = table_.AddExtent(room, ProcessId{}, kNoSlot);
  table_.AddObject(*shelf_);
  used_bytes_ = 0;
  return *Take(footprint);
}

void Shelf::Drop(Extent* extent, bool keep_empty) {
  table_.DropObject(*extent, clock_.Now());
  if (extent == shelf_) {
    if (extent->objects == 1) Leave();
  } else if (extent->objects == 0 && !keep_empty) {
    extents_.End(extent);
  }
}

void Shelf::Leave() {
  Extent* left = std::exchange(shelf_, nullptr);
  table_.DropObject(*left, clock_.Now());
  if (left->objects == 0) extents_.End(left);
}

}  // namespace sheaf
