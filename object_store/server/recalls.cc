// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "object_store/server/recalls.h"

#include "base/frame.h"
#include "object_store/messages.h"

namespace sheaf {
namespace {

constexpr Nanos kRecallPeriod = 100 * kMillisecond;

}  // namespace

void Recalls::TakeIdle(uint64_t enough, bool populated) {
  deps_.table.ForEachUnused([&](Extent& extent) {
    if (extent.slot == kNoSlot || deps_.allocator.LongestRun(populated) >= enough) return;
    if (deps_.table.TakeBack(extent.slot)) deps_.extents.End(&extent);
  });
}

void Recalls::TakeIdleSince(Nanos unused_since) {
  deps_.table.ForEachUnused([&](Extent& extent) {
    if (extent.slot == kNoSlot || extent.unused_since > unused_since) return;
    if (deps_.table.TakeBack(extent.slot)) deps_.extents.End(&extent);
  });
}

void Recalls::AskForEmptySince(Nanos now, Nanos empty_since) {
  deps_.table.ForEachUnused([&](Extent& extent) {
    if (extent.slot != kNoSlot || extent.unused_since > empty_since) return;
    Nanos& asked_at = asked_at_[extent.holder];
    if (now - asked_at < kRecallPeriod) return;
    asked_at = now;
    deps_.transport.To(extent.holder)
        .Send(Lane::kControl, kStoreRecall,
              AsBytes(StoreRecall{.with_objects = 0, .keep_pages = 1}));
  });
}

void Recalls::AskForShared(Nanos now) {
  if (now < next_shared_) return;
  next_shared_ = now + kRecallPeriod;
  for (const ProcessId holder : deps_.table.SharedHolders()) {
    deps_.transport.To(holder).Send(Lane::kControl, kStoreRecall,
                                    AsBytes(StoreRecall{.with_objects = 1, .keep_pages = 1}));
  }
}

void Recalls::AskForSlots(Nanos now) {
  if (now < next_slots_) return;
  next_slots_ = now + kRecallPeriod;
  TakeIdleSince(now);
  for (const ProcessId holder : deps_.table.HoldersOfEmptyPages()) {
    deps_.transport.To(holder).Send(Lane::kControl, kStoreRecall,
                                    AsBytes(StoreRecall{.with_objects = 0, .keep_pages = 0}));
  }
}

void Recalls::Tick(Nanos now) {
  if (now < next_tick_) return;
  next_tick_ = now + take_back_after_ / 2;
  TakeIdleSince(now - take_back_after_);
  AskForEmptySince(now, now - take_back_after_);
}

}  // namespace sheaf
