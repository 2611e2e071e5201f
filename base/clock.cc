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

}  // namespace sheaf
