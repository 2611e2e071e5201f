// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What `sheaf dashboard` serves: the state of a cluster, read through one of its nodes. It holds no
// state that matters.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "dashboard/asker.h"
#include "dashboard/job_server.h"
#include "dashboard/live/live_feed.h"
#include "dashboard/logs/log_follower.h"
#include "dashboard/logs/log_routes.h"
#include "http/server.h"

namespace sheaf::dashboard {

struct DashboardOptions {
  http::ServerOptions server;
  AskNode ask;
  std::string session;  // The node's session directory.
  NodeNumber node = 0;  // Which it is.
};

class Dashboard {
 public:
  // kInvalidArgument, kUnavailable: as http::Server::Start.
  static absl::StatusOr<std::unique_ptr<Dashboard>> Start(DashboardOptions options);

  std::string url() const { return server_->url(); }
  Nanos IdleFor() const { return server_->IdleFor(); }

 private:
  explicit Dashboard(const DashboardOptions& options)
      : asker_(options.ask),
        follower_(options.ask),
        live_(options.ask),
        jobs_(asker_, options.ask, follower_) {}

  Asker asker_;
  LogFollower follower_;
  LiveFeed live_;
  JobServer jobs_;
  std::unique_ptr<http::Server> server_;  // Goes first: its handlers use the others.
};

}  // namespace sheaf::dashboard
