// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "metrics/registry.h"

#include <string_view>
#include <utility>

namespace sheaf::metrics {
namespace {

uint64_t Read(const std::atomic<uint64_t>& word) { return word.load(std::memory_order_relaxed); }

// Appends one series, to the last family when it has the same name.
prometheus::ClientMetric& AddSeries(std::vector<prometheus::MetricFamily>& families,
                                    const Description& row, prometheus::MetricType type) {
  if (families.empty() || families.back().name != row.name) {
    families.push_back({row.name, row.help, type, {}});
  }
  prometheus::ClientMetric& metric = families.back().metric.emplace_back();
  if (row.label[0] != '\0') metric.label.push_back({row.label, row.label_value});
  return metric;
}

}  // namespace

Registry::Registry(std::string version) : version_(std::move(version)) {}

void Registry::Sums::AddCounts(const Page& page) {
  for (size_t i = 0; i < kCounterCount; ++i) counters[i] += Read(page.counters[i]);
  for (size_t h = 0; h < kHistogramCount; ++h) {
    for (size_t b = 0; b < kBucketCount; ++b) buckets[h][b] += Read(page.histograms[h].buckets[b]);
    histogram_sums[h] += Read(page.histograms[h].sum);
  }
}

void Registry::Sums::AddGauges(const Page& page) {
  for (size_t i = 0; i < kGaugeCount; ++i) {
    // Unsigned: a process that scribbles must not make the sum overflow undefinedly.
    gauges[i] =
        static_cast<int64_t>(static_cast<uint64_t>(gauges[i]) +
                             static_cast<uint64_t>(page.gauges[i].load(std::memory_order_relaxed)));
  }
}

void Registry::Add(const Page& page) {
  const MutexLock lock(mutex_);
  pages_.insert(&page);
}

void Registry::Remove(const Page& page) {
  const MutexLock lock(mutex_);
  if (pages_.erase(&page) != 0) exited_.AddCounts(page);
}

void Registry::SetCallback(GaugeId id, std::function<int64_t()> read) {
  const MutexLock lock(mutex_);
  callbacks_[static_cast<size_t>(id)] = std::move(read);
}

Registry::Sums Registry::Total() const {
  const MutexLock lock(mutex_);
  Sums total = exited_;
  for (const Page* page : pages_) {
    total.AddCounts(*page);
    total.AddGauges(*page);
  }
  for (size_t i = 0; i < kGaugeCount; ++i) {
    if (callbacks_[i]) total.gauges[i] += callbacks_[i]();
  }
  return total;
}

uint64_t Registry::Value(CounterId id) const { return Total().counters[static_cast<size_t>(id)]; }
int64_t Registry::Value(GaugeId id) const { return Total().gauges[static_cast<size_t>(id)]; }

std::vector<prometheus::MetricFamily> Registry::Collect() const {
  const Sums total = Total();
  std::vector<prometheus::MetricFamily> families;
  for (size_t i = 0; i < kCounterCount; ++i) {
    const Description& row = Counters()[i];
    AddSeries(families, row, prometheus::MetricType::Counter).counter.value =
        static_cast<double>(total.counters[i]) * row.scale;
  }
  for (size_t i = 0; i < kGaugeCount; ++i) {
    const Description& row = Gauges()[i];
    prometheus::ClientMetric& metric = AddSeries(families, row, prometheus::MetricType::Gauge);
    metric.gauge.value = static_cast<double>(total.gauges[i]) * row.scale;
    if (i == static_cast<size_t>(GaugeId::kBuildInfo)) {
      metric.gauge.value = 1;
      metric.label.push_back({"version", version_});
    }
  }
  for (size_t i = 0; i < kHistogramCount; ++i) {
    const Description& row = Histograms()[i];
    prometheus::ClientMetric::Histogram& histogram =
        AddSeries(families, row, prometheus::MetricType::Histogram).histogram;
    uint64_t count = 0;
    for (size_t b = 0; b < kBoundCount; ++b) {
      count += total.buckets[i][b];
      histogram.bucket.push_back({count, static_cast<double>(BucketBound(b)) * row.scale});
    }
    histogram.sample_count = count + total.buckets[i][kBoundCount];
    histogram.sample_sum = static_cast<double>(total.histogram_sums[i]) * row.scale;
  }
  return families;
}

}  // namespace sheaf::metrics
