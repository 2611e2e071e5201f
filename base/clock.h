// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Monotonic time, as an interface: GCS, raylet and owner logic run in tests/sim under virtual time.
// Wall time is only ever a label in logs. The clock goes on while the machine sleeps
// (CLOCK_BOOTTIME): a lease that the others have given up in the meantime is over here too. A
// virtual machine that was stopped from outside may not know it; its words are refused by
// incarnation and by term.
#pragma once

#include <pthread.h>

#include <cstdint>

namespace sheaf {

using Nanos = int64_t;  // Of the monotonic clock, or a duration.
inline constexpr Nanos kMicrosecond = 1'000;
inline constexpr Nanos kMillisecond = 1'000'000;
inline constexpr Nanos kSecond = 1'000'000'000;
inline constexpr Nanos kForever = INT64_MAX;

// `now` + `duration` without overflow; both >= 0.
constexpr Nanos Deadline(Nanos now, Nanos duration) {
  return duration > kForever - now ? kForever : now + duration;
}

class Clock {
 public:
  virtual ~Clock() = default;
  virtual Nanos Now() const = 0;
  // Wall time for listings, in milliseconds modulo 2^32, never 0; some milliseconds old, for a fifth
  // of the cost of Now(). Where time is virtual there is no other.
  virtual uint32_t CoarseUnixMs() const {
    return static_cast<uint32_t>(Now() / kMillisecond) | uint32_t{1};
  }
};

Nanos MonotonicNow();
Nanos UnixNow();             // Wall time since 1970: a label for people, never compared.
uint32_t CoarseUnixNowMs();  // Clock::CoarseUnixMs of this machine.

// How long processors have worked for this process, and for one of its threads, which lives.
Nanos ProcessCpuTime();
Nanos ThreadCpuTime(pthread_t thread);

class MonotonicClock final : public Clock {
 public:
  Nanos Now() const override { return MonotonicNow(); }
  uint32_t CoarseUnixMs() const override { return CoarseUnixNowMs(); }
};

}  // namespace sheaf
