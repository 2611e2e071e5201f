// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// This process's runtime, between Init and Shutdown.
#pragma once

#include <atomic>
#include <memory>

#include "api/core.h"

namespace sheaf::inline v1::internal {

inline constinit std::atomic<Runtime*> current_runtime{nullptr};
// Counts runtimes: templates of an earlier one mean nothing to the next.
inline constinit std::atomic<uint64_t> runtime_generation{0};

[[noreturn]] void ThrowNotInitialized();

inline Runtime& TheRuntime() {
  Runtime* runtime = current_runtime.load(std::memory_order_acquire);
  if (runtime == nullptr) [[unlikely]]
    ThrowNotInitialized();
  return *runtime;
}

// From now on the process's runtime; null: none.
void SetRuntime(Runtime* runtime);

// The monotonic time after `timeout`.
inline Nanos DeadlineAfter(std::chrono::nanoseconds timeout) {
  if (timeout == std::chrono::nanoseconds::max()) return kNever;
  return Deadline(MonotonicNow(), timeout.count() < 0 ? 0 : timeout.count());
}

inline constexpr size_t kSmallValueBytes = 64 * 1024;  // Up to here values travel in frames.

}  // namespace sheaf::inline v1::internal
