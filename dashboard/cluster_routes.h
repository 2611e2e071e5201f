// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What Ray's clients, and probes, ask before all else: GET /api/version, /api/cluster_status,
// /api/healthz, /api/local_raylet_healthz and /api/gcs_healthz.
#pragma once

#include <string>

#include "dashboard/asker.h"
#include "http/router.h"

namespace sheaf::dashboard {

// `asker` outlives the router's server. `session`: the node's session directory.
void AddClusterRoutes(http::Router& router, Asker& asker, const std::string& session);

}  // namespace sheaf::dashboard
