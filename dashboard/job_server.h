// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The routes of jobs and of their packages, as Ray 2.60 has them, and Sheaf's own. It holds no
// state: submissions are the GCS's, packages lie in its key-value store, logs on the nodes.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "dashboard/asker.h"
#include "dashboard/job_rows.h"
#include "dashboard/logs/log_follower.h"
#include "http/router.h"

namespace sheaf::dashboard {

class JobServer {
 public:
  // `asker` and `follower` outlive this.
  JobServer(Asker& asker, AskNode ask, LogFollower& follower)
      : asker_(asker), ask_(std::move(ask)), follower_(follower) {}
  JobServer(const JobServer&) = delete;
  JobServer& operator=(const JobServer&) = delete;

  // The handlers refer to this.
  void AddRoutes(http::Router& router);

 private:
  // A job by the id of a submission or of a driver.
  struct Found {
    proto::Submission submission;
    Drivers drivers;
    std::string job_id;  // Of a driver that nobody submitted.
    NodePlaces nodes;
    bool is_submission = false;

    // Of the submission, or the job itself where that is a driver; null: there is none.
    const proto::JobRow* Driver() const;
  };
  using WithJob =
      std::function<http::Response(const Found&, const http::Request&, const http::Reply&)>;
  using Plain = http::Response (JobServer::*)(const http::Request&);
  void AddJobRoutes(http::Router& router);
  void AddPackageRoutes(http::Router& router);
  http::Handler With(Plain handler);
  // `refusal`: what is said of drivers that nobody submitted; null: they are as good.
  http::Handler OfJob(const char* refusal, WithJob then);
  absl::StatusOr<Found> Find(const std::string& id) const;
  absl::StatusOr<Drivers> AskDrivers() const;
  absl::StatusOr<NodePlaces> AskNodes() const;

  http::Response Submit(const http::Request& request);
  http::Response List(const http::Request& request);
  http::Response Stop(const proto::Submission& submission) const;
  http::Response Delete(const std::string& id) const;
  http::Response Logs(const Found& job, const http::Request& request, const http::Reply& reply);
  http::Handler Follow(bool is_counted);
  http::Response PutPackage(const http::Request& request);
  http::Response HasPackage(const http::Request& request);
  NodeLog LogOf(const proto::Submission& submission) const;

  Asker& asker_;
  const AskNode ask_;
  LogFollower& follower_;
};

}  // namespace sheaf::dashboard
