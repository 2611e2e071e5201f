// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What the threads of a node did in a span of time, as bars that a page can draw: a bar for each call
// of a millisecond or more, and columns for shorter ones, which say how busy the thread was there. So
// a lane has a bounded size however many calls there were. Pure; one thread.
//
// A lane's bars, 12 bytes each, little endian:
//   uint32 begin    microseconds behind the base of the digest
//   uint32 length   microseconds
//   uint16 name     the place of the function's name among those of the digest, from 0
//   uint8  kind     BarKind
//   uint8  share    of a column: how much of it calls took, 255 is all of it; else 255
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/flat_hash_map.h"
#include "base/clock.h"
#include "base/ids.h"
#include "proto/raylet.pb.h"
#include "telemetry/task_events.h"
#include "telemetry/task_history.h"

namespace sheaf::telemetry {

enum class BarKind : uint8_t { kFinished = 0, kFailed = 1, kCancelled = 2, kColumn = 3 };
inline constexpr size_t kBarBytes = 12;
inline constexpr size_t kMostLanes = 32;
inline constexpr size_t kMostBars = 200;           // Of a lane.
inline constexpr Nanos kDrawnFrom = kMillisecond;  // Shorter calls are columns.
inline constexpr Nanos kBarSpan = 3600 * kSecond;  // So long before a digest is its base.

class CallLanes {
 public:
  // From `from` to `to`, monotonic. What calls did before that is not counted as busy.
  CallLanes(Nanos from, Nanos to) : from_(from), to_(to) {}

  void Add(const TaskEvent& event, const TaskHistory::Place& place);
  void AddRunning(const RunningCall& call, uint16_t thread, const TaskHistory::Place& place);

  // How much time threads spent in each function within the span, by function.
  using Busy = std::map<TaskHistory::FunctionKey, Nanos>;
  const Busy& busy() const { return busy_; }
  // Writes the busiest lanes, at most `most`, their names, and how many were left out. `to_wall`:
  // wall time less monotonic time.
  void Write(size_t most, Nanos to_wall, proto::NodeDigest& digest) const;

 private:
  struct Call {
    Nanos begin = 0, end = 0;
    const std::string* function = nullptr;  // Among the keys of busy_.
    uint16_t weight = 1;
    BarKind kind = BarKind::kFinished;
  };
  struct Lane {
    int32_t os_pid = 0;
    Nanos busy = 0;
    std::vector<Call> calls;
    std::vector<std::pair<Nanos, const std::string*>> running;
  };
  class Names;
  const std::string* Spend(const TaskHistory::Place& place, Lane& lane, Nanos begin, Nanos end,
                           int64_t weight);
  void WriteBars(const Lane& lane, Names& names, std::string& bars) const;

  const Nanos from_, to_;
  Busy
      busy_;  // Calls point at its keys, which therefore must not move, as those of a btree_map do.
  absl::btree_map<std::pair<ProcessId, uint16_t>, Lane> lanes_;
};

}  // namespace sheaf::telemetry
