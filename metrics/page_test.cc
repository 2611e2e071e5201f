// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "metrics/page.h"

#include <catch2/catch.hpp>
#include <memory>
#include <thread>
#include <vector>

#include "metrics/counter.h"

namespace sheaf::metrics {
namespace {

TEST_CASE("a bucket holds the values up to its bound, that one included") {
  CHECK(BucketOf(0) == 0);
  CHECK(BucketOf(1) == 0);
  CHECK(BucketOf(1024) == 0);
  CHECK(BucketOf(1025) == 1);
  for (size_t b = 0; b < kBoundCount; ++b) {
    CHECK(BucketOf(BucketBound(b)) == b);
    CHECK(BucketOf(BucketBound(b) + 1) == b + 1);
  }
  CHECK(BucketOf(UINT64_MAX) == kBucketCount - 1);
}

TEST_CASE("handles write the page they were made for") {
  auto page = std::make_unique<Page>();
  Counter counter(*page, CounterId::kTasksFailed);
  counter.Add();
  counter.AddUnderLock(4);
  CHECK(counter.value() == 5);
  CHECK(page->counters[2] == 5);
  Gauge gauge(*page, GaugeId::kRings);
  gauge.Set(7);
  gauge.Add(-9);
  CHECK(page->gauge(GaugeId::kRings) == -2);
  Histogram histogram(*page, HistogramId::kLeaseWait);
  histogram.Observe(2000);
  histogram.ObserveUnderLock(2000);
  histogram.Observe(-5);
  CHECK(page->histogram(HistogramId::kLeaseWait).buckets[1] == 2);
  CHECK(page->histogram(HistogramId::kLeaseWait).buckets[0] == 1);
  CHECK(page->histogram(HistogramId::kLeaseWait).sum == 4000);
}

TEST_CASE("Add loses nothing when several threads count") {
  auto page = std::make_unique<Page>();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&page] {
      Counter counter(*page, CounterId::kFramesWork);
      for (int i = 0; i < 10'000; ++i) counter.Add();
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(page->counter(CounterId::kFramesWork) == 40'000);
}

TEST_CASE("the page of a process segment is the one at its place") {
  std::vector<std::byte> segment(kMetricsOffset + kMetricsBytes + 64);
  std::byte* base = segment.data() + (64 - reinterpret_cast<uintptr_t>(segment.data()) % 64) % 64;
  PageOf(base).counter(CounterId::kTasksSubmitted) = 3;
  uint64_t word = 0;
  std::memcpy(&word, base + kMetricsOffset, sizeof(word));
  CHECK(word == 3);
}

}  // namespace
}  // namespace sheaf::metrics
