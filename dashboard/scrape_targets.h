// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Where Prometheus finds the metrics of all nodes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "proto/gcs.pb.h"
#include "proto/raylet.pb.h"

namespace sheaf::dashboard {

// One node.
struct ScrapeTarget {
  uint32_t node = 0;
  std::string metrics_url;
  std::string address;  // That other nodes dial.
  std::string type;     // As NodeType.
};

// The same of a row of a listing, and of what the GCS says of a node.
ScrapeTarget TargetOf(const proto::NodeRow& node);
ScrapeTarget TargetOf(const proto::NodeInfo& node);

// A JSON array as file_sd_configs and http_sd_configs of Prometheus read it: a target of each node
// that serves metrics, with the labels cluster (the address of `head`), node, type and head.
std::string ScrapeTargetsJson(const std::vector<ScrapeTarget>& targets, uint32_t head);

}  // namespace sheaf::dashboard
