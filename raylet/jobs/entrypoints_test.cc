// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Submitted commands of a node: started once, given back, and reported until the GCS knows.
#include "raylet/jobs/entrypoints.h"

#include <catch2/catch.hpp>

#include "raylet/node_parts_for_test.h"
#include "raylet/workers/fake_entrypoint_launcher.h"

namespace sheaf {
namespace entrypoints_test {

struct EntrypointNode : NodeParts {
  static proto::StartEntrypoint Order(const std::string& id, int64_t cpus = 0,
                                      uint32_t attempt = 1) {
    proto::StartEntrypoint order;
    order.mutable_entrypoint()->set_submission_id(id);
    order.mutable_entrypoint()->set_command("true");
    order.set_attempt(attempt);
    if (cpus != 0)
      (*order.mutable_entrypoint()->mutable_resources()->mutable_amounts())["CPU"] = cpus * 10'000;
    return order;
  }
  static proto::StopEntrypoint StopOf(const std::string& id, uint32_t attempt = 1) {
    proto::StopEntrypoint stop;
    stop.set_submission_id(id);
    stop.set_attempt(attempt);
    return stop;
  }
  static proto::EntrypointReport::Ended Exit(int code) {
    proto::EntrypointReport::Ended ended;
    ended.mutable_death()->set_cause(proto::Death::EXITED);
    ended.mutable_death()->set_code(code);
    return ended;
  }
  // What the GCS was told since the last time; it answers all.
  std::vector<proto::EntrypointReport> Reports() {
    std::vector<proto::EntrypointReport> reports;
    for (const proto::GcsRequest& request : Asked()) {
      reports.push_back(request.entrypoint_report());
      Answer(request);
    }
    return reports;
  }
  proto::NodeReport NodeReport() const {
    proto::NodeReport report;
    entrypoints.FillReport(&report);
    return report;
  }

  FakeEntrypointLauncher processes_of_it;
  int rooms = 0;
  Entrypoints entrypoints{
      {.gcs = gcs, .launcher = processes_of_it, .ledger = ledger, .view = view, .on_room = [this] {
         ++rooms;
       }}};
};

using Strings = std::vector<std::string>;

SCENARIO("a submitted command is started once, however often it is ordered") {
  EntrypointNode node;
  node.entrypoints.OnStart(node.Order("one", 2));
  node.entrypoints.OnStart(node.Order("one", 2));
  CHECK(node.processes_of_it.started == Strings{"one"});
  CHECK(node.ledger.available().cpu() == 0);
  CHECK(node.Reports().size() == 2);
  WHEN("it runs and ends") {
    proto::EntrypointReport::Running running;
    running.set_os_pid(7);
    node.entrypoints.OnRunning("one", running);
    CHECK(node.Reports().at(0).running().os_pid() == 7);
    node.entrypoints.OnEnded("one", node.Exit(3));
    CHECK(node.entrypoints.empty());
    CHECK(node.ledger.available().cpu() == 2 * kUnit);
    CHECK(node.rooms == 1);
    THEN("its end is in reports of the node until the GCS has acknowledged it") {
      CHECK(node.NodeReport().entrypoints(0).ended().death().code() == 3);
      node.entrypoints.OnStart(node.Order("one", 2));  // The order and the end have crossed.
      CHECK(node.processes_of_it.started.size() == 1);
      CHECK(node.Reports().at(0).ended().death().code() == 3);
      CHECK(node.NodeReport().entrypoints().empty());
    }
    THEN("an order that comes late, when the GCS has its end, starts nothing") {
      CHECK(node.Reports().size() == 1);
      node.entrypoints.OnStart(node.Order("one", 2));
      CHECK(node.processes_of_it.started.size() == 1);
      CHECK(node.Reports().at(0).ended().death().code() == 3);  // Of whoever has an older disk.
      AND_THEN("one of another attempt does") {
        node.entrypoints.OnStart(node.Order("one", 2, 2));
        CHECK(node.processes_of_it.started.size() == 2);
      }
    }
  }
  WHEN("the GCS has no room for its end on its disk") {
    node.entrypoints.OnEnded("one", node.Exit(0));
    proto::GcsReply full;
    full.set_error(static_cast<uint32_t>(ErrorKind::kGcsStorageFull));
    node.Answer(node.Asked().at(0), full);
    CHECK(node.NodeReport().entrypoints_size() == 1);
    node.clock.Advance(kSecond);
    node.gcs.Tick();
    CHECK(node.Reports().size() == 1);
    CHECK(node.NodeReport().entrypoints().empty());
  }
  WHEN("it is to end") {
    node.entrypoints.OnStop(node.StopOf("one"));
    CHECK(node.processes_of_it.stopped == Strings{"one"});
  }
  WHEN("an attempt that came before it is to end") {
    node.entrypoints.OnStop(node.StopOf("one", 0));
    CHECK(node.processes_of_it.stopped.empty());
  }
}

SCENARIO("a submitted command that cannot start here goes back") {
  EntrypointNode node;
  WHEN("there is no room") {
    node.entrypoints.OnStart(node.Order("large", 3));
    CHECK(node.Reports().at(0).state_case() == proto::EntrypointReport::kGivenBack);
  }
  WHEN("the node drains") {
    node.view.here().draining = true;
    node.entrypoints.OnStart(node.Order("one"));
    CHECK(node.Reports().at(0).state_case() == proto::EntrypointReport::kGivenBack);
  }
  CHECK(node.processes_of_it.started.empty());
  CHECK(node.entrypoints.empty());
}

SCENARIO("what is not there has ended, for who wants it to end") {
  EntrypointNode node;
  node.entrypoints.OnStop(node.StopOf("none", 4));
  const auto reports = node.Reports();
  REQUIRE(reports.size() == 1);
  CHECK(reports[0].has_ended());
  CHECK(reports[0].attempt() == 4);
  node.entrypoints.OnStart(node.Order("none", 0, 4));  // The order was on its way.
  CHECK(node.processes_of_it.started.empty());
}

}  // namespace entrypoints_test
}  // namespace sheaf
