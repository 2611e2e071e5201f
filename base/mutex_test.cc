// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "base/mutex.h"

#include <catch2/catch.hpp>
#include <functional>
#include <thread>

namespace sheaf {
namespace {

bool IsFree(Mutex& mutex) {
  bool free = false;
  std::thread([&] {
    free = mutex.TryLock();
    if (free) mutex.Unlock();
  }).join();
  return free;
}

}  // namespace

SCENARIO("a lock holds its mutex to the end of the block, but between Unlock and Lock") {
  Mutex mutex;
  {
    MutexLock lock(mutex);
    CHECK_FALSE(IsFree(mutex));
    lock.Unlock();
    CHECK(IsFree(mutex));
    lock.Lock();
    CHECK_FALSE(IsFree(mutex));
    lock.Unlock();
  }
  CHECK(IsFree(mutex));
}

SCENARIO("a recursive mutex is locked again by who holds it") {
  RecursiveMutex mutex;
  const MutexLock outer(mutex);
  const MutexLock inner(mutex);
}

SCENARIO("a wait ends when another thread has done what it waits for, and holds the mutex") {
  Mutex mutex;
  CondVar changed;
  bool done = false;
  const auto is_done = [&] { return done; };
  const auto finish = [&] {
    const MutexLock lock(mutex);
    done = true;
    changed.NotifyAll();
  };
  bool (*wait)(CondVar&, Mutex&, const std::function<bool()>&) = nullptr;
  WHEN("it has no bound") {
    wait = [](CondVar& of, Mutex& under, const std::function<bool()>& until) {
      of.Wait(under, until);
      return true;
    };
  }
  WHEN("its bound is the end of time") {
    wait = [](CondVar& of, Mutex& under, const std::function<bool()>& until) {
      return of.WaitFor(under, kForever, until);
    };
  }
  if (wait == nullptr) return;
  std::thread other;
  {
    const MutexLock lock(mutex);
    other = std::thread(finish);  // It waits for the mutex, which only the wait below releases.
    CHECK(wait(changed, mutex, is_done));
    CHECK(done);
    CHECK_FALSE(IsFree(mutex));
  }
  other.join();
}

SCENARIO("a wait for what does not happen ends in time, and holds the mutex") {
  Mutex mutex;
  CondVar changed;
  const MutexLock lock(mutex);
  const Nanos began = MonotonicNow();
  CHECK_FALSE(changed.WaitFor(mutex, 5 * kMillisecond, [] { return false; }));
  CHECK(MonotonicNow() - began >= 5 * kMillisecond);
  CHECK_FALSE(IsFree(mutex));
  CHECK_FALSE(changed.WaitFor(mutex, -kSecond, [] { return false; }));
  while (changed.WaitFor(mutex, kMillisecond)) {  // It may wake for no reason.
  }
}

}  // namespace sheaf
