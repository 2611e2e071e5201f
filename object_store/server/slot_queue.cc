// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "object_store/server/slot_queue.h"

#include <algorithm>
#include <optional>

#include "base/frame.h"

namespace sheaf {
namespace {

constexpr uint32_t kMostPages = 64;     // In one grant.
constexpr size_t kMostRequests = 4096;  // Of all processes, waiting.

}  // namespace

void SlotQueue::OnRequest(ProcessId from, const SlotRequest& request) {
  if (request.pages == 0)
    return deps_.refusals.Refuse(from, request.request, StoreRefusalReason::kInvalid);
  if (waiting_.size() >= kMostRequests)
    return deps_.refusals.Refuse(from, request.request, StoreRefusalReason::kTableFull);
  const Nanos wait = std::clamp<Nanos>(request.wait_ns, 0, longest_wait_);
  waiting_.push_back({from, request, Deadline(deps_.clock.Now(), wait)});
  Serve();
}

void SlotQueue::OnProcessDied(ProcessId process) {
  std::erase_if(waiting_, [&](const Waiting& waiting) { return waiting.process == process; });
}

void SlotQueue::Serve() {
  const Nanos now = deps_.clock.Now();
  while (!waiting_.empty()) {
    const Waiting& first = waiting_.front();
    // Where pages are scarce all get some of them.
    const uint32_t pages = waiting_.size() > 1 ? 1 : first.request.pages;
    std::optional<SlotGrant> grant =
        deps_.table.GrantPages(first.process, std::min(pages, kMostPages));
    if (!grant) break;
    grant->request = first.request.request;
    deps_.transport.To(first.process).Send(Lane::kControl, kStoreSlotGrant, AsBytes(*grant));
    waiting_.pop_front();
  }
  std::erase_if(waiting_, [&](const Waiting& waiting) {
    if (now < waiting.deadline) return false;
    deps_.refusals.Refuse(waiting.process, waiting.request.request, StoreRefusalReason::kTableFull);
    return true;
  });
  if (!waiting_.empty()) deps_.recalls.AskForSlots(now);
}

uint32_t SlotQueue::TakeOwnSlot() {
  const uint32_t slot = deps_.table.TakeOwnSlot();
  if (slot == kNoSlot) deps_.recalls.AskForSlots(deps_.clock.Now());
  return slot;
}

}  // namespace sheaf
