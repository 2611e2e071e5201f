// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// GET /api/v0/logs, /api/v0/logs/file and /api/v0/logs/stream, as Ray 2.60 has them, of the node
// that the dashboard stands on.
#pragma once

#include <string>

#include "dashboard/asker.h"
#include "dashboard/log_follower.h"
#include "http/router.h"

namespace sheaf::dashboard {

// Where a node's processes write, and which node it is.
struct LogPlace {
  std::string directory;
  uint32_t node = 0;
};

// `asker` and `follower` outlive the router's server.
void AddLogRoutes(http::Router& router, Asker& asker, LogFollower& follower, const LogPlace& place);

}  // namespace sheaf::dashboard
