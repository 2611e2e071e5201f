// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What a node reports: the sums over the pages of its processes, those that have exited included,
// in the form that prometheus-cpp writes out. Thread-safe: the raylet's loop adds and removes
// pages, the endpoint's threads collect.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "base/mutex.h"
#include "metrics/page.h"
#include "prometheus/collectable.h"
#include "prometheus/metric_family.h"

namespace sheaf::metrics {

class Registry final : public prometheus::Collectable {
 public:
  // `version` is the label of sheaf_build_info.
  explicit Registry(std::string version);

  // `page` counts from now on. It stays mapped until Remove(page). Adding it twice counts it once.
  void Add(const Page& page);
  // The process of `page` has exited: its counters and histograms are kept as totals, its gauges
  // are forgotten. The page may be unmapped afterwards. Does nothing for a page that is not there.
  void Remove(const Page& page);

  // Adds `read()` to gauge `id`, in the catalog's stored unit (nanoseconds, ten-thousandths).
  // Called by the endpoint's threads under the registry's lock: it must be thread-safe, quick, and
  // call nothing of the registry.
  void SetCallback(GaugeId id, std::function<int64_t()> read);

  // The sum over all processes, as `sheaf status` shows it.
  uint64_t Value(CounterId id) const;
  int64_t Value(GaugeId id) const;

  std::vector<prometheus::MetricFamily> Collect() const override;

 private:
  struct Sums {
    std::array<uint64_t, kCounterCount> counters{};
    std::array<int64_t, kGaugeCount> gauges{};
    std::array<std::array<uint64_t, kBucketCount>, kHistogramCount> buckets{};
    std::array<uint64_t, kHistogramCount> histogram_sums{};
    void AddCounts(const Page& page);
    void AddGauges(const Page& page);
  };
  Sums Total() const;

  const std::string version_;
  mutable Mutex mutex_;
  absl::flat_hash_set<const Page*> pages_ ABSL_GUARDED_BY(mutex_);
  Sums exited_ ABSL_GUARDED_BY(mutex_);  // Gauges stay 0.
  std::array<std::function<int64_t()>, kGaugeCount> callbacks_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sheaf::metrics
