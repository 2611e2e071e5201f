// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// From flags, environment and machine to what a node is made with.
#pragma once

#include "absl/status/statusor.h"
#include "base/config.h"
#include "cli/start.h"
#include "metrics/http_endpoint.h"
#include "raylet/raylet_process.h"

namespace sheaf::cli {

struct NodePlan {
  Settings settings;
  RayletProcessOptions raylet;  // Paths, callbacks and the metrics URL are still open.
  metrics::EndpointOptions metrics;
};

// kInvalidArgument: a flag or variable that cannot be read; the text names it and says what is
// wanted.
absl::StatusOr<NodePlan> PlanNode(const NodeFlags& flags, const Settings& settings);

}  // namespace sheaf::cli
