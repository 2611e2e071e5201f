// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// GET /api/v0/{actors,jobs,nodes,objects,placement_groups,tasks,workers}, their summaries, and
// /api/v0/tasks/timeline, as Ray 2.60 has them.
#pragma once

#include "dashboard/asker.h"
#include "http/router.h"

namespace sheaf::dashboard {

// `asker` outlives the router's server.
void AddStateRoutes(http::Router& router, Asker& asker);

}  // namespace sheaf::dashboard
