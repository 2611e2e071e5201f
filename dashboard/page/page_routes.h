// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The page: its files at /assets/..., and the page itself at all paths that no other route has; the
// page says so itself where there is nothing to show. For everybody: what they show is asked for by
// other routes.
#pragma once

#include "http/router.h"

namespace sheaf::dashboard {

void AddPageRoutes(http::Router& router);

}  // namespace sheaf::dashboard
