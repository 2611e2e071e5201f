// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Async actors whose language has an event loop (TaskHandler::has_event_loop). Three threads share
// the work:
//   the loop's    takes the calls, and while it is idle looks at the rings itself: a call that
//   comes
//                 fast enough wakes nobody.
//   the main      sleeps on the bell while the loop sleeps in its own way, and wakes it for calls.
//   the helper    runs the creation, and waits for arguments that are not within reach.
#include <pthread.h>

#include "base/failpoint.h"
#include "worker/runtime_impl.h"

namespace sheaf {

bool RuntimeImpl::RunsLoop() const {
  return executor_->is_async() && options_.handler->has_event_loop();
}

bool RuntimeImpl::LoopHasCalls() {
  if (!fetched_.empty()) return true;
  for (const auto& group : executor_->groups()) {
    if (executor_->HasWork(*group)) return true;
  }
  return false;
}

// False: there are none.
bool RuntimeImpl::CollectCalls(std::vector<std::shared_ptr<Execution>>* calls) {
  for (std::shared_ptr<Execution>& call : fetched_) calls->push_back(std::move(call));
  fetched_.clear();
  for (auto& group : executor_->groups()) {
    while (executor_->HasWork(*group) &&
           group->queue.front()->spec().kind() == proto::TaskTemplate::ACTOR_METHOD) {
      SHEAF_FAILPOINT("worker.before_call");
      std::shared_ptr<CallExecution> call = executor_->Take(*group);
      std::vector<const StoreArgument*> missing = PinArguments(*call);
      if (missing.empty()) {
        calls->push_back(std::move(call));
      } else {
        group->held_back = true;
        to_fetch_.push_back({std::move(call), std::move(missing)});
        to_fetch_changed_.notify_one();
      }
    }
  }
  return !calls->empty();
}

// Wakes the loop, which sleeps, if it has something to do.
void RuntimeImpl::NudgeLoop(bool surely) {
  if (!surely && !LoopHasCalls()) return;
  loop_sleeps_ = false;
  options_.handler->WakeLoop();
}

bool RuntimeImpl::TakeCalls(bool may_sleep, std::vector<std::shared_ptr<Execution>>* calls) {
  Lock lock(*this);
  loop_sleeps_ = false;
  if (driving_) {  // Another thread looks at the rings.
    loop_sleeps_ = !CollectCalls(calls) && may_sleep;
    return loop_sleeps_;
  }
  driving_ = true;
  SetBell(mailbox_->bell(), BellState::kAwake);
  PollRings();
  if (!CollectCalls(calls) && may_sleep) {
    FlushOutgoing();
    // Whatever has come, the loop looks at its own things before it sleeps.
    const bool came = Spin(lock, kForever);
    loop_sleeps_ = !CollectCalls(calls) && !came;
    TickIfDue();
  }
  if (!waiters_.empty()) ServeWaiters();
  const bool sleeps = loop_sleeps_;
  LeaveToken();
  return sleeps;
}

// The main thread, until something happens or a while has passed.
void RuntimeImpl::WatchBell(Lock& lock) {
  Bell& bell = mailbox_->bell();
  const auto seen = static_cast<BellState>(bell.state.load(std::memory_order_relaxed));
  lock.Unlock();
  SleepWhile(bell, seen, kLongestSleep);
  lock.Relock();
  if (driving_) {
    WakeSleeper(bell, BellState::kAsleep);  // What woke this thread may have been for its holder.
    return;
  }
  driving_ = true;
  SetBell(bell, BellState::kAwake);
  PollRings();
  FlushOutgoing();
  ServeWaiters();
  TickIfDue();
  LeaveToken();
}

void RuntimeImpl::HelpLoop() {
  pthread_setname_np(pthread_self(), "sheaf-actor");
  Lock lock(*this);
  while (!stopping_) {
    ConcurrencyGroup& first = executor_->default_group();
    if (executor_->HasWork(first) &&
        first.queue.front()->spec().kind() == proto::TaskTemplate::ACTOR_CREATION) {
      RunCall(lock, executor_->Take(first));
      lock.Breathe();
      continue;
    }
    if (to_fetch_.empty()) {
      to_fetch_changed_.wait_for(lock.native(), std::chrono::nanoseconds(kLongestSleep));
      continue;
    }
    Fetch fetch = std::move(to_fetch_.front());
    to_fetch_.pop_front();
    const absl::Status fetched = FetchArguments(lock, *fetch.call, fetch.missing);
    static_cast<ConcurrencyGroup*>(fetch.call->group)->held_back = false;
    if (fetched.ok()) {
      fetched_.push_back(std::move(fetch.call));
    } else {
      fetch.call->Fail({ErrorKind::kObjectLost, std::string(fetched.message()), {}}, true);
      fetch.call.reset();
    }
    Recheck();
    lock.Breathe();
  }
}

}  // namespace sheaf
