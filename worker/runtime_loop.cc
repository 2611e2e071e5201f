// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Async actors whose language has an event loop (TaskHandler::has_event_loop). Three threads share
// the work:
//   the loop's  takes the calls. When it has nothing to do it waits for them as all threads wait
//               (DriveUntil): a call wakes it alone, and one that comes fast enough nobody.
//   the main    sleeps in epoll for it: what the loop's descriptors have to say ends that wait.
//   the helper  runs the creation, and waits for arguments that are not within reach, or may not be
//               held yet.
#include <pthread.h>

#include "worker/runtime_impl.h"

namespace sheaf {

bool RuntimeImpl::RunsLoop() const {
  return core_->executor.is_async() && options_.handler->has_event_loop();
}

// False: there are none.
bool RuntimeImpl::CollectCalls(std::vector<std::shared_ptr<Execution>>* calls) {
  bool waits = false;
  loop_calls_->Collect(calls, &waits);
  if (waits) [[unlikely]] {
    helper_called_.notify_one();
    driver_->CallDriver();  // The helper may wait for others: whoever drives lets it look again.
  }
  return !calls->empty();
}

absl::Status RuntimeImpl::WatchLoop(int descriptor) {
  Lock lock(*driver_);
  if (absl::Status opened = loop_watch_.Open(descriptor); !opened.ok()) return opened;
  leaves_.notify_all();
  if (leaving_) loop_watch_.Leave();
  return absl::OkStatus();
}

// The main thread, until a descriptor has something to say or a while has passed.
void RuntimeImpl::WatchDescriptors(Lock& lock) {
  lock.Unlock();
  const bool readable = loop_watch_.Wait();
  lock.Relock();
  if (!readable) return;
  loop_watch_.NoteReadable();
  driver_->Recheck();
}

bool RuntimeImpl::TakeCalls(Nanos deadline, std::vector<std::shared_ptr<Execution>>* calls) {
  Lock lock(*driver_);
  if (deadline != 0) {
    loop_watch_.Arm();
    const absl::Status status = driver_->DriveUntil(
        lock, deadline, [&] { return CollectCalls(calls) || loop_watch_.TakeReadable(); },
        WaitsFor::kCalls);
    return status.ok() || absl::IsDeadlineExceeded(status);
  }
  driver_->DriveOnce();
  CollectCalls(calls);
  return !driver_->ended();
}

void RuntimeImpl::HelpLoop() {
  pthread_setname_np(pthread_self(), "sheaf-actor");
  Lock lock(*driver_);
  while (!driver_->stopping()) {
    ConcurrencyGroup& first = core_->executor.default_group();
    if (core_->executor.HasWork(first) &&
        first.queue.front()->spec().kind() == proto::TaskTemplate::ACTOR_CREATION) {
      RunCall(lock, core_->executor.Take(first));
      lock.Yield();
      continue;
    }
    if (!loop_calls_->any_waits()) {
      helper_called_.wait_for(lock.native(), std::chrono::nanoseconds(kLongestSleep));
      continue;
    }
    loop_calls_->EndWait(driver_->DriveUntil(
        lock, kForever, [&] { return loop_calls_->Look(); }, WaitsFor::kArguments));
    driver_->Recheck();
    lock.Yield();
  }
}

}  // namespace sheaf
