// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What the raylet knows of a process without asking it: one segment per attached process, made by
// the raylet, written by that process alone, readable by the raylet also after its death.
//
//   0            4 KiB           64 KiB                      64 KiB + 8 MiB
//   | ProcessPage | metrics page | hazard list (sparse)       |
//
// metrics page: metrics/page.h. Hazard list: object_store/layout.h.
// Crash: every field is a single word, so a death between two stores leaves each old or new, never
// torn.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "shm/segment.h"

namespace sheaf {

inline constexpr size_t kMetricsOffset = kPageBytes;
inline constexpr size_t kMetricsBytes = 64 * 1024 - kPageBytes;
inline constexpr size_t kHazardOffset = 64 * 1024;
inline constexpr size_t kHazardBytes = 8 * 1024 * 1024;
inline constexpr size_t kProcessSegmentBytes = kHazardOffset + kHazardBytes;

struct ProcessPage {
  // The number of the last push that user code was started for, stored (release) before it starts.
  // Pushes to a process are numbered from 1 by their sender within a lease; a new lease starts at 0
  // again. After a death only pushes up to here count as tried.
  std::atomic<uint64_t> started_push;
  std::atomic<uint64_t> started_lease;  // The lease that `started_push` belongs to.
  // The name of what runs or ran last, for log lines and out-of-memory reports; NUL-terminated,
  // best effort.
  char running[104];
};
static_assert(sizeof(ProcessPage) <= kPageBytes && std::atomic<uint64_t>::is_always_lock_free);

}  // namespace sheaf
