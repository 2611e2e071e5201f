// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What the raylet knows of a process without asking it: one segment per attached process, made by
// the raylet, written by that process alone, readable by the raylet also after its death.
//
//   0            4 KiB           64 KiB                 8 MiB + 64 KiB         9 MiB + 64 KiB
//   | ProcessPage | metrics page | hazard list (sparse) | task events (sparse) | profile (sparse) |
//
// metrics page: metrics/page.h. Hazard list: object_store/layout.h. Task events:
// telemetry/task_events.h. Profile, of 1 MiB: telemetry/profile_page.h.
// Crash: every field is a single word, so a death between two stores leaves each old or new, never
// torn. All are stored (release) before the user code that they speak of starts.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/ids.h"
#include "shm/segment.h"

namespace sheaf {

inline constexpr size_t kMetricsOffset = kPageBytes;
inline constexpr size_t kMetricsBytes = 64 * 1024 - kPageBytes;
inline constexpr size_t kHazardOffset = 64 * 1024;
inline constexpr size_t kHazardBytes = 8 * 1024 * 1024;
inline constexpr size_t kEventsOffset = kHazardOffset + kHazardBytes;
inline constexpr size_t kEventsBytes = 1024 * 1024;
inline constexpr size_t kProfileOffset = kEventsOffset + kEventsBytes;
inline constexpr size_t kProfileBytes = 1024 * 1024;
inline constexpr size_t kProcessSegmentBytes = kProfileOffset + kProfileBytes;

// What user code was started for, so that after a death only that counts as tried (started_calls.h
// writes it). Pushes to a process are numbered from 1 by their sender within a lease.
struct ProcessPage {
  // The last push that was started, of all senders that have no place in `callers`: of a task's
  // lease, which has one sender. A new lease starts at 0 again.
  std::atomic<uint64_t> started_push;
  std::atomic<uint64_t> started_lease;  // The lease that the numbers belong to.
  // The name of what runs or ran last, for log lines and out-of-memory reports; NUL-terminated,
  // best effort.
  char running[104];
  // An actor has many callers, which number their pushes each for itself.
  struct Caller {
    std::atomic<uint64_t> process;  // Packed; 0: free.
    std::atomic<uint64_t> started_push;
  };
  static constexpr size_t kCallers = 240;
  Caller callers[kCallers];

  // The last push of `caller` that was started. Where there are more callers than places it may be
  // another's number: more than was started, never less.
  uint64_t StartedOf(ProcessId caller) const;
};
static_assert(sizeof(ProcessPage) <= kPageBytes && std::atomic<uint64_t>::is_always_lock_free);

}  // namespace sheaf
