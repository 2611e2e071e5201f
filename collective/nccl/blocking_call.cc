// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "collective/nccl/blocking_call.h"

#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/mutex.h"
#include "base/signal_mask.h"

namespace sheaf::nccl {

struct BlockingCall::State {
  Mutex mutex;
  CondVar returned;
  std::optional<absl::Status> status ABSL_GUARDED_BY(mutex);

  void Return(absl::Status result) {
    const MutexLock lock(mutex);
    status = std::move(result);
    returned.NotifyAll();
  }
};

BlockingCall::BlockingCall(std::function<absl::Status()> call) : state_(std::make_shared<State>()) {
  const AllSignalsBlocked blocked;  // They are the caller's.
  try {
    std::thread([state = state_, call = std::move(call)] { state->Return(call()); }).detach();
  } catch (const std::system_error& error) {
    state_->Return(
        absl::ResourceExhaustedError(absl::StrCat("no thread for a call of NCCL: ", error.what())));
  }
}

BlockingCall::~BlockingCall() = default;

bool BlockingCall::Returned(Nanos patience) const {
  const MutexLock lock(state_->mutex);
  const Nanos deadline = Deadline(MonotonicNow(), patience);
  while (!state_->status.has_value()) {
    const Nanos left = deadline - MonotonicNow();
    if (patience == 0 || left <= 0) return false;
    state_->returned.WaitFor(state_->mutex, left);
  }
  return true;
}

absl::Status BlockingCall::status() const {
  const MutexLock lock(state_->mutex);
  return state_->status.value_or(absl::UnavailableError("the call has not returned"));
}

}  // namespace sheaf::nccl
