// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "collective/operation_line.h"

#include <chrono>
#include <utility>

namespace sheaf {
namespace {

constexpr std::chrono::milliseconds kInterruptPeriod{50};

}  // namespace

void OperationWork::Finish(absl::Status status) {
  const std::lock_guard<std::mutex> lock(mutex_);
  status_ = std::move(status);
  done_ = true;
  changed_.notify_all();
}

bool OperationWork::Done() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return done_;
}

absl::Status OperationWork::Wait(Nanos timeout) {
  const Nanos deadline = Deadline(MonotonicNow(), timeout);
  std::unique_lock<std::mutex> lock(mutex_);
  while (!done_) {
    changed_.wait_for(lock, kInterruptPeriod);
    if (done_) break;
    if (MonotonicNow() >= deadline) return absl::DeadlineExceededError("it is still running");
    if (interrupted_) {
      lock.unlock();
      if (interrupted_()) return absl::CancelledError("the wait was interrupted");
      lock.lock();
    }
  }
  return status_;
}

}  // namespace sheaf
