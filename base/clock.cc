// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "base/clock.h"

#include <ctime>

namespace sheaf {
namespace {

Nanos Read(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return now.tv_sec * kSecond + now.tv_nsec;
}

}  // namespace

Nanos MonotonicNow() { return Read(CLOCK_BOOTTIME); }

Nanos UnixNow() { return Read(CLOCK_REALTIME); }

Nanos ProcessCpuTime() { return Read(CLOCK_PROCESS_CPUTIME_ID); }

Nanos ThreadCpuTime(pthread_t thread) {
  clockid_t clock = 0;
  return pthread_getcpuclockid(thread, &clock) == 0 ? Read(clock) : 0;
}

uint32_t CoarseUnixNowMs() {
  timespec now;
  clock_gettime(CLOCK_REALTIME_COARSE, &now);
  const auto ms = static_cast<uint32_t>(now.tv_sec * 1'000 + now.tv_nsec / kMillisecond);
  return ms != 0 ? ms : 1;
}

}  // namespace sheaf
