// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// GET /worker/traceback and /task/traceback, as Ray 2.60 has them; GET /api/sheaf/stacks?node, of all
// processes of a node or of the cluster, and /api/sheaf/stacks/{process}.
#pragma once

#include "dashboard/asker.h"
#include "http/router.h"

namespace sheaf::dashboard {

// The stacks of `process`, or of all of `node` (0: of all nodes). Blocks. kNotFound: there is no such
// process or node.
absl::StatusOr<proto::StateAnswer> AskStacks(const AskNode& ask, const std::string& process,
                                             uint32_t node, Nanos timeout);

// `asker` outlives the router's server.
void AddStackRoutes(http::Router& router, Asker& asker);

}  // namespace sheaf::dashboard
