// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// GET /api/v0/logs, /api/v0/logs/file and /api/v0/logs/stream, as Ray 2.60 has them, of all nodes.
#pragma once

#include "base/ids.h"
#include "dashboard/asker.h"
#include "dashboard/logs/log_follower.h"
#include "http/router.h"

namespace sheaf::dashboard {

// `here`: the node that is asked, and meant where a request names none. `asker` and `follower`
// outlive the router's server.
void AddLogRoutes(http::Router& router, Asker& asker, LogFollower& follower, NodeNumber here);

}  // namespace sheaf::dashboard
