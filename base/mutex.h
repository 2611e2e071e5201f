// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The mutex and the condition variable of the standard library, with the annotations by which clang
// proves that what a mutex guards is touched under it alone (tests/architecture/thread_safety.py).
// They cost what those of the standard library cost, and wait by the same clock, which does not
// jump when the time of day is set.
//
//   Mutex mutex_;
//   CondVar changed_;
//   std::deque<Work> queue_ ABSL_GUARDED_BY(mutex_);
//
//   const MutexLock lock(mutex_);
//   while (queue_.empty()) changed_.Wait(mutex_);
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>

#include "absl/base/thread_annotations.h"
#include "base/clock.h"

namespace sheaf {

class ABSL_LOCKABLE Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  void Lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() { mutex_.lock(); }
  void Unlock() ABSL_UNLOCK_FUNCTION() { mutex_.unlock(); }
  bool TryLock() ABSL_EXCLUSIVE_TRYLOCK_FUNCTION(true) { return mutex_.try_lock(); }

 private:
  friend class CondVar;
  std::mutex mutex_;
};

// One that the thread which holds it may lock again.
class ABSL_LOCKABLE RecursiveMutex {
 public:
  void Lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() { mutex_.lock(); }
  void Unlock() ABSL_UNLOCK_FUNCTION() { mutex_.unlock(); }

 private:
  std::recursive_mutex mutex_;
};

// Holds a mutex from here to the end of the block, but between Unlock and Lock.
template <class M>
class ABSL_SCOPED_LOCKABLE MutexLock {
 public:
  explicit MutexLock(M& mutex) ABSL_EXCLUSIVE_LOCK_FUNCTION(mutex) : mutex_(mutex) {
    mutex_.Lock();
  }
  ~MutexLock() ABSL_UNLOCK_FUNCTION() {
    if (held_) mutex_.Unlock();
  }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

  void Unlock() ABSL_UNLOCK_FUNCTION() {
    held_ = false;
    mutex_.Unlock();
  }
  void Lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() {
    mutex_.Lock();
    held_ = true;
  }

 private:
  M& mutex_;
  bool held_ = true;
};

// A wait without `done` may also end for no reason: the caller looks again at what it waits for.
// `done` is asked under the mutex, and says so where it reads what the mutex guards:
// [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !queue_.empty(); }
class CondVar {
 public:
  CondVar() = default;
  CondVar(const CondVar&) = delete;
  CondVar& operator=(const CondVar&) = delete;

  // Releases `mutex` while it waits.
  void Wait(Mutex& mutex) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    std::unique_lock<std::mutex> lock(mutex.mutex_, std::adopt_lock);
    changed_.wait(lock);
    lock.release();
  }
  // The same, for at most about `timeout`; false: it has passed.
  bool WaitFor(Mutex& mutex, Nanos timeout) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    std::unique_lock<std::mutex> lock(mutex.mutex_, std::adopt_lock);
    const std::cv_status status = changed_.wait_for(lock, Bounded(timeout));
    lock.release();
    return status == std::cv_status::no_timeout;
  }
  template <class Done>
  void Wait(Mutex& mutex, const Done& done)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) ABSL_NO_THREAD_SAFETY_ANALYSIS {
    while (!done()) Wait(mutex);
  }
  // false: `timeout` has passed, and `done` is not so.
  template <class Done>
  bool WaitFor(Mutex& mutex, Nanos timeout, const Done& done)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) ABSL_NO_THREAD_SAFETY_ANALYSIS {
    std::unique_lock<std::mutex> lock(mutex.mutex_, std::adopt_lock);
    const bool is_done = changed_.wait_for(lock, Bounded(timeout), done);
    lock.release();
    return is_done;
  }
  void NotifyOne() { changed_.notify_one(); }
  void NotifyAll() { changed_.notify_all(); }

 private:
  // A year from now is a time of the clock; kForever from now is none.
  static std::chrono::nanoseconds Bounded(Nanos timeout) {
    return std::chrono::nanoseconds(std::min(timeout, 365 * 24 * 3600 * kSecond));
  }

  std::condition_variable changed_;
};

}  // namespace sheaf
