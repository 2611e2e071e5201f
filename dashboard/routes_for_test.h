// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The routes of a dashboard over a cluster of one node, for tests that ask them.
#pragma once

#include <algorithm>
#include <atomic>
#include <boost/json/value.hpp>
#include <catch2/catch.hpp>
#include <cmath>
#include <regex>
#include <string>
#include <vector>
#include "base/testing/wait_until_for_test.h"
#include "dashboard/cluster_routes.h"
#include "dashboard/dashboard.h"
#include "dashboard/logs/log_routes.h"
#include "dashboard/observe/profile_routes.h"
#include "dashboard/observe/stack_routes.h"
#include "dashboard/page/page_routes.h"
#include "dashboard/state_routes.h"
#include "dashboard/tables/table_routes.h"
#include "http/client_for_test.h"
#include "http/json.h"

namespace sheaf::dashboard {

using http::Client;
using http::StatusOf;

inline constexpr uint64_t kWorker = uint64_t{1} << 32 | 7;  // Process 1.7.
inline constexpr uint64_t kDriver = uint64_t{1} << 32 | 5;
inline const std::string kNode = std::string(55, '0') + "1";

// A cluster of one node as a node tells of it.
inline absl::StatusOr<proto::StateAnswer> SmallCluster(const proto::StateQuery& query, Nanos) {
  proto::StateAnswer answer;
  // Without a word of the GCS who asks would ask again for as long as he waits.
  if (query.what() == proto::StateQuery::KEY_VALUE) answer.set_error("there is no GCS here");
  if (query.what() == proto::StateQuery::NODES || query.what() == proto::StateQuery::STATUS) {
    proto::NodeRow& node = *answer.add_nodes();
    node.set_node(1);
    node.set_is_head(true);
    node.set_state("ALIVE");
    node.set_address("10.0.0.1:6379");
    node.set_start_time_unix_s(1000);
    (*node.mutable_total()->mutable_amounts())["CPU"] = 40'000;
    (*node.mutable_total()->mutable_amounts())["memory"] = 12'345;
    (*node.mutable_available()->mutable_amounts())["CPU"] = 10'000;
  }
  if (query.what() == proto::StateQuery::WORKERS) {
    proto::WorkerRow& worker = *answer.add_workers();
    worker.set_process(kWorker);
    worker.set_os_pid(4711);
    worker.set_state("LEASED");
  }
  if (query.what() == proto::StateQuery::JOBS) {
    proto::JobRow& job = *answer.add_jobs();
    job.set_job(1);
    job.set_driver(kDriver);
    job.set_os_pid(99);
    job.set_state("FINISHED");
    job.set_entrypoint("python <a>.py");
  }
  if (query.what() == proto::StateQuery::ACTORS) {
    for (const char* state : {"ALIVE", "PENDING", "DEAD"}) {
      proto::ActorRow& actor = *answer.add_actors();
      actor.set_actor_id(absl::StrCat("a-", state));
      actor.set_class_name("Counter");
      actor.set_state(state);
      actor.set_job(1);
      if (std::string(state) == "ALIVE") actor.set_process(kWorker);
      if (std::string(state) == "DEAD") actor.set_death("killed");
    }
    answer.set_truncated(true);
  }
  if (query.what() == proto::StateQuery::TASKS) {
    for (int i = 0; i < 5; ++i) {
      proto::TaskRow& task = *answer.add_tasks();
      task.set_task_id(absl::StrCat("t-", i));
      task.set_name("work");
      task.set_state(i == 0 ? "RUNNING" : "WAITING_FOR_LEASE");
      if (i == 0) task.set_worker(kWorker);
    }
  }
  if (query.what() == proto::StateQuery::TASKS && query.ended()) {
    proto::TaskRow& task = *answer.add_tasks();
    task.set_task_id("00000001000000010000000000050000");
    task.set_name("work");
    task.set_type("NORMAL_TASK");
    task.set_state("CANCELLED");
    task.set_worker(kWorker);
    task.set_os_pid(99);
    task.set_created_unix_ms(1'000);
    task.set_begin_unix_ns(2'000'000'000);
    task.set_end_unix_ns(3'500'000'000);
    task.set_error_type("TASK_CANCELLED");
    task.set_error("cancelled");
  }
  if (query.what() == proto::StateQuery::FUNCTIONS) {
    proto::FunctionRow& row = *answer.add_functions();
    row.set_name("work");
    row.set_type("NORMAL_TASK");
    row.set_waiting_for_place(4);
    row.set_pushed(1);
    row.set_running(1);
    row.set_finished(1'000'000);
    row.set_cancelled(2);
  }
  if (query.what() == proto::StateQuery::OBJECTS) {
    proto::ObjectRow& object = *answer.add_objects();
    object.set_object_id("o");
    object.set_size_bytes(1 << 20);
    object.set_owner(kDriver);
    object.set_local_refs(1);
  }
  return answer;
}

// The routes of a dashboard, served.
struct Fixture {
  Asker asker;
  LogFollower follower;
  http::Router router;
  std::unique_ptr<http::Server> server;

  explicit Fixture(AskNode ask = SmallCluster, http::ServerOptions options = {})
      : asker(ask), follower(std::move(ask)) {
    AddClusterRoutes(router, asker, "/somewhere/session-1");
    AddLogRoutes(router, asker, follower, 1);
    AddProfileRoutes(router, asker);
    AddStackRoutes(router, asker);
    AddStateRoutes(router, asker);
    AddTableRoutes(router, asker);
    AddPageRoutes(router);
    auto started = http::Server::Start(std::move(options), router);
    REQUIRE(started.ok());
    server = *std::move(started);
  }
  std::string Ask(const std::string& line, const std::string& headers = "") const {
    Client client(server->port());
    client.Send(line + " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n" + headers + "\r\n");
    return client.Read();
  }
  static std::string BodyOf(const std::string& answer) {
    return answer.substr(answer.find("\r\n\r\n") + 4);
  }
  boost::json::value Json(const std::string& path) const {
    const std::string answer = Ask("GET " + path);
    INFO(answer);
    REQUIRE(StatusOf(answer) == 200);
    auto value = http::ParseJson(BodyOf(answer));
    REQUIRE(value.ok());
    return *std::move(value);
  }
  // data.result of a listing.
  boost::json::value List(const std::string& path) const {
    return Json("/api/v0/" + path).at("data").at("result");
  }
};

}  // namespace sheaf::dashboard
