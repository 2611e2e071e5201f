// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Charts of the last hour without a Prometheus.
#pragma once

#include "dashboard/asker.h"
#include "http/router.h"

namespace sheaf::dashboard {

// GET /api/sheaf/series?name=NAME,...&from=UNIX_MS&node=NODE_ID: what the machines of nodes did, a
// point every two seconds, null where it is not known, and what their processes use now. `asker`
// outlives the router.
void AddSeriesRoutes(http::Router& router, Asker& asker);

}  // namespace sheaf::dashboard
