// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "object_store/server/restorer.h"

#include <utility>

namespace sheaf {
namespace {

// Objects up to this come back side by side, into a granule that they share.
constexpr uint64_t kSmallRecordBytes = kGranuleBytes / 4;

bool IsSmall(const ObjectRecord& record) { return record.bytes.bytes <= kSmallRecordBytes; }

}  // namespace

void Restorer::Start(const std::shared_ptr<ObjectRecord>& record) {
  deps_.table.SetPlace(*record, ObjectPlace::kRestoring);
  if (TryShelf(record)) return;
  auto request = std::make_shared<RoomRequest>();
  request->bytes = AlignUp(record->bytes.bytes, kGranuleBytes);
  request->since = deps_.clock.Now();
  request->deadline = Deadline(request->since, wait_);
  request->elsewhere = [this, record] { return TryShelf(record); };
  request->granted = [this, record](ExtentRange room) {
    const uint64_t bytes = record->bytes.bytes;
    ReadInto(record, IsSmall(*record) ? deps_.shelf.TakeFrom(room, bytes)
                                      : deps_.shelf.TakeAll(room, bytes));
  };
  request->refused = [this, record](StoreRefusalReason) {
    deps_.table.SetPlace(*record, ObjectPlace::kDisk);
    deps_.index.Settle(*record, LookupOutcome::kFull);
  };
  record->room = request;
  deps_.room.Add(std::move(request));
}

bool Restorer::TryShelf(const std::shared_ptr<ObjectRecord>& record) {
  if (!IsSmall(*record)) return false;
  const auto place = deps_.shelf.Take(record->bytes.bytes);
  if (place) ReadInto(record, *place);
  return place.has_value();
}

void Restorer::ReadInto(const std::shared_ptr<ObjectRecord>& record, Shelf::Place place) {
  record->extent = place.extent;
  auto outcome = std::make_shared<absl::Status>();
  std::byte* memory = deps_.arena.data() + place.range.offset;
  deps_.loop.RunElsewhere(
      deps_.disk,
      [&spill = deps_.spill, outcome, disk = record->disk, memory] {
        *outcome = spill.Read(disk, 0, {memory, disk.bytes});
      },
      [this, record, range = place.range, outcome] { OnRead(record, range, *outcome); });
}

void Restorer::OnRead(const std::shared_ptr<ObjectRecord>& record, ExtentRange range,
                      const absl::Status& outcome) {
  const uint32_t slot = outcome.ok() && !record->freed ? deps_.slots.TakeOwnSlot() : kNoSlot;
  if (slot == kNoSlot) {
    deps_.shelf.Drop(std::exchange(record->extent, nullptr));
    if (!record->freed) {
      deps_.table.SetPlace(*record, ObjectPlace::kDisk);
      if (outcome.ok()) {
        deps_.index.Settle(*record, LookupOutcome::kFull);
      } else {
        ++counts_.lost;
        deps_.index.Free(record, /*lost=*/true);
      }
    }
    return deps_.room.Serve();
  }
  ++counts_.restores;
  counts_.restored_bytes += record->bytes.bytes;
  record->bytes.offset = range.offset;
  record->slot = slot;
  deps_.table.SetPlace(*record, ObjectPlace::kMemory);
  deps_.table.Publish(*record);
  deps_.table.Touch(*record);
  deps_.index.Settle(*record, LookupOutcome::kFound);
}

}  // namespace sheaf
