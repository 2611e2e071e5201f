// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What nodes have and use, and what waits for more, in the form of Ray's autoscaler.
#pragma once

#include <string>

#include "proto/raylet.pb.h"

namespace sheaf::dashboard {

// A JSON object of loadMetricsReport and autoscalerReport. `nodes`: answers NODES, `demand`: DEMAND.
std::string ClusterStatusJson(const proto::StateAnswer& nodes, const proto::StateAnswer& demand);
// The same demand as Sheaf's own route has it, with the selectors.
std::string DemandJson(const proto::StateAnswer& demand);

}  // namespace sheaf::dashboard
