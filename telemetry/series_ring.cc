// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "telemetry/series_ring.h"

#include <algorithm>
#include <limits>

namespace sheaf::telemetry {

void SeriesRing::Add(Nanos at, const HostSample& sample) {
  const int64_t period = at / kPeriod;
  if (!ring_.empty() && period <= last_) return;
  HostSample unknown;
  unknown.fill(std::numeric_limits<float>::quiet_NaN());
  const int64_t passed = ring_.empty() ? 1 : period - last_;
  for (int64_t i = std::min<int64_t>(passed, kPoints); i > 0; --i) {
    const HostSample& point = i == 1 ? sample : unknown;
    if (ring_.size() < kPoints) {
      ring_.push_back(point);
    } else {
      ring_[next_] = point;
      next_ = (next_ + 1) % kPoints;
    }
  }
  last_ = period;
}

SeriesRing::Points SeriesRing::Read(HostSeries series, Nanos from) const {
  Points points;
  if (ring_.empty()) return points;
  const auto size = static_cast<int64_t>(ring_.size());
  const int64_t oldest = last_ - size + 1;
  const int64_t first =
      std::clamp(from > 0 ? (from + kPeriod - 1) / kPeriod : 0, oldest, last_ + 1);
  points.first = first * kPeriod;
  for (int64_t period = first; period <= last_; ++period) {
    const size_t index = (next_ + static_cast<size_t>(period - oldest)) % ring_.size();
    points.values.push_back(ring_[index][static_cast<size_t>(series)]);
  }
  return points;
}

}  // namespace sheaf::telemetry
