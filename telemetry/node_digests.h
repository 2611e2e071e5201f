// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The part of a node's digest that speaks of calls and of the machine. Not thread-safe.
//
// Who looks asks again and again, and says up to where it knows (DigestCursor); nodes keep nothing of
// those that look, so there is nothing to end when they go.
#pragma once

#include <cstdint>

#include "absl/container/btree_map.h"
#include "base/clock.h"
#include "proto/raylet.pb.h"
#include "telemetry/call_lanes.h"
#include "telemetry/host_figures.h"
#include "telemetry/task_history.h"

namespace sheaf::telemetry {

class NodeDigests {
 public:
  static constexpr size_t kFunctionsShown = 16;
  static constexpr Nanos kFirstSpan = 60 * kSecond;  // Of who has no cursor.
  static constexpr size_t kMostCalls = 20'000;       // That one digest is made of, the last ones.

  // Fills `digest` as `query` asks, at `now`. `to_wall`: wall time less monotonic time.
  void Fill(const proto::StateQuery& query, TaskHistory& history, const HostSample& host, Nanos now,
            Nanos to_wall, proto::NodeDigest& digest);

 private:
  using Sums = absl::btree_map<TaskHistory::FunctionKey, FunctionFigures>;
  void Count(const Sums& sums, Nanos now);
  void AddFunctions(const Sums& sums, const CallLanes::Busy& busy, Nanos span,
                    proto::NodeDigest& digest) const;

  // How many calls of each function have ended, and when that was counted; the last two times, as
  // several may ask at about the same time.
  struct Counted {
    Nanos at = 0;
    absl::btree_map<TaskHistory::FunctionKey, uint64_t> ended;
  };
  static constexpr Nanos kShortestSpan = 200 * kMillisecond;
  Counted before_, last_;
};

}  // namespace sheaf::telemetry
