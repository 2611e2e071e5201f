// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// GET /api/sheaf/KIND for nodes, actors, tasks, objects, jobs, groups, workers and functions: the rows
// of `sheaf list KIND --json`, a page at a time, with
//   filter   KEY=VALUE, KEY!=VALUE or KEY~VALUE (contains), in any case; repeated: all must hold
//   order    a key; -KEY: the largest first. Not of tasks: those come live ones first, then the last
//            that ended
//   limit    1 to 1000, else 50
//   after    `next` of the page before
//   group    a key: how many rows, and bytes, each of its values has
//   ended    of tasks: true (the default), false or only
// GET /api/sheaf/why/{id}: why it is pending, in words. POST /api/sheaf/nodes/{id}/drain.
#pragma once

#include "dashboard/asker.h"
#include "http/router.h"

namespace sheaf::dashboard {

// `asker` outlives the router's server.
void AddTableRoutes(http::Router& router, Asker& asker);

}  // namespace sheaf::dashboard
