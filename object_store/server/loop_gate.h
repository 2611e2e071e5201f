// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The way back to a loop for callbacks that may outlive it. Thread-safe.
#pragma once

#include <functional>
#include <utility>

#include "base/executor.h"
#include "base/mutex.h"

namespace sheaf {

class LoopGate {
 public:
  explicit LoopGate(Executor& loop) : loop_(&loop) {}
  LoopGate(const LoopGate&) = delete;
  LoopGate& operator=(const LoopGate&) = delete;

  // Posts to the loop; after Close `work` is destroyed without being run.
  void Post(std::function<void()> work) {
    const MutexLock lock(mutex_);
    if (loop_ != nullptr) loop_->Post(std::move(work));
  }
  // The loop may go when this returns.
  void Close() {
    const MutexLock lock(mutex_);
    loop_ = nullptr;
  }

 private:
  RecursiveMutex mutex_;  // An executor may run at once what is posted, and that may post.
  Executor* loop_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sheaf
