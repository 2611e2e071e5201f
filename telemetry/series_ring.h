// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The last hour of a node's figures: a point every two seconds, of 4 bytes each, so that charts need
// no Prometheus. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/clock.h"
#include "telemetry/host_figures.h"

namespace sheaf::telemetry {

class SeriesRing {
 public:
  static constexpr Nanos kPeriod = 2 * kSecond;
  static constexpr size_t kPoints = 1800;

  // One for each period that has passed: those in which nobody looked are unknown.
  void Add(Nanos at, const HostSample& sample);

  // Points of one series, the oldest first.
  struct Points {
    Nanos first = 0;  // When the first was taken; the others follow at kPeriod.
    std::vector<float> values;
  };
  // Those from `from` on.
  Points Read(HostSeries series, Nanos from) const;

 private:
  std::vector<HostSample> ring_;  // Grows to kPoints, then turns.
  size_t next_ = 0;               // Where the next point goes, once it is full.
  int64_t last_ = 0;              // The number of the last one's period.
};

}  // namespace sheaf::telemetry
