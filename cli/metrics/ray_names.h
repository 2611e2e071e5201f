// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Figures of a node once more, under the names that boards made for Ray ask for
// (--metrics-ray-names): ray_tasks, ray_node_cpu_utilization and so on, as docs/cli.md lists them. Pure.
#pragma once

#include <string>
#include <vector>

#include "prometheus/metric_family.h"
#include "proto/raylet.pb.h"

namespace sheaf::cli {

// So many functions have their own ray_tasks, those with the most calls; the others are "others".
inline constexpr size_t kMostRayTaskNames = 200;

// Labels of all series: a board picks clusters by the first, and machines by the others.
struct RayLabels {
  std::string session_name;
  std::string address;  // HOST:PORT of this node; its host is the label "ip".
  bool is_head = false;
};

// `own`: what Registry::Collect gave. `functions`: an answer to FUNCTIONS of this node alone.
std::vector<prometheus::MetricFamily> RayFamilies(const std::vector<prometheus::MetricFamily>& own,
                                                  const proto::StateAnswer& functions,
                                                  const RayLabels& labels);

}  // namespace sheaf::cli
