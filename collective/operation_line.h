// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What all communicators need around their operations: the handle of one that runs elsewhere, and
// operations that run one after the other.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>

#include "base/executor.h"
#include "collective/communicator.h"

namespace sheaf {

// Thread-safe.
class OperationWork final : public Work {
 public:
  explicit OperationWork(std::function<bool()> interrupted)
      : interrupted_(std::move(interrupted)) {}
  // Once.
  void Finish(absl::Status status);
  bool Done() const override;
  absl::Status Wait(Nanos timeout) override;

 private:
  const std::function<bool()> interrupted_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false;
  absl::Status status_;
};

// The collective operations of a group, or those of one end of a pair.
struct OperationLine {
  std::mutex running;           // Held by whoever runs an operation.
  std::atomic<int> started{0};  // With Start, and not finished.
  std::mutex executor_mutex;    // Guards making the executor.
  std::unique_ptr<ThreadExecutor> executor;
};

}  // namespace sheaf
