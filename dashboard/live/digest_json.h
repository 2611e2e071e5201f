// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Digests of nodes as a page draws them.
#pragma once

#include <string>

#include "base/clock.h"
#include "proto/raylet.pb.h"

namespace sheaf::dashboard {

// {"unix_ms","period_ms","nodes","late","functions","names","lanes","events"}: functions are those of
// all nodes, the busiest first; names are what lanes and what runs in them speak of; bars are base64
// of telemetry/call_lanes.h. `events`: an answer to EVENTS.
std::string DigestJson(const proto::StateAnswer& digests, const proto::StateAnswer& events,
                       Nanos period);

}  // namespace sheaf::dashboard
