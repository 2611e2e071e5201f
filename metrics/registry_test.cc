// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "metrics/registry.h"

#include <catch2/catch.hpp>
#include <memory>

#include "metrics/counter.h"

namespace sheaf::metrics {
namespace {

const prometheus::MetricFamily& Family(const std::vector<prometheus::MetricFamily>& families,
                                       const std::string& name) {
  for (const auto& family : families) {
    if (family.name == name) return family;
  }
  FAIL("no family " << name);
  return families.front();
}

SCENARIO("a node's figures are the sums over its processes, the dead included") {
  Registry registry("1.2.3");
  auto a = std::make_unique<Page>();
  auto b = std::make_unique<Page>();
  registry.Add(*a);
  registry.Add(*a);
  registry.Add(*b);
  Counter(*a, CounterId::kTasksFinished).Add(3);
  Counter(*b, CounterId::kTasksFinished).Add(4);
  Gauge(*a, GaugeId::kOwnedObjects).Set(10);
  Gauge(*b, GaugeId::kOwnedObjects).Set(20);
  Histogram(*b, HistogramId::kTaskLatency).Observe(1'000'000);
  CHECK(registry.Value(CounterId::kTasksFinished) == 7);
  CHECK(registry.Value(GaugeId::kOwnedObjects) == 30);

  WHEN("one process dies and its page goes") {
    registry.Remove(*b);
    registry.Remove(*b);
    b.reset();
    THEN("its counters stay in the sums, its gauges do not") {
      CHECK(registry.Value(CounterId::kTasksFinished) == 7);
      CHECK(registry.Value(GaugeId::kOwnedObjects) == 10);
      const auto families = registry.Collect();
      CHECK(Family(families, "sheaf_task_latency_seconds").metric[0].histogram.sample_count == 1);
    }
  }
}

TEST_CASE("series of one name make one family, told apart by their label") {
  Registry registry("1");
  Page page{};
  registry.Add(page);
  Counter(page, CounterId::kTasksRetried).Add(2);
  const auto families = registry.Collect();
  const prometheus::MetricFamily& tasks = Family(families, "sheaf_tasks_total");
  CHECK(tasks.type == prometheus::MetricType::Counter);
  REQUIRE(tasks.metric.size() == 5);
  CHECK(tasks.metric[3].label[0].name == "state");
  CHECK(tasks.metric[3].label[0].value == "retried");
  CHECK(tasks.metric[3].counter.value == 2);
}

TEST_CASE("histograms are cumulative and in seconds") {
  Registry registry("1");
  Page page{};
  registry.Add(page);
  Histogram latency(page, HistogramId::kTaskLatency);
  latency.Observe(1'000);            // First bucket.
  latency.Observe(2'000);            // Second.
  latency.Observe(500'000'000'000);  // Beyond the last bound.
  const auto families = registry.Collect();
  const auto& histogram = Family(families, "sheaf_task_latency_seconds").metric[0].histogram;
  REQUIRE(histogram.bucket.size() == kBoundCount);
  CHECK(histogram.bucket[0].cumulative_count == 1);
  CHECK(histogram.bucket[0].upper_bound == Approx(1.024e-6));
  CHECK(histogram.bucket[1].cumulative_count == 2);
  CHECK(histogram.bucket.back().cumulative_count == 2);
  CHECK(histogram.sample_count == 3);
  CHECK(histogram.sample_sum == Approx(500.000003));
}

TEST_CASE("callbacks and fixed-point gauges appear in their unit") {
  Registry registry("9.9");
  Page page{};
  registry.Add(page);
  Gauge(page, GaugeId::kCpuTotal).Set(25'000);
  registry.SetCallback(GaugeId::kUptime, [] { return int64_t{1'500'000'000}; });
  const auto families = registry.Collect();
  CHECK(Family(families, "sheaf_cpus").metric[0].gauge.value == Approx(2.5));
  CHECK(Family(families, "sheaf_uptime_seconds").metric[0].gauge.value == Approx(1.5));
  const auto& build = Family(families, "sheaf_build_info").metric[0];
  CHECK(build.gauge.value == 1);
  CHECK(build.label[0].value == "9.9");
}

}  // namespace
}  // namespace sheaf::metrics
