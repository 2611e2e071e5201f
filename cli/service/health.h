// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The health of a node over HTTP, for probes as Kubernetes makes them: 200 and "success", or 503
// and what does not work.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "cli/service/pulse.h"
#include "http/router.h"
#include "http/server.h"

namespace sheaf::cli {

// GET /api/healthz (Pulse::Node), /api/local_raylet_healthz and /api/gcs_healthz, which everybody
// may ask. `pulse` outlives the router.
http::Router HealthRoutes(const Pulse& pulse);

// A port with nothing else. `address`: numeric, where the node listens for others; `port` not 0.
// kInvalidArgument: no numeric address. kUnavailable: the port is taken.
absl::StatusOr<std::unique_ptr<http::Server>> ServeHealth(const std::string& address, uint16_t port,
                                                          const Pulse& pulse);

}  // namespace sheaf::cli
