// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What user code counts (sheaf.util.metrics): each process writes one file into a directory of the
// session, and the node's endpoint serves them all. Files are untrusted: what does not parse is
// left out. The name of a file is its process's id, which becomes the label "pid".
//
//   F <tab> counter | gauge | histogram <tab> NAME <tab> HELP        a family; its series follow
//   S <tab> VALUE [<tab> LABEL <tab> VALUE]...                       of a counter or gauge
//   H <tab> SUM <tab> BOUND:COUNT,BOUND:COUNT,...,inf:COUNT [<tab> LABEL <tab> VALUE]...
//
// Counts of buckets are cumulative. Of processes that have ended gauges are not served, and the rest for
// kServedAfterEnd, so that the last values are scraped; then their files are removed, as a node that
// starts and ends workers for months would have more than it serves.
//
// A tag whose values never end must not fill the memory of who scrapes: a metric has at most
// kMaxSeriesOfMetric series and a node kMaxUserSeries. What comes later is served together, as one
// series of its metric with the label overflow="true" alone: counters and histograms as sums, so that
// totals stay right, gauges as a sum, too.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "prometheus/metric_family.h"

namespace sheaf::metrics {

inline constexpr size_t kMaxUserFileBytes = 1 << 20;
inline constexpr size_t kMaxUserFiles = 1024;
inline constexpr std::chrono::minutes kServedAfterEnd{10};  // Since the process wrote its file.
inline constexpr size_t kMaxSeriesOfMetric = 1'000;
inline constexpr size_t kMaxUserSeries = 10'000;

// Which series are served by themselves: those that came first, as long as they are there. One that
// was served with others once stays so, as a counter that appears with a past would look like a jump.
// Pure; not thread-safe.
class SeriesLimit {
 public:
  // Whether the series `key` (a hash) of `metric` is served by itself.
  bool Admit(const std::string& metric, uint64_t key);
  // All were asked about: those that were not are forgotten. The metrics that came over a limit since
  // the last call, each once.
  std::vector<std::string> EndOfRound();

 private:
  struct Series {
    bool admitted = false;
    uint64_t round = 0;  // The last in which it was there.
  };
  struct Metric {
    absl::flat_hash_map<uint64_t, Series> series;
    size_t admitted = 0;
    bool is_over = false;
  };
  absl::flat_hash_map<std::string, Metric> metrics_;
  size_t admitted_ = 0;  // Of all metrics.
  uint64_t round_ = 1;
  std::vector<std::string> came_over_;
};

// Families by name; a name belongs to the kind that came first.
struct UserFamily : prometheus::MetricFamily {
  std::optional<prometheus::ClientMetric> overflow;
};
using UserFamilies = std::map<std::string, UserFamily>;

// Adds what one file holds.
void ReadUserMetrics(std::string_view content, std::string_view pid, bool with_gauges,
                     SeriesLimit& limit, UserFamilies* families);

// Not thread-safe.
class UserMetrics {
 public:
  // All files of the directory, which need not exist. Logs which metrics have too many series, and
  // removes old files of processes that have ended.
  std::vector<prometheus::MetricFamily> Collect(const std::string& directory);

 private:
  void Retire(std::string_view content, const std::string& pid);

  SeriesLimit limit_;
  // Of removed files, what was served with others: that sum must not fall.
  UserFamilies retired_;
};

}  // namespace sheaf::metrics
