// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// GET /api/sheaf/profile?function&job&node&from&to&format, and /worker/cpu_profile and
// /task/cpu_profile under Ray's names: a part of the profile that is always taken, so that they
// answer at once.
#pragma once

#include "dashboard/asker.h"
#include "http/router.h"

namespace sheaf::dashboard {

// `asker` outlives the router's server.
void AddProfileRoutes(http::Router& router, Asker& asker);

}  // namespace sheaf::dashboard
