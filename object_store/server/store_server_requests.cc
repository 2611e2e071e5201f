// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What processes ask of the store and give back to it. Where room comes from when there is none, in
// this order: freed objects without views, idle extents of processes, shared extents of processes,
// spilling, less than was asked for where that will do; at last a refusal.
#include <algorithm>
#include <utility>

#include "absl/container/btree_set.h"
#include "absl/strings/str_cat.h"
#include "base/frame.h"
#include "object_store/server/store_server.h"

namespace sheaf {
namespace {

constexpr size_t kMostRequests = 4096;  // For extents, of all processes, waiting.

}  // namespace

void StoreServer::OnExtentRequest(ProcessId from, const ExtentRequest& request) {
  if (request.bytes > capacity_bytes())
    return refusals_.Refuse(from, request.request, StoreRefusalReason::kTooLarge);
  const bool dedicated = request.slot != kNoSlot;
  if (request.bytes == 0 || room_.size() >= kMostRequests ||
      (dedicated &&
       (table_.HolderOf(request.slot) != from || table_.DedicatedTo(request.slot) != nullptr ||
        table_.RecordIn(request.slot) != nullptr))) {
    return refusals_.Refuse(from, request.request, StoreRefusalReason::kInvalid);
  }
  if (freed_.look_again()) ScanFreed();
  if (dedicated && HasFittingIdle(from, request.bytes)) {
    const ExtentCancel answer{request.request};
    deps_.transport.To(from).Send(Lane::kControl, kStoreAlreadyYours, AsBytes(answer));
    return;
  }
  const Nanos wait = std::clamp<Nanos>(request.wait_ns, 0, options_.longest_wait);
  auto waiting = std::make_shared<RoomRequest>();
  waiting->process = from;
  waiting->number = request.request;
  waiting->bytes = AlignUp(request.bytes, kGranuleBytes);
  waiting->least_bytes = dedicated ? 0 : request.least_granules * kGranuleBytes;
  waiting->from_top = !dedicated;
  waiting->since = deps_.clock.Now();
  waiting->deadline = Deadline(waiting->since, wait);
  waiting->granted = [this, from, request](ExtentRange range) {
    GrantExtent(from, request, range);
  };
  waiting->refused = [this, from, number = request.request](StoreRefusalReason reason) {
    refusals_.Refuse(from, number, reason);
  };
  room_.Add(std::move(waiting));
}

bool StoreServer::HasFittingIdle(ProcessId process, uint64_t bytes) {
  bool found = false;
  table_.ForEachUnused([&](Extent& extent) {
    found = found || (extent.holder == process && extent.slot != kNoSlot &&
                      FitsIdleExtent(extent.range.bytes, bytes) &&
                      table_.Word(extent.slot).state == SlotState::kIdle);
  });
  return found;
}

void StoreServer::GrantExtent(ProcessId to, const ExtentRequest& request, ExtentRange range) {
  const uint32_t slot = request.slot;
  if (slot != kNoSlot && (table_.DedicatedTo(slot) != nullptr ||  // Asked for twice at once,
                          table_.HolderOf(slot) != to)) {         // or returned meanwhile.
    allocator_.Free(range, /*populated=*/true);
    return refusals_.Refuse(to, request.request, StoreRefusalReason::kInvalid);
  }
  table_.AddExtent(range, to, slot)->unused_since = deps_.clock.Now();
  const ExtentGrant grant{
      .request = request.request, .offset = range.offset, .bytes = range.bytes, .slot = slot};
  deps_.transport.To(to).Send(Lane::kControl, kStoreExtentGrant, AsBytes(grant));
}

void StoreServer::OnExtentCancel(ProcessId from, uint64_t request) {
  const std::shared_ptr<RoomRequest> waiting = room_.Find(from, request);
  if (waiting == nullptr) return;
  room_.Cancel(waiting);
  waiting->refused(StoreRefusalReason::kCancelled);
  room_.Serve();
}

void StoreServer::OnExtentReturn(ProcessId from, std::span<const ExtentRange> ranges) {
  // What was sealed there and not announced must be known first: others may view it.
  index_.LearnOf(from);
  absl::btree_set<uint64_t> with_objects;
  for (const ExtentRange& range : ranges) {
    Extent* extent = table_.FindExtent(range);
    if (extent == nullptr || extent->holder != from || extent->range.offset != range.offset ||
        extent->range.bytes != range.bytes) {
      refusals_.Violation(from, absl::StrCat("it returns ", range.bytes, " bytes at ", range.offset,
                                             ", which it does not hold"));
    } else if (extent->objects == 0) {
      extents_.End(extent);
    } else if (extent->slot == kNoSlot) {
      with_objects.insert(range.offset);
    } else {
      refusals_.Violation(from, "it returns the extent of an object that exists");
    }
  }
  if (!with_objects.empty()) extents_.Split(from, &with_objects);
  room_.Serve();
}

void StoreServer::OnSlotReturn(ProcessId from, std::span<const SlotPages> ranges) {
  for (const SlotPages& range : ranges) {
    for (uint32_t i = 0; i < range.count; ++i) {
      if (table_.ReturnPage(from, range.first + i)) continue;
      refusals_.Violation(from, absl::StrCat("it returns slot page ", range.first + i,
                                             ", which it does not hold or which is not free"));
      break;
    }
  }
  room_.Serve();
}

void StoreServer::OnLookup(ProcessId from, std::span<const ObjectId> ids) {
  std::vector<LocatedObject> answers;
  for (const ObjectId& id : ids) {
    const std::shared_ptr<ObjectRecord> record = index_.Find(id);
    if (index_.Answer(from, id, record, &answers)) restorer_.Start(record);
  }
  for (size_t at = 0; at < answers.size(); at += kMaxStoreItems) {
    const size_t count = std::min(kMaxStoreItems, answers.size() - at);
    deps_.transport.To(from).Send(
        Lane::kControl, kStoreLocated,
        ItemsAsBytes(std::span<const LocatedObject>(answers.data() + at, count)));
  }
}

}  // namespace sheaf
