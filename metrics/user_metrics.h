// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What user code counts (sheaf.util.metrics): each process writes one file into a directory of the
// session, and the node's endpoint serves them all. Files are untrusted: what does not parse is
// left out. The name of a file is its process's id, which becomes the label "pid".
//
//   F <tab> counter | gauge | histogram <tab> NAME <tab> HELP        a family; its series follow
//   S <tab> VALUE [<tab> LABEL <tab> VALUE]...                       of a counter or gauge
//   H <tab> SUM <tab> BOUND:COUNT,BOUND:COUNT,...,inf:COUNT [<tab> LABEL <tab> VALUE]...
//
// Counts of buckets are cumulative. Gauges of processes that have ended are not served.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "prometheus/metric_family.h"

namespace sheaf::metrics {

inline constexpr size_t kMaxUserFileBytes = 1 << 20;
inline constexpr size_t kMaxUserFiles = 1024;

// Families by name; a name belongs to the kind that came first.
using UserFamilies = std::map<std::string, prometheus::MetricFamily>;

// Adds what one file holds.
void ReadUserMetrics(std::string_view content, std::string_view pid, bool with_gauges,
                     UserFamilies* families);
// All files of the directory, which need not exist.
std::vector<prometheus::MetricFamily> CollectUserMetrics(const std::string& directory);

}  // namespace sheaf::metrics
