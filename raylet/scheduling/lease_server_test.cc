// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "raylet/scheduling/lease_server.h"

#include <catch2/catch.hpp>

#include "raylet/scheduling/lease_parts_for_test.h"

namespace sheaf::lease_queue_test {
namespace lease_server_test {

std::vector<ProcessId> TakeGranted(LeaseParts& node) {
  std::vector<ProcessId> owners;
  for (const LeaseAction& action : node.parts.actions.Take()) {
    if (action.kind == Kind::kGrant) owners.push_back(action.demand.owner);
  }
  return owners;
}

SCENARIO("those who wait are served in turn") {
  LeaseParts node("CPU:3");
  LeaseServer& server = node.parts.server;
  for (const ProcessId owner : {kA, kB}) server.Enqueue(node.Add(owner, 1, "CPU:1", 9), node.now);
  server.Serve(node.node(), node.now);
  CHECK(TakeGranted(node) == std::vector{kA, kB, kA});
  CHECK(node.view.here().available.cpu() == 0);
  WHEN("a demand is refused") {
    auto* demand = node.parts.demands.Find({kB, 1, 0});
    server.Refuse(*demand, ErrorKind::kSystem, "no worker");
    CHECK_FALSE(demand->waiting());
    CHECK(demand->held == 1);  // It keeps what it has.
    const auto said = node.parts.actions.Take();
    REQUIRE(said.size() == 1);
    CHECK(said[0].kind == Kind::kRefuse);
    CHECK(said[0].error == ErrorKind::kSystem);
  }
}

SCENARIO("what finds no room here goes where there is room, once") {
  LeaseParts node("CPU:1", {"CPU:8"});
  LeaseServer& server = node.parts.server;
  node.Grant(node.Add(kC, 1, "CPU:1"));
  WHEN("it is of this node") {
    auto& demand = node.Add(kA, 1, "CPU:1", 2);
    server.Enqueue(demand, node.now);
    server.Serve(node.node(), node.now);
    CHECK(demand.spillback == 2);
    CHECK_FALSE(demand.waiting());
  }
  WHEN("it is of another") {
    auto& demand = node.Add(kA, 1, "CPU:1", 2, /*via=*/2);
    server.Enqueue(demand, node.now);
    server.Serve(node.node(), node.now);
    CHECK(demand.waiting());
    THEN("it goes back after a while") {
      CHECK(server.NextTick() != kForever);
      server.OnTick(server.NextTick());
      CHECK(node.parts.demands.Find({kA, 1, 2}) == nullptr);
      CHECK(node.parts.actions.Take().back().kind == Kind::kGiveBack);
    }
  }
}

TEST_CASE("what no node could ever hold is said once, until the cluster changes") {
  LeaseParts node("CPU:1");
  LeaseServer& server = node.parts.server;
  auto& demand = node.Add(kA, 1, "GPU:1");
  server.Enqueue(demand, node.now);
  const auto notices = [&] {
    server.Serve(node.node(), node.now);
    return node.parts.actions.Take().size();
  };
  CHECK(notices() == 1);
  CHECK(notices() == 0);
  node.view.nodes[2].total = node.view.nodes[2].available = Parsed("GPU:1");
  node.parts.demands.OnClusterChanged();
  CHECK(notices() == 1);  // It goes there.
  CHECK(demand.spillback == 1);
}

}  // namespace lease_server_test
}  // namespace sheaf::lease_queue_test
