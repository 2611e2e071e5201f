// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Ends the worker that is about to take the machine's memory, before the kernel picks a victim of
// its own. Workers are judged by memory that their death would give back (anonymous pages of theirs
// and of their children, who go with them), never by RSS, which counts the arena. Who it was, and
// the figures, are told in the Death that its owner sees.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "proto/common.pb.h"

namespace sheaf {

struct MemoryUse {
  int64_t limit_bytes = 0;      // Of the machine or the control group, the tighter; 0: not known.
  int64_t available_bytes = 0;  // Without anybody being killed.
  uint64_t kernel_kills = 0;    // Processes that the kernel has ended for want of memory, so far.
};
struct WorkerMemory {
  ProcessId process;
  int64_t anonymous_bytes = 0;  // With its descendants'. 0: it is about to end.
  Nanos started_at = 0;
  bool retriable = true;  // Its work is run again elsewhere.
  std::string running;    // For people; may be empty.
};
struct MemoryVerdict {
  ProcessId victim;
  std::string evidence;
};

struct MemoryWatchOptions {
  double limit = 0.95;  // A worker goes when more of the memory than this is used. 0: never.
  int64_t least_victim_bytes = 64 << 20;  // Smaller workers are not the cause.
  Nanos pause = 500 * kMillisecond;       // After a kill: its memory needs time to come back.
};

// Who has to go, if anybody. Of the retriable workers the largest, of those within a tenth of it
// the newest (it has the least to lose); of the others only if none of the retriable ones is large
// enough to matter.
std::optional<MemoryVerdict> JudgeMemory(const MemoryWatchOptions& options, const MemoryUse& use,
                                         std::span<const WorkerMemory> workers);

class MemoryReader {
 public:
  virtual ~MemoryReader() = default;
  virtual MemoryUse ReadUse() = 0;                      // Cheap: each Look.
  virtual std::vector<WorkerMemory> ReadWorkers() = 0;  // Only when the memory is short.
};

// One thread.
class MemoryWatch {
 public:
  // `kill` ends a worker and reports this death. References outlive the watch.
  MemoryWatch(MemoryWatchOptions options, const Clock& clock, MemoryReader& reader,
              std::function<void(ProcessId, const proto::Death&)> kill)
      : options_(options), clock_(clock), reader_(reader), kill_(std::move(kill)) {}

  // Looks once, and kills at most one worker: not for a while after the kernel or this watch has
  // killed, and only when the memory was short at two looks between which no worker ended. What the
  // ended had may be on its way back. Returns when to look again: sooner, the shorter the memory
  // is.
  Nanos Look();

 private:
  bool IsConfirmed(std::span<const WorkerMemory> workers);

  const MemoryWatchOptions options_;
  const Clock& clock_;
  MemoryReader& reader_;
  const std::function<void(ProcessId, const proto::Death&)> kill_;
  Nanos not_before_ = 0;
  uint64_t kernel_kills_ = 0;
  std::vector<ProcessId> seen_short_;  // The workers of the last look, at which memory was short.
};

}  // namespace sheaf
