// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// GET /api/sheaf/logs/{node}?find=TEXT&glob=NAMES: the lines of a node's logs that contain a text, in any
// case, in the files that were written last, 64 MiB of them:
// {"matches":[{"file","line"}],"searched_bytes","left_out_bytes","more"}: 500 at most, the last ones of
// each file, as they stand there. `more`: others were left out, or the time was up.
#pragma once

#include "dashboard/asker.h"
#include "http/router.h"

namespace sheaf::dashboard {

// `asker` outlives the router's server.
void AddLogSearch(http::Router& router, Asker& asker);

}  // namespace sheaf::dashboard
