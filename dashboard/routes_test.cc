// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "dashboard/logs/log_finder.h"
#include "dashboard/routes_for_test.h"
#include "dashboard/state_rows.h"

namespace sheaf::dashboard {
namespace routes_test {

// Beside the small cluster: what waits, and what has happened.
absl::StatusOr<proto::StateAnswer> BusyCluster(const proto::StateQuery& query, Nanos timeout) {
  proto::StateAnswer answer = *SmallCluster(query, timeout);
  if (query.what() == proto::StateQuery::NODES) {
    answer.mutable_nodes(0)->set_metrics_url("http://10.0.0.1:9400/metrics");
    proto::NodeRow& dead = *answer.add_nodes();
    dead.set_node(2);
    dead.set_state("DEAD");
    dead.set_metrics_url("http://10.0.0.2:9400/metrics");
    proto::NodeRow& other = *answer.add_nodes();
    other.set_node(3);
    other.set_state("ALIVE");
    other.set_metrics_url("https://[::1]:9400/metrics");
    (*other.mutable_labels())["ray.io/node-group"] = "gpu";
  }
  if (query.what() == proto::StateQuery::DEMAND) {
    proto::DemandRow& row = *answer.add_demand();
    (*row.mutable_resources()->mutable_amounts())["GPU"] = 20'000;
    row.set_count(3);
    proto::LabelTerm& term = *row.add_selectors()->add_terms();
    term.set_key("zone");
    term.add_values("a");
    for (int i = 0; i < 2; ++i) {
      proto::GroupRow& group = *answer.add_groups();
      group.set_group_id(absl::StrCat("g", i));
      group.set_placement("SPREAD");
      group.set_state("PENDING");
      for (int bundle = 0; bundle < 2; ++bundle) {
        (*group.add_bundles()->mutable_amounts())["CPU"] = 10'000;
      }
    }
  }
  if (query.what() == proto::StateQuery::EVENTS) {
    proto::EventRow& event = *answer.add_events();
    event.set_number(0x1234 + query.after());
    event.set_unix_ms(1'500);
    event.set_severity(proto::EventRow::ERROR);
    event.set_kind(proto::EventRow::NODE_DIED);
    event.set_message("node 2 died");
    event.set_node(2);
    answer.set_matching(static_cast<uint64_t>(query.filters_size()));
  }
  return answer;
}

TEST_CASE("what has happened is listed as Ray does, and behind a cursor") {
  const Fixture fixture(BusyCluster);
  const auto row = fixture.List("cluster_events?detail=1").at("result").at(0);
  CHECK(row.at("severity") == "ERROR");
  CHECK(row.at("source_type") == "GCS");
  CHECK(row.at("event_id") == "0000000000001234");
  CHECK(row.at("custom_fields").at("kind") == "NODE_DIED");
  CHECK(row.as_object().size() == 6);
  const auto page = fixture.Json("/api/sheaf/events?after=0000000000000010&kind=NODE_DIED&node=2");
  CHECK(page.at("events").at(0).at("event_id") == "0000000000001244");
  CHECK(page.at("last") == "0000000000001244");
  CHECK(page.at("matching") == 2);
  for (const char* wrong : {"limit=0", "limit=x", "after=x", "after=99999", "colour=red",
                            "node=abc", "job=x", "severity=bogus", "kind=bogus"}) {
    INFO(wrong);
    CHECK(StatusOf(fixture.Ask(absl::StrCat("GET /api/sheaf/events?", wrong))) == 400);
  }
}

TEST_CASE("what waits is told by shape, with groups as gangs, in both forms") {
  const Fixture fixture(BusyCluster);
  const auto status = fixture.Json("/api/cluster_status").at("data").at("clusterStatus");
  const auto& load = status.at("loadMetricsReport");
  CHECK(load.at("resourceDemand").at(0).at(0).at("GPU") == 2);
  CHECK(load.at("resourceDemand").at(0).at(1) == 3);
  CHECK(load.at("pgDemand").at(0).at(0).at("strategy") == "SPREAD");
  CHECK(load.at("pgDemand").at(0).at(1) == 2);
  CHECK(load.at("usage").at("CPU").at(0) == 3);
  CHECK(load.at("usage").at("CPU").at(1) == 4);
  const auto& nodes = status.at("autoscalerReport");
  CHECK(nodes.at("activeNodes").at("node") == 1);
  CHECK(nodes.at("idleNodes").at("gpu") == 1);
  CHECK(nodes.at("failedNodes").as_array().size() == 1);
  CHECK(nodes.at("nodeTypeMapping").at(std::string(55, '0') + "3") == "gpu");
  const auto demand = fixture.Json("/api/sheaf/demand");
  CHECK(demand.at("shapes").at(0).at("selectors").at(0).at(0).at("values").at(0) == "a");
  CHECK(demand.at("gangs").as_array().size() == 2);
}

// Two nodes of one machine: process 2.7 has a pid that the first one does not have, and pid 4711 is
// that of a process of either, as where each has a namespace of its own.
absl::StatusOr<proto::StateAnswer> OneMachine(const proto::StateQuery& query, Nanos timeout) {
  proto::StateAnswer answer = *SmallCluster(query, timeout);
  if (query.what() == proto::StateQuery::NODES) {
    proto::NodeRow& other = *answer.add_nodes();
    other.set_node(2);
    other.set_state("ALIVE");
    other.set_address("10.0.0.1:6380");
  }
  if (query.what() == proto::StateQuery::WORKERS) {
    for (const auto& [number, pid] : {std::pair(7, 5822), std::pair(8, 4711)}) {
      proto::WorkerRow& worker = *answer.add_workers();
      worker.set_process(ProcessId{2, static_cast<uint32_t>(number)}.packed());
      worker.set_os_pid(pid);
    }
  }
  if (query.what() == proto::StateQuery::STACKS) {
    const absl::StatusOr<ProcessId> process = ProcessId::FromText(query.id());
    if (process.ok()) answer.add_stacks()->set_process(process->packed());
  }
  return answer;
}

TEST_CASE("a process is found by its pid and an address that several nodes have") {
  const Fixture fixture(OneMachine);
  for (const char* path :
       {"/worker/traceback?pid=5822&ip=10.0.0.1", "/worker/traceback?pid=4711&ip=10.0.0.1",
        "/worker/cpu_profile?pid=5822&ip=10.0.0.1"}) {
    INFO(path);
    CHECK(StatusOf(fixture.Ask(absl::StrCat("GET ", path))) == 200);
  }
  CHECK(StatusOf(fixture.Ask("GET /worker/traceback?pid=5822&node_id=" + kNode)) == 404);
  CHECK(StatusOf(fixture.Ask("GET /worker/traceback?pid=5822&ip=10.0.0.2")) == 404);
  const auto log = [&](const LogWanted& wanted) {
    return FindLog(
        [](const proto::StateQuery& query, Nanos timeout) { return OneMachine(query, timeout); }, 1,
        wanted);
  };
  const auto found = log({.node_ip = "10.0.0.1", .pid = 5822});
  REQUIRE(found.ok());
  CHECK(found->node == 2);
  CHECK(found->name == "worker-2.7.out");
  CHECK(log({.node_ip = "10.0.0.1", .name = "node.log"})->node == 1);
  CHECK(absl::IsInvalidArgument(log({.node_ip = "10.0.0.1", .pid = 4711}).status()));
  CHECK(log({.node_id = NodeIdText(2), .pid = 4711})->node == 2);
}

TEST_CASE("Prometheus is told where the nodes that live serve their metrics") {
  const Fixture fixture(BusyCluster);
  const auto targets = fixture.Json("/api/prometheus/sd");
  REQUIRE(targets.as_array().size() == 2);
  CHECK(targets.at(0).at("targets").at(0) == "10.0.0.1:9400");
  CHECK(targets.at(0).at("labels").at("cluster") == "10.0.0.1:6379");
  CHECK(targets.at(0).at("labels").at("head") == "true");
  CHECK(targets.at(1).at("targets").at(0) == "[::1]:9400");
  CHECK(targets.at(1).at("labels").at("type") == "gpu");
  CHECK(targets.at(1).at("labels").at("__scheme__") == "https");
}

TEST_CASE("listings have Ray's columns, those that Sheaf does not know as null") {
  const Fixture fixture;
  const auto actors = fixture.List("actors");
  CHECK(actors.at("total") == 3);
  CHECK(actors.at("num_filtered") == 3);
  CHECK(actors.at("warnings").at(0).as_string().starts_with("The cluster has more actors"));
  const auto& alive = actors.at("result").at(0);
  CHECK(alive.at("node_id") == kNode.c_str());
  CHECK(alive.at("job_id") == "00000001");
  CHECK(alive.at("pid") == 4711);
  CHECK(alive.as_object().size() == 8);
  CHECK(actors.at("result").at(1).at("state") == "PENDING_CREATION");
  const auto detail = fixture.List("actors?detail=True").at("result");
  CHECK(detail.at(0).as_object().size() == 20);
  CHECK(detail.at(0).at("repr_name").is_null());
  CHECK(detail.at(0).at("num_restarts_due_to_node_preemption") == 0);  // Not null: Ray wants it.
  CHECK(detail.at(2).at("death_cause").at("error_message") == "killed");

  CHECK(fixture.List("tasks?detail=1").at("result").at(0).as_object().size() == 28);
  CHECK(fixture.List("tasks").at("result").at(0).at("worker_pid") == 4711);
  CHECK(fixture.List("tasks").at("result").at(1).at("state") == "PENDING_NODE_ASSIGNMENT");
  CHECK(fixture.List("nodes?detail=1").at("result").at(0).as_object().size() == 10);
  CHECK(fixture.List("nodes").at("result").at(0).at("node_ip") == "10.0.0.1");
  CHECK(fixture.List("nodes")
            .at("result")
            .at(0)
            .at("resources_total")
            .at("CPU")
            .to_number<double>() == 4.0);
  CHECK(fixture.List("nodes").at("result").at(0).at("resources_total").at("memory") == 1);
  CHECK(fixture.List("workers?detail=1").at("result").at(0).as_object().size() == 14);
  CHECK(fixture.List("workers").at("result").at(0).at("ip") == "10.0.0.1");
  CHECK(fixture.List("objects").at("result").at(0).as_object().size() == 9);
  CHECK(fixture.List("objects").at("result").at(0).at("type") == "DRIVER");
  CHECK(fixture.List("objects").at("result").at(0).at("pid") == 99);
  CHECK(fixture.List("jobs").at("result").at(0).at("status") == "SUCCEEDED");
  CHECK(fixture.List("placement_groups?detail=1").at("total") == 0);
}

TEST_CASE("limit and filters choose rows, and what they left out is counted") {
  const Fixture fixture;
  const auto few = fixture.List("tasks?limit=2");
  CHECK(few.at("total") == 6);
  CHECK(few.at("num_filtered") == 6);
  CHECK(few.at("result").as_array().size() == 2);
  const auto count = [&](const std::string& key, const std::string& predicate,
                         const std::string& value) {
    const auto found = fixture.List("tasks?filter_keys=" + key + "&filter_predicates=" + predicate +
                                    "&filter_values=" + value);
    CHECK(found.at("total") == 6);
    return found.at("num_filtered").as_int64();
  };
  CHECK(count("state", "%3D", "running") == 1);
  CHECK(count("STATE", "!%3D", "RUNNING") == 5);
  CHECK(count("worker_pid", "=", "4711") == 1);
  CHECK(count("attempt_number", "=", "0") == 6);
  CHECK(fixture
            .List("actors?filter_keys=state&filter_predicates==&filter_values=dead"
                  "&filter_keys=class_name&filter_predicates==&filter_values=Counter")
            .at("num_filtered") == 1);
}

TEST_CASE("what a listing cannot do is refused, and says what it wants") {
  const Fixture fixture;
  for (const char* bad :
       {"tasks?limit=10001", "tasks?limit=-1", "tasks?limit=x", "tasks?timeout=x", "tasks?detail=2",
        "tasks?filter_keys=a", "tasks?filter_keys=a&filter_predicates==&filter_values=b",
        "tasks?filter_keys=state&filter_predicates=<&filter_values=b",
        "tasks?filter_keys=attempt_number&filter_predicates==&filter_values=x",
        "actors?filter_keys=death_cause&filter_predicates==&filter_values=x"}) {
    INFO(bad);
    const std::string answer = fixture.Ask(std::string("GET /api/v0/") + bad);
    CHECK(StatusOf(answer) == 400);
    const auto value = http::ParseJson(Fixture::BodyOf(answer));
    REQUIRE(value.ok());
    CHECK(value->at("result") == false);
    CHECK_FALSE(value->at("msg").as_string().empty());
  }
  CHECK(StatusOf(fixture.Ask("GET /api/v0/cats")) == 404);
}

TEST_CASE("a node that does not answer is an error of that request only") {
  const Fixture fixture(
      [](const proto::StateQuery& query, Nanos) -> absl::StatusOr<proto::StateAnswer> {
        if (query.what() == proto::StateQuery::JOBS) return absl::DeadlineExceededError("late");
        if (query.what() == proto::StateQuery::TASKS) throw std::bad_alloc();
        return proto::StateAnswer();
      });
  CHECK(StatusOf(fixture.Ask("GET /api/v0/jobs")) == 504);
  CHECK(StatusOf(fixture.Ask("GET /api/v0/tasks")) == 500);
  CHECK(StatusOf(fixture.Ask("GET /api/gcs_healthz")) == 503);
  CHECK(StatusOf(fixture.Ask("GET /api/v0/nodes")) == 200);
}

TEST_CASE("the timeline is a trace of the calls that have ended") {
  const Fixture fixture;
  const std::string json = fixture.Ask("GET /api/v0/tasks/timeline?download=1");
  CHECK(StatusOf(json) == 200);
  CHECK(json.find("filename=\"timeline.json\"") != std::string::npos);
  const auto events = http::ParseJson(Fixture::BodyOf(json));
  REQUIRE(events.ok());
  REQUIRE(events->as_array().size() == 3);  // Two names, and a call.
  CHECK(events->at(2).at("dur") == 1.5e6);
  CHECK(events->at(2).at("args").at("state") == "FAILED");
  CHECK(StatusOf(fixture.Ask("GET /api/v0/tasks/timeline?format=perfetto&job_id=00000001")) == 200);
  for (const char* bad : {"format=svg", "job_id=x", "job_id=0", "jobs=1"}) {
    INFO(bad);
    CHECK(StatusOf(fixture.Ask(std::string("GET /api/v0/tasks/timeline?") + bad)) == 400);
  }
}

TEST_CASE("calls that have ended are listed with their times and errors") {
  const Fixture fixture;
  const auto found =
      fixture.List("tasks?detail=1&filter_keys=state&filter_predicates==&filter_values=FAILED");
  REQUIRE(found.at("result").as_array().size() == 1);
  const auto& task = found.at("result").at(0);
  CHECK(task.at("error_type") == "TASK_CANCELLED");
  CHECK(task.at("error_message") == "cancelled");
  CHECK(task.at("creation_time_ms") == 1'000);
  CHECK(task.at("start_time_ms") == 2'000);
  CHECK(task.at("end_time_ms") == 3'500);
  CHECK(task.at("worker_pid") == 99);
}

TEST_CASE("summaries count by function, class and call site") {
  const Fixture fixture;
  const auto cluster = [&](const std::string& kind) {
    return fixture.List(kind + "/summarize").at("result").at("node_id_to_summary").at("cluster");
  };
  const auto tasks = cluster("tasks");
  CHECK(tasks.at("total_tasks") == 1'000'007);
  CHECK(tasks.at("summary").at("work").at("state_counts").at("FINISHED") == 1'000'000);
  CHECK(tasks.at("summary").at("work").at("state_counts").at("FAILED") == 2);
  CHECK(tasks.at("summary").at("work").at("state_counts").at("RUNNING") == 1);
  CHECK(tasks.at("summary").at("work").at("state_counts").at("PENDING_NODE_ASSIGNMENT") == 4);
  CHECK(cluster("actors").at("summary").at("Counter").at("state_counts").at("DEAD") == 1);
  CHECK(cluster("objects").at("summary").at("disabled").at("total_size_mb").to_number<double>() ==
        1.0);
}

TEST_CASE("clients hear which API this is, and probes whether it is well") {
  const Fixture fixture;
  const auto version = fixture.Json("/api/version");
  CHECK(version.at("version") == "4");
  CHECK(version.at("ray_version") == "2.60.0");
  CHECK(version.at("session_name") == "session-1");
  for (const char* path : {"/api/healthz", "/api/gcs_healthz", "/api/local_raylet_healthz"}) {
    CHECK(Fixture::BodyOf(fixture.Ask(std::string("GET ") + path)) == "success");
  }
  const auto usage = fixture.Json("/api/cluster_status")
                         .at("data")
                         .at("clusterStatus")
                         .at("loadMetricsReport")
                         .at("usage");
  CHECK(usage.at("CPU").at(0).to_number<double>() == 3.0);
  CHECK(usage.at("CPU").at(1).to_number<double>() == 4.0);
}

TEST_CASE("requests beyond those at work and those that wait are refused") {
  std::atomic<bool> go = false;
  const Fixture fixture([&](const proto::StateQuery&, Nanos) -> absl::StatusOr<proto::StateAnswer> {
    WaitUntil(20 * kSecond, [&] { return go.load(); });
    return proto::StateAnswer();
  });
  std::vector<std::unique_ptr<Client>> clients;
  for (size_t i = 0; i < kAskedAtOnce + kWaiting; ++i) {
    clients.push_back(std::make_unique<Client>(fixture.server->port()));
    clients.back()->Send(
        "GET /api/v0/nodes HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
  }
  CHECK(WaitUntil(20 * kSecond, [&] { return StatusOf(fixture.Ask("GET /api/v0/cats")) == 404; }));
  CHECK(StatusOf(fixture.Ask("GET /api/v0/nodes")) == 429);
  go = true;
  for (const auto& client : clients) CHECK(StatusOf(client->Read()) == 200);
}

TEST_CASE("every route is for whom its right says, on every listener") {
  struct Asker {
    const char* headers;
    int open, read;  // What a GET may be answered with; 0: anything but a refusal.
  };
  const auto check = [](const Fixture& fixture, const std::vector<Asker>& askers) {
    REQUIRE(fixture.router.routes().size() > 22);
    for (const http::Route& route : fixture.router.routes()) {
      const std::string path = std::regex_replace(route.pattern, std::regex("\\{[^}]*\\}"), "x");
      for (const Asker& asker : askers) {
        const std::string answer = fixture.Ask(route.method + " " + path, asker.headers);
        INFO(route.method << " " << route.pattern << " " << asker.headers);
        const int wanted = route.right == http::Right::kOpen ? asker.open : asker.read;
        const int status = StatusOf(answer);
        if (wanted != 0) {
          CHECK(status == wanted);
        } else {
          CHECK((status != 0 && status != 401 && status != 403));
        }
        const int other = StatusOf(fixture.Ask("PATCH " + path, asker.headers));
        CHECK(other == (asker.read == 0 ? 405 : asker.read));
      }
    }
  };
  check(Fixture(SmallCluster, {.token = "s3cret"}), {{"", 0, 0},
                                                     {"Authorization: Bearer s3cret\r\n", 0, 0},
                                                     {"Origin: http://evil.example\r\n", 0, 403},
                                                     {"Sec-Fetch-Site: cross-site\r\n", 0, 403}});
  check(Fixture(SmallCluster, {.address = "0.0.0.0",
                               .token = "s3cret",
                               .access = {.trust = http::Trust::kTokenOnly}}),
        {{"", 0, 401},
         {"Authorization: Bearer s3cret\r\n", 0, 0},
         {"X-Ray-Authorization: Bearer s3cret\r\n", 0, 0},
         {"Cookie: sheaf-session=s3cret\r\n", 0, 401}});
}

}  // namespace routes_test
}  // namespace sheaf::dashboard
