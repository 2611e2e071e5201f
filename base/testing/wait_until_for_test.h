// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// For tests: waits for what another thread or process does.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <thread>

namespace sheaf {

// Returns as soon as `condition` says true; false: it did not within `bound`.
inline bool WaitUntil(std::chrono::nanoseconds bound, const std::function<bool()>& condition) {
  const auto end = std::chrono::steady_clock::now() + bound;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}
// Of Nanos (base/clock.h), without its header: with the public API its names are ambiguous.
inline bool WaitUntil(int64_t bound, const std::function<bool()>& condition) {
  return WaitUntil(std::chrono::nanoseconds(bound), condition);
}

}  // namespace sheaf
