// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "base/clock.h"

#include <ctime>

namespace sheaf {

Nanos MonotonicNow() {
  timespec now;
  clock_gettime(CLOCK_BOOTTIME, &now);
  return now.tv_sec * kSecond + now.tv_nsec;
}

Nanos UnixNow() {
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return now.tv_sec * kSecond + now.tv_nsec;
}

uint32_t CoarseUnixNowMs() {
  timespec now;
  clock_gettime(CLOCK_REALTIME_COARSE, &now);
  const auto ms = static_cast<uint32_t>(now.tv_sec * 1'000 + now.tv_nsec / kMillisecond);
  return ms != 0 ? ms : 1;
}

}  // namespace sheaf
