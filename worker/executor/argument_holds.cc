// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "worker/executor/argument_holds.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace sheaf {

bool ArgumentHolds::Begin(CallExecution& call) {
  const uint64_t bytes = call.stored_bytes();
  if (bytes <= unasked_limit_ - std::min(unasked_limit_, unasked_bytes_)) {
    call.unasked_bytes = bytes;
    unasked_bytes_ += bytes;
    return true;
  }
  std::vector<HeldObject> objects;
  for (const StoreArgument* argument : call.store_arguments())
    objects.push_back({argument->id, argument->size});
  if (TakeIdle(call, objects)) return true;
  call.hold_ticket = ++last_ticket_;
  Asked& asked = calls_[call.hold_ticket];
  for (const HeldObject& object : objects) asked.objects.push_back(object.id);
  std::sort(asked.objects.begin(), asked.objects.end());
  const HoldHead head{.ticket = call.hold_ticket,
                      .caller = call.owner.packed(),
                      .step = HoldStep::kAsk,
                      .count = static_cast<uint32_t>(objects.size())};
  transport_.To(RayletOf(self_.node))
      .Send(Lane::kControl, kStoreHold, AsBytes(head),
            ItemsAsBytes(std::span<const HeldObject>(objects)));
  return false;
}

// The call goes on with what another one held, if that is all that it needs; else that ends.
bool ArgumentHolds::TakeIdle(CallExecution& call, std::span<const HeldObject> objects) {
  if (idle_ == 0) return false;
  const Asked& idle = calls_.at(idle_);
  const bool fits =
      clock_.Now() - idle.admitted_at < kReuse &&
      std::all_of(
          objects.begin(), objects.end(),
          [&](const HeldObject& object) {
            return std::binary_search(idle.objects.begin(), idle.objects.end(), object.id);
          });
  if (!fits) {
    EndIdle();
    return false;
  }
  call.hold_ticket = std::exchange(idle_, 0);
  return true;
}

void ArgumentHolds::EndIdle() {
  const uint64_t ticket = std::exchange(idle_, 0);
  calls_.erase(ticket);
  Tell(ticket, HoldStep::kEnd);
}

void ArgumentHolds::Tick() {
  if (idle_ != 0 && clock_.Now() >= idle_since_ + kIdle) EndIdle();
}

bool ArgumentHolds::IsAdmitted(const CallExecution& call) const {
  const auto asked = calls_.find(call.hold_ticket);
  return asked == calls_.end() || asked->second.admitted;
}

void ArgumentHolds::End(uint64_t ticket, uint64_t unasked_bytes) {
  unasked_bytes_ -= unasked_bytes;
  const auto asked = calls_.find(ticket);
  if (asked == calls_.end()) return;
  const Nanos now = clock_.Now();
  if (idle_ == 0 && asked->second.admitted && !asked->second.suspended &&
      now - asked->second.admitted_at < kReuse) {
    idle_ = ticket;
    idle_since_ = now;
    return;
  }
  calls_.erase(asked);
  Tell(ticket, HoldStep::kEnd);
}

void ArgumentHolds::OnAdmitted(uint64_t ticket) {
  const auto asked = calls_.find(ticket);
  if (asked == calls_.end() || asked->second.admitted) return;
  asked->second.admitted = true;
  asked->second.admitted_at = clock_.Now();
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
  for (auto& [ticket, call] : calls_) {
    if (ticket != idle_) SetSuspended(ticket, call, suspended);
  }
}

}  // namespace sheaf
