// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What this node remembers of calls that have ended, and of its machine, as an interface: telemetry
// reads it on a thread of its own; where time is virtual there is none.
#pragma once

#include <cstdint>
#include <functional>

#include "metrics/page.h"
#include "proto/raylet.pb.h"

namespace sheaf {

class TaskEvents {
 public:
  virtual ~TaskEvents() = default;
  // Calls `done`, later, on the raylet's thread, with at most `limit` rows (TASKS with `ended`) or
  // all (FUNCTIONS, SERIES).
  virtual void Ask(const proto::StateQuery& query, uint32_t limit,
                   std::function<void(proto::StateAnswer)> done) = 0;
  // Sets the gauges of the machine, and the counter of what was lost.
  virtual void PublishHost(metrics::Page& page) = 0;
};

}  // namespace sheaf
