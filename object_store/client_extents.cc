// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "object_store/client_extents.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"

namespace sheaf {
namespace {

constexpr uint64_t kFirstSharedBytes = 1024 * 1024;
constexpr uint64_t kLargestSharedBytes = 8 * 1024 * 1024;

}  // namespace

absl::StatusOr<ClientExtent*> ClientExtents::Add(const ExtentGrant& grant) {
  if (grant.offset < data_offset_ || grant.offset > arena_bytes_ || grant.bytes == 0 ||
      grant.bytes > arena_bytes_ - grant.offset || grant.offset % kPageBytes != 0 ||
      grant.bytes % kPageBytes != 0 || extents_.contains(grant.offset)) {
    return absl::InvalidArgumentError(
        absl::StrCat("an extent of ", grant.bytes, " bytes at ", grant.offset));
  }
  SHEAF_ASSIGN_OR_RETURN(MovableMapping mapping,
                         MovableMapping::Map(arena_fd_, grant.offset, grant.bytes));
  auto owned = std::make_unique<ClientExtent>();
  ClientExtent* extent = owned.get();
  extent->offset = grant.offset;
  extent->bytes = grant.bytes;
  extent->slot = grant.slot;
  extent->mapping = std::make_shared<MovableMapping>(std::move(mapping));
  extents_[grant.offset] = std::move(owned);
  held_bytes_ += grant.bytes;
  if (grant.slot == kNoSlot) {
    shared_bytes_ += grant.bytes;
    empty_.push_back(extent);
  }
  return extent;
}

void ClientExtents::Drop(ClientExtent* extent) {
  held_bytes_ -= extent->bytes;
  if (extent->slot == kNoSlot) shared_bytes_ -= extent->bytes;
  extents_.erase(extent->offset);
}

ClientExtent* ClientExtents::Allocate(uint64_t footprint, uint64_t* offset) {
  if (open_ == nullptr || open_->bytes - open_->next < footprint) {
    // The hottest empty one that is large enough.
    const auto fits = std::find_if(empty_.rbegin(), empty_.rend(),
                                   [&](const ClientExtent* e) { return e->bytes >= footprint; });
    if (open_ != nullptr && open_->live == 0 && open_->bytes >= footprint) {
      open_->next = 0;
    } else if (fits == empty_.rend()) {
      return nullptr;
    } else {
      ClientExtent* next = *fits;
      empty_.erase(std::next(fits).base());
      CloseOpen();
      open_ = next;
      open_->next = 0;
    }
  }
  *offset = open_->offset + open_->next;
  open_->next += footprint;
  ++open_->live;
  ++open_->unsealed;
  return open_;
}

void ClientExtents::CloseOpen() {
  if (open_ == nullptr) return;
  ClientExtent* closed = std::exchange(open_, nullptr);
  if (closed->live == 0) {
    empty_.push_back(closed);
  } else {
    RevokeWhenDone(closed);
  }
}

void ClientExtents::RevokeWhenDone(ClientExtent* extent) {
  if (extent != open_ && extent->unsealed == 0) RevokePointers(extent);
}

void ClientExtents::Sealed(ClientExtent* extent) {
  --extent->unsealed;
  RevokeWhenDone(extent);
}

void ClientExtents::Freed(ClientExtent* extent) {
  if (--extent->live == 0 && extent != open_) empty_.push_back(extent);
}

void ClientExtents::Aborted(ClientExtent* extent) {
  --extent->unsealed;
  RevokeWhenDone(extent);
  Freed(extent);
}

std::vector<ExtentRange> ClientExtents::TakeEmpty(size_t keep) {
  if (keep == 0 && open_ != nullptr && open_->live == 0) CloseOpen();
  std::vector<ExtentRange> taken;
  while (empty_.size() > keep) {
    ClientExtent* coldest = empty_.front();
    empty_.erase(empty_.begin());
    taken.push_back({coldest->offset, coldest->bytes});
    Drop(coldest);
  }
  return taken;
}

std::vector<ExtentRange> ClientExtents::TakeSealed() {
  std::vector<ClientExtent*> sealed;
  for (const auto& [offset, extent] : extents_) {
    if (extent->IsSealed()) sealed.push_back(extent.get());
  }
  std::vector<ExtentRange> taken;
  for (ClientExtent* extent : sealed) {
    if (extent == open_) open_ = nullptr;
    taken.push_back({extent->offset, extent->bytes});
    Drop(extent);
  }
  std::sort(taken.begin(), taken.end(),
            [](const ExtentRange& a, const ExtentRange& b) { return a.offset < b.offset; });
  return taken;
}

uint64_t ClientExtents::NextSharedBytes() const {
  return std::clamp(shared_bytes_, kFirstSharedBytes, kLargestSharedBytes);
}

ClientExtent* ClientExtents::PopIdle(uint64_t footprint) {
  const auto fits = std::find_if(idle_.rbegin(), idle_.rend(), [&](const ClientExtent* e) {
    return FitsIdleExtent(e->bytes, footprint);
  });
  if (fits == idle_.rend()) return nullptr;
  ClientExtent* extent = *fits;
  idle_.erase(std::next(fits).base());
  return extent;
}

void ClientExtents::DropIdle(ClientExtent* extent) {
  idle_.erase(std::find(idle_.begin(), idle_.end(), extent));
  Drop(extent);
}

void ClientExtents::PushInUse(ClientExtent* extent) {
  extent->position = static_cast<uint32_t>(in_use_.size());
  in_use_.push_back(extent);
}

void ClientExtents::TakeInUse(ClientExtent* extent) {
  in_use_[extent->position] = in_use_.back();
  in_use_[extent->position]->position = extent->position;
  in_use_.pop_back();
}

void ClientExtents::RevokePointers(ClientExtent* extent) {
  // Refused only for lack of address space: then a stray write goes unnoticed, as it would in
  // private memory.
  extent->mapping->Move().IgnoreError();
}

uint64_t ClientExtents::idle_bytes() const {
  uint64_t bytes = 0;
  for (const ClientExtent* extent : idle_) bytes += extent->bytes;
  for (const ClientExtent* extent : empty_) bytes += extent->bytes;
  return bytes;
}

}  // namespace sheaf
