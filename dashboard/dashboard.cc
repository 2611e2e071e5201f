// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "dashboard/dashboard.h"

#include <utility>

#include "base/status_macros.h"
#include "dashboard/cluster_routes.h"
#include "dashboard/observe/profile_routes.h"
#include "dashboard/observe/stack_routes.h"
#include "dashboard/page/page_routes.h"
#include "dashboard/state_routes.h"
#include "dashboard/tables/table_routes.h"

namespace sheaf::dashboard {

absl::StatusOr<std::unique_ptr<Dashboard>> Dashboard::Start(DashboardOptions options) {
  std::unique_ptr<Dashboard> dashboard(new Dashboard(options));
  http::Router router;
  AddClusterRoutes(router, dashboard->asker_, options.session);
  AddLogRoutes(router, dashboard->asker_, dashboard->follower_, options.node);
  AddProfileRoutes(router, dashboard->asker_);
  AddStackRoutes(router, dashboard->asker_);
  AddStateRoutes(router, dashboard->asker_);
  AddTableRoutes(router, dashboard->asker_);
  dashboard->live_.AddRoutes(router);
  AddPageRoutes(router);
  dashboard->jobs_.AddRoutes(router);
  options.server.login = true;
  SHEAF_ASSIGN_OR_RETURN(dashboard->server_,
                         http::Server::Start(std::move(options.server), std::move(router)));
  return dashboard;
}

}  // namespace sheaf::dashboard
