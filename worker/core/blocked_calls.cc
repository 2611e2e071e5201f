// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "worker/core/blocked_calls.h"

#include <algorithm>

namespace sheaf {
namespace {

// Before what has not started goes elsewhere.
Nanos PatienceOf(WaitsFor waits_for) {
  const bool is_patient = waits_for == WaitsFor::kArguments || waits_for == WaitsFor::kAdmission;
  return is_patient ? BlockedCalls::kPatience : 0;
}

}  // namespace

Nanos BlockedCalls::Wait::LookAtAll(Nanos now) {
  Nanos next = kForever;
  // True: so much of the wait is over.
  const auto is_due = [&](Nanos after) {
    if (now - begun_ >= after) return true;
    next = std::min(next, begun_ + after);
    return false;
  };
  const Nanos patience = PatienceOf(waits_for_);
  if (in_call_ && !counted_ && is_due(patience)) {
    counted_ = true;
    ++blocked_.blocked_threads_;
    blocked_.executor_.SetBlocked(true);
  }
  if (may_suspend_ && !suspended_ && is_due(kBlockedAfter)) Suspend(true);
  const bool awaits_admission = waits_for_ == WaitsFor::kAdmission;
  if (in_call_ && !blocked_.told_ &&
      is_due(awaits_admission ? kAdmissionPatience : patience + kBlockedAfter)) {
    unadmitted_ = awaits_admission;
    blocked_.unadmitted_threads_ += unadmitted_ ? 1 : 0;
    blocked_.Tell(true);
  }
  return next;
}

void BlockedCalls::Wait::Suspend(bool suspended) {
  suspended_ = suspended;
  if (waits_for_ == WaitsFor::kCalls) {
    blocked_.executor_.argument_holds().SetAllSuspended(suspended);
  } else {
    blocked_.executor_.argument_holds().SetSuspended(hold_, suspended);
  }
}

void BlockedCalls::Wait::End() {
  if (suspended_) Suspend(false);
  blocked_.unadmitted_threads_ -= unadmitted_ ? 1 : 0;
  if (counted_ && --blocked_.blocked_threads_ == 0) blocked_.executor_.SetBlocked(false);
  if (blocked_.told_ && blocked_.blocked_threads_ == 0 && blocked_.unadmitted_threads_ == 0)
    blocked_.Tell(false);
}

void BlockedCalls::Tell(bool blocked) {
  told_ = blocked;
  proto::Blocked message;
  message.set_blocked(blocked);
  SendMessage(rings_.To(RayletOf(self_.node)), FrameKind::kBlocked, message);
}

}  // namespace sheaf
