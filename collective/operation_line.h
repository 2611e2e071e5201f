// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What all communicators need around their operations: whether there may be any, the handle of one
// that runs elsewhere, and operations that run one after the other.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <vector>

#include "base/executor.h"
#include "base/mutex.h"
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
  mutable Mutex mutex_;
  CondVar changed_;
  bool done_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
};

// A call that failed before it began.
std::shared_ptr<Work> FinishedWork(absl::Status status);

// The collective operations of a group, or those of one end of a pair.
struct OperationLine {
  // Runs `run` behind all that was started before, on the line's own thread, which is called
  // `thread`, and with `running` held. Waits for the work end early when `interrupted` says so.
  std::shared_ptr<Work> Start(const char* thread, const std::function<bool()>& interrupted,
                              std::function<absl::Status()> run);

  Mutex running;                // Held by whoever runs an operation.
  std::atomic<int> started{0};  // With Start, and not finished.
  Mutex executor_mutex;
  std::unique_ptr<ThreadExecutor> executor ABSL_GUARDED_BY(executor_mutex);  // Null: none yet.
};

// That of a checked operation: of all collective ones, or of one direction of a pair.
// `lines`: 1 + 2 * world_size.
template <class Line>
Line& LineOf(std::vector<Line>& lines, const Operation& operation) {
  switch (operation.kind) {
    case CollectiveKind::kSend:
      return lines[1 + 2 * static_cast<size_t>(operation.peer)];
    case CollectiveKind::kReceive:
      return lines[2 + 2 * static_cast<size_t>(operation.peer)];
    default:
      return lines[0];
  }
}

// The errors of calls when the group is of the process that this one was forked from, and when
// `failure` (not OK) has ended it; the second names its rank.
absl::Status OfAnotherProcess(const Communicator& communicator);
absl::Status Dead(const Communicator& communicator, const absl::Status& failure);

// Whether calls of `communicator` may use its `group`. A forked process asks it for nothing more:
// threads that are not here may hold its locks.
template <class Group>
absl::Status CheckUsable(const Communicator& communicator, const Group& group) {
  if (group.Forked()) [[unlikely]]
    return OfAnotherProcess(communicator);
  if (absl::Status failure = group.Failure(); !failure.ok()) [[unlikely]]
    return Dead(communicator, failure);
  return absl::OkStatus();
}

}  // namespace sheaf
