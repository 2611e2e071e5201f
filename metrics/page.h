// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The counters of one process, in a page that the raylet can read while the process lives and after
// its death.
//
//   0          | counters[kCounterCount] | gauges[kGaugeCount] | histograms[kHistogramCount] |
//
// In a process segment it stands at kMetricsOffset; the raylet and the GCS have one in their own
// memory. A page of zeros is a valid page of which nothing was counted yet. Every word is written
// by its process alone (any thread), with relaxed atomics: nothing is published through a counter.
// Readers see each word old or new, never torn, and may see two words of different moments. A
// misbehaving writer can only make its own numbers wrong.
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "metrics/catalog.h"
#include "shm/process_segment.h"

namespace sheaf::metrics {

// Bucket b counts values in (2^(b + 9), 2^(b + 10)]; the first also what is smaller, the last all
// that is larger. Of nanoseconds that is 1 us to 69 s, of bytes 1 KiB to 64 GiB: one bit scan finds
// a bucket.
inline constexpr int kFirstBoundBits = 10;
inline constexpr size_t kBoundCount = 27;
inline constexpr size_t kBucketCount = kBoundCount + 1;

constexpr uint64_t BucketBound(size_t bucket) { return uint64_t{1} << (kFirstBoundBits + bucket); }
constexpr size_t BucketOf(uint64_t value) {
  const int bits = value <= 1 ? 0 : std::bit_width(value - 1);  // The smallest k with value <= 2^k.
  if (bits <= kFirstBoundBits) return 0;
  const size_t bucket = static_cast<size_t>(bits - kFirstBoundBits);
  return bucket < kBoundCount ? bucket : kBoundCount;
}

struct HistogramWords {
  std::atomic<uint64_t> buckets[kBucketCount];
  std::atomic<uint64_t> sum;
};

struct alignas(64) Page {
  std::atomic<uint64_t> counters[kCounterCount];
  std::atomic<int64_t> gauges[kGaugeCount];
  HistogramWords histograms[kHistogramCount];

  std::atomic<uint64_t>& counter(CounterId id) { return counters[static_cast<size_t>(id)]; }
  std::atomic<int64_t>& gauge(GaugeId id) { return gauges[static_cast<size_t>(id)]; }
  HistogramWords& histogram(HistogramId id) { return histograms[static_cast<size_t>(id)]; }
};
static_assert(sizeof(Page) <= kMetricsBytes);
static_assert(std::atomic<uint64_t>::is_always_lock_free &&
              std::atomic<int64_t>::is_always_lock_free);

// The page inside a mapped process segment (kProcessSegmentBytes from `segment`).
inline Page& PageOf(std::byte* segment) {
  return *reinterpret_cast<Page*>(segment + kMetricsOffset);
}
inline const Page& PageOf(const std::byte* segment) {
  return *reinterpret_cast<const Page*>(segment + kMetricsOffset);
}

// Part of the layout hash that processes compare when they attach.
inline constexpr uint64_t kPageLayout =
    kCounterCount << 32 | kGaugeCount << 16 | kHistogramCount << 8 | kBucketCount;

}  // namespace sheaf::metrics
