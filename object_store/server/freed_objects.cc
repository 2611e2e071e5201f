// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "object_store/server/freed_objects.h"

#include <utility>

namespace sheaf {

void FreedObjects::Add(const std::shared_ptr<ObjectRecord>& record) {
  record->place = ObjectPlace::kFreeing;
  deps_.table.SetState(record->slot, SlotState::kFreeing);
  freed_.push_back(record);
  look_again_ = true;
}

void FreedObjects::Scan(bool keep_extents) {
  look_again_ = false;
  next_scan_ = deps_.clock.Now() + rescan_period_;
  if (freed_.empty()) return;
  deps_.hazards.Run();
  std::vector<std::shared_ptr<ObjectRecord>> unused;
  std::erase_if(freed_, [&](const std::shared_ptr<ObjectRecord>& record) {
    if (record->writing || record->pins != 0 || deps_.hazards.Viewed(record->slot)) return false;
    unused.push_back(record);
    return true;
  });
  for (const auto& record : unused) {
    deps_.files.Forget(*record);
    Release(*record, keep_extents);
  }
}

void FreedObjects::Release(ObjectRecord& record, bool keep_extent) {
  Extent* extent = std::exchange(record.extent, nullptr);
  const uint32_t slot = std::exchange(record.slot, kNoSlot);
  const bool own = extent->holder == ProcessId{};
  const bool dedicated = extent->slot != kNoSlot;
  const bool stays = dedicated && !own && keep_extent;
  // What small objects of a process share is for the process to give back.
  deps_.shelf.Drop(extent, /*keep_empty=*/stays || (!own && !dedicated));
  deps_.table.Release(slot, stays ? SlotState::kIdle : SlotState::kFree);
}

}  // namespace sheaf
