// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "collective/operation_line.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace sheaf {
namespace {

constexpr Nanos kInterruptPeriod = 50 * kMillisecond;

}  // namespace

void OperationWork::Finish(absl::Status status) {
  const MutexLock lock(mutex_);
  status_ = std::move(status);
  done_ = true;
  changed_.NotifyAll();
}

bool OperationWork::Done() const {
  const MutexLock lock(mutex_);
  return done_;
}

absl::Status OperationWork::Wait(Nanos timeout) {
  const Nanos deadline = Deadline(MonotonicNow(), timeout);
  MutexLock lock(mutex_);
  while (!done_) {
    changed_.WaitFor(mutex_, kInterruptPeriod);
    if (done_) break;
    if (MonotonicNow() >= deadline) return absl::DeadlineExceededError("it is still running");
    if (interrupted_) {
      lock.Unlock();
      if (interrupted_()) return absl::CancelledError("the wait was interrupted");
      lock.Lock();
    }
  }
  return status_;
}

std::shared_ptr<Work> FinishedWork(absl::Status status) {
  auto work = std::make_shared<OperationWork>(nullptr);
  work->Finish(std::move(status));
  return work;
}

std::shared_ptr<Work> OperationLine::Start(const char* thread,
                                           const std::function<bool()>& interrupted,
                                           std::function<absl::Status()> run) {
  auto work = std::make_shared<OperationWork>(interrupted);
  started.fetch_add(1, std::memory_order_acq_rel);
  const MutexLock lock(executor_mutex);
  if (executor == nullptr) executor = std::make_unique<ThreadExecutor>(thread);
  executor->Post([this, work, run = std::move(run)] {
    absl::Status status;
    {
      const MutexLock alone(running);
      status = run();
    }
    started.fetch_sub(1, std::memory_order_acq_rel);
    work->Finish(std::move(status));
  });
  return work;
}

absl::Status OfAnotherProcess(const Communicator& communicator) {
  return absl::FailedPreconditionError(
      absl::StrCat("the group '", communicator.name(),
                   "' belongs to the process that this one was forked from"));
}

absl::Status Dead(const Communicator& communicator, const absl::Status& failure) {
  absl::Status dead = absl::FailedPreconditionError(
      absl::StrCat("the group '", communicator.name(), "' (epoch ", communicator.epoch(),
                   ") is dead, form it anew: ", failure.message()));
  const std::optional<int> culprit = RankOf(failure);
  return culprit.has_value() ? WithRank(std::move(dead), *culprit) : dead;
}

}  // namespace sheaf
