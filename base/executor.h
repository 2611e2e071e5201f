// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Somewhere to run work later: a thread of its own on real nodes, the caller itself in tests.
// Functions must not throw.
#pragma once

#include <deque>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"

namespace sheaf {

class Executor {
 public:
  virtual ~Executor() = default;
  // Runs `work` later, after all that was posted before it. Any thread may call.
  virtual void Post(std::function<void()> work) = 0;
};

// Runs `work` there, and returns when it has run or was dropped without being run. Not to be called
// on the thread that the executor runs its work on.
void RunAndWait(Executor& executor, const std::function<void()>& work);

// One thread that runs what is posted, in order. It blocks all signals.
class ThreadExecutor final : public Executor {
 public:
  struct Options {
    std::string name;       // As `ps -L` shows it; 15 bytes count.
    Nanos tick_period = 0;  // Not 0: `tick` runs on the thread about every so often, work or not.
    std::function<void()> tick;
  };
  explicit ThreadExecutor(std::string name)
      : ThreadExecutor(Options{std::move(name), 0, nullptr}) {}
  explicit ThreadExecutor(Options options);
  ~ThreadExecutor() override { Stop(); }
  ThreadExecutor(const ThreadExecutor&) = delete;
  ThreadExecutor& operator=(const ThreadExecutor&) = delete;

  // After Stop has begun, `work` is destroyed without being run.
  void Post(std::function<void()> work) override;
  // Runs all that was posted so far, then ends the thread. Idempotent; not to be called on the
  // thread itself.
  void Stop();
  bool IsCurrent() const { return std::this_thread::get_id() == thread_.get_id(); }

 private:
  void Loop();

  const Options options_;
  Mutex mutex_;
  CondVar work_or_stop_;
  std::vector<std::function<void()>> queue_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool sleeping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // Last: it uses the others.
};

// Runs work at once on the calling thread; work posted from within work runs after it. Not
// thread-safe.
class InlineExecutor final : public Executor {
 public:
  void Post(std::function<void()> work) override;

 private:
  std::deque<std::function<void()>> queue_;
  bool running_ = false;
};

// Keeps work until the test asks for it. Not thread-safe.
class ManualExecutor final : public Executor {
 public:
  void Post(std::function<void()> work) override { queue_.push_back(std::move(work)); }
  // Runs the oldest; false: nothing waits.
  bool RunOne();
  // Runs until nothing waits.
  void RunAll() {
    while (RunOne()) {
    }
  }
  size_t waiting() const { return queue_.size(); }

 private:
  std::deque<std::function<void()>> queue_;
};

}  // namespace sheaf
