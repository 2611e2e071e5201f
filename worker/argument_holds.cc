// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "worker/argument_holds.h"

#include <algorithm>
#include <vector>

namespace sheaf {

bool ArgumentHolds::Begin(CallExecution& call) {
  std::vector<HeldObject> objects;
  uint64_t bytes = 0;
  for (const StoreArgument* argument : call.store_arguments()) {
    objects.push_back({argument->id, argument->size});
    bytes += std::min(argument->size, UINT64_MAX - bytes);
  }
  if (bytes <= unasked_limit_ - std::min(unasked_limit_, unasked_bytes_)) {
    call.unasked_bytes = bytes;
    unasked_bytes_ += bytes;
    return true;
  }
  call.hold_ticket = ++last_ticket_;
  calls_[call.hold_ticket] = {};
  const HoldHead head{.ticket = call.hold_ticket,
                      .caller = call.owner.packed(),
                      .step = HoldStep::kAsk,
                      .count = static_cast<uint32_t>(objects.size())};
  transport_.To(RayletOf(self_.node))
      .Send(Lane::kControl, kStoreHold, AsBytes(head),
            ItemsAsBytes(std::span<const HeldObject>(objects)));
  return false;
}

bool ArgumentHolds::IsAdmitted(const CallExecution& call) const {
  const auto asked = calls_.find(call.hold_ticket);
  return asked == calls_.end() || asked->second.admitted;
}

void ArgumentHolds::End(uint64_t ticket, uint64_t unasked_bytes) {
  unasked_bytes_ -= unasked_bytes;
  if (calls_.erase(ticket) != 0) Tell(ticket, HoldStep::kEnd);
}

void ArgumentHolds::OnAdmitted(uint64_t ticket) {
  if (const auto asked = calls_.find(ticket); asked != calls_.end()) asked->second.admitted = true;
}

void ArgumentHolds::Tell(uint64_t ticket, HoldStep step) {
  const HoldHead head{.ticket = ticket, .caller = 0, .step = step, .count = 0};
  transport_.To(RayletOf(self_.node)).Send(Lane::kControl, kStoreHold, AsBytes(head));
}

void ArgumentHolds::SetSuspended(uint64_t ticket, Asked& call, bool suspended) {
  if (!call.admitted || call.suspended == suspended) return;
  call.suspended = suspended;
  Tell(ticket, suspended ? HoldStep::kSuspend : HoldStep::kResume);
}

void ArgumentHolds::SetSuspended(uint64_t ticket, bool suspended) {
  if (const auto asked = calls_.find(ticket); asked != calls_.end())
    SetSuspended(ticket, asked->second, suspended);
}

void ArgumentHolds::SetAllSuspended(bool suspended) {
  for (auto& [ticket, call] : calls_) SetSuspended(ticket, call, suspended);
}

}  // namespace sheaf
