// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "base/executor.h"

#include <pthread.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "base/signal_mask.h"

namespace sheaf {

namespace {

// Something that happens once.
class Event {
 public:
  void Happen() {
    const MutexLock lock(mutex_);
    happened_ = true;
    changed_.NotifyOne();  // Under the mutex: who waits destroys this.
  }
  void Await() {
    const MutexLock lock(mutex_);
    while (!happened_) changed_.Wait(mutex_);
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  bool happened_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace

void RunAndWait(Executor& executor, const std::function<void()>& work) {
  Event over;
  {
    // Whoever destroys the token, having run the work or not, ends the wait.
    const std::shared_ptr<void> token(&over,
                                      [](void* event) { static_cast<Event*>(event)->Happen(); });
    executor.Post([&work, token] { work(); });
  }
  over.Await();
}

ThreadExecutor::ThreadExecutor(Options options) : options_(std::move(options)) {
  {
    const AllSignalsBlocked blocked;
    thread_ = std::thread([this] { Loop(); });
  }
  pthread_setname_np(thread_.native_handle(), options_.name.substr(0, 15).c_str());
}

void ThreadExecutor::Post(std::function<void()> work) {
  bool wake;
  {
    const MutexLock lock(mutex_);
    if (stopping_) return;
    queue_.push_back(std::move(work));
    wake = std::exchange(sleeping_, false);
  }
  if (wake) work_or_stop_.NotifyOne();
}

void ThreadExecutor::Stop() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
    sleeping_ = false;
  }
  work_or_stop_.NotifyOne();
  if (thread_.joinable()) thread_.join();
}

void ThreadExecutor::Loop() {
  constexpr Nanos kLongestSleep = kSecond;
  const bool ticking = options_.tick_period > 0;
  Nanos next_tick = ticking ? MonotonicNow() + options_.tick_period : kForever;
  std::vector<std::function<void()>> batch;
  for (;;) {
    bool stopping;
    {
      const MutexLock lock(mutex_);
      if (queue_.empty() && !stopping_) {
        Nanos wait = kLongestSleep;
        if (ticking) wait = std::min(wait, std::max<Nanos>(next_tick - MonotonicNow(), 0));
        sleeping_ = true;
        work_or_stop_.WaitFor(mutex_, wait, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
          return !queue_.empty() || stopping_;
        });
        sleeping_ = false;
      }
      batch.swap(queue_);
      stopping = stopping_;
    }
    for (auto& work : batch) {
      work();
      work = nullptr;  // What it captured goes before the next one runs.
    }
    if (batch.empty() && stopping) return;
    batch.clear();
    if (ticking && MonotonicNow() >= next_tick) {
      options_.tick();
      next_tick = MonotonicNow() + options_.tick_period;
    }
  }
}

void InlineExecutor::Post(std::function<void()> work) {
  queue_.push_back(std::move(work));
  if (running_) return;
  running_ = true;
  while (!queue_.empty()) {
    std::function<void()> next = std::move(queue_.front());
    queue_.pop_front();
    next();
  }
  running_ = false;
}

bool ManualExecutor::RunOne() {
  if (queue_.empty()) return false;
  std::function<void()> next = std::move(queue_.front());
  queue_.pop_front();
  next();
  return true;
}

}  // namespace sheaf
