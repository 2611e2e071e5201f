// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// How code counts: `metrics::Counter finished(page, CounterId::kTasksFinished); finished.Add();`
// A handle is one pointer into a Page that must outlive it; copy it freely. Any thread may call
// anything here. Components take `metrics::Page&` in their constructor; a test gives them
// `metrics::Page page{}`.
#pragma once

#include <atomic>
#include <cstdint>

#include "metrics/page.h"

namespace sheaf::metrics {

class Counter {
 public:
  Counter(Page& page, CounterId id) : word_(&page.counter(id)) {}
  void Add(uint64_t n = 1) { word_->fetch_add(n, std::memory_order_relaxed); }
  // For hot paths that a lock serialises already: a plain add instead of a locked one. Never beside
  // an Add of another thread to the same counter.
  void AddUnderLock(uint64_t n = 1) {
    word_->store(word_->load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
  }
  uint64_t value() const { return word_->load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t>* word_;
};

class Gauge {
 public:
  Gauge(Page& page, GaugeId id) : word_(&page.gauge(id)) {}
  void Set(int64_t value) { word_->store(value, std::memory_order_relaxed); }
  void Add(int64_t n) { word_->fetch_add(n, std::memory_order_relaxed); }
  int64_t value() const { return word_->load(std::memory_order_relaxed); }

 private:
  std::atomic<int64_t>* word_;
};

class Histogram {
 public:
  Histogram(Page& page, HistogramId id) : words_(&page.histogram(id)) {}
  // `value` in nanoseconds or bytes, as the catalog says; negative ones count as 0 (a caller's
  // clock difference).
  void Observe(int64_t value) {
    const uint64_t v = value > 0 ? static_cast<uint64_t>(value) : 0;
    words_->buckets[BucketOf(v)].fetch_add(1, std::memory_order_relaxed);
    words_->sum.fetch_add(v, std::memory_order_relaxed);
  }
  // As Counter::AddUnderLock.
  void ObserveUnderLock(int64_t value) {
    const uint64_t v = value > 0 ? static_cast<uint64_t>(value) : 0;
    std::atomic<uint64_t>& bucket = words_->buckets[BucketOf(v)];
    bucket.store(bucket.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    words_->sum.store(words_->sum.load(std::memory_order_relaxed) + v, std::memory_order_relaxed);
  }

 private:
  HistogramWords* words_;
};

}  // namespace sheaf::metrics
