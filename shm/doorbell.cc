// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "shm/doorbell.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>

#include "base/failpoint.h"

namespace sheaf {
namespace {

void FutexWait(std::atomic<uint32_t>& word, uint32_t expected, Nanos timeout) {
  const timespec relative{timeout / kSecond, timeout % kSecond};
  // Errors are EAGAIN (changed already), EINTR, ETIMEDOUT: the caller looks at its rings in each
  // case.
  syscall(SYS_futex, &word, FUTEX_WAIT, expected, &relative, nullptr, 0);
}

void FutexWake(std::atomic<uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE, 1, nullptr, nullptr, 0);
}

Nanos Bounded(Nanos timeout) { return std::clamp<Nanos>(timeout, 0, kLongestSleep); }

}  // namespace

void WakeSleeper(Bell& bell, BellState was) {
  SHEAF_FAILPOINT("shm.wake");
  if (was == BellState::kAway) {
    Knock(bell);
  } else {
    FutexWake(bell.state);
  }
}

void RingAfterDeath(Bell& bell) {
  bell.state.exchange(static_cast<uint32_t>(BellState::kAwake), std::memory_order_seq_cst);
  FutexWake(bell.state);
  Knock(bell);
}

void SleepOnBell(Bell& bell, Nanos timeout) { SleepWhile(bell, BellState::kAsleep, timeout); }

void SleepWhile(Bell& bell, BellState seen, Nanos timeout) {
  FutexWait(bell.state, static_cast<uint32_t>(seen), Bounded(timeout));
}

void SleepOnKnock(Bell& bell, Nanos timeout) {
  FutexWait(bell.knock, 0, Bounded(timeout));
  bell.knock.exchange(
      0,
      std::memory_order_seq_cst);  // Reads the 1 that it clears, and so sees the frame behind it.
}

void Knock(Bell& bell) {
  bell.knock.store(1, std::memory_order_seq_cst);
  FutexWake(bell.knock);
}

void SpinStep(int step, int yield_every) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
  if (SpinStepYields(step, yield_every)) sched_yield();
}

}  // namespace sheaf
