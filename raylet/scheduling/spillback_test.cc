// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "raylet/scheduling/spillback.h"

#include <catch2/catch.hpp>

#include "raylet/scheduling/lease_parts_for_test.h"

namespace sheaf::lease_queue_test {
namespace spillback_test {

SCENARIO("what other nodes are asked for is said once an event, absolutely") {
  LeaseParts node("CPU:1", {"CPU:8", "CPU:8"});
  Spillback& spillback = node.parts.spillback;
  auto& demand = node.Add(kA, 1, "CPU:2", 10);
  spillback.Send(demand, 2, 1);
  spillback.Send(demand, 2, 2);
  spillback.Send(demand, 3, 4);
  CHECK(demand.spillback == 7);
  CHECK(demand.missing() == 3);
  CHECK(node.view.nodes[2].available == Parsed("CPU:2"));  // Until it reports.
  CHECK(node.view.nodes[3].available.cpu() == 0);
  const auto said = node.parts.actions.Take();
  REQUIRE(said.size() == 2);
  CHECK(said[0].kind == Kind::kSpillback);
  CHECK(said[0].node == 2);
  CHECK(said[0].wanted == 3);
  CHECK(said[0].hops == 1);
  WHEN("less is wanted") {
    spillback.TakeBack(demand, 5);
    THEN("the node that was asked last is asked less first") {
      const auto less = node.parts.actions.Take();
      REQUIRE(less.size() == 2);
      CHECK(less[0].node == 3);
      CHECK(less[0].wanted == 0);
      CHECK(less[1].wanted == 2);
      CHECK(demand.spillback == 2);
    }
  }
  WHEN("a node keeps less") {
    CHECK_FALSE(spillback.OnGivenBack(demand, 2, /*hops=*/2, 1, false));  // Of another time.
    CHECK_FALSE(spillback.OnGivenBack(demand, 4, 1, 0, false));           // Was not asked.
    CHECK(spillback.OnGivenBack(demand, 2, 1, 1, false));
    CHECK_FALSE(spillback.OnGivenBack(demand, 2, 1, 1, false));  // A repeat.
    CHECK(demand.spillback == 5);
    CHECK(node.view.nodes[2].available.cpu() < 2 * kUnit);  // It has no room for one more.
  }
}

TEST_CASE("a node is asked for half of what it has room for, or for all if all will be full") {
  LeaseParts node("CPU:8", {"CPU:8"});
  const Spillback& spillback = node.parts.spillback;
  auto& demand = node.Add(kA, 1, "CPU:1", 10);
  CHECK(spillback.CountFor(demand, node.view.nodes[2]) == 4);
  demand.wanted = 16;
  CHECK(spillback.CountFor(demand, node.view.nodes[2]) == 8);
  demand.wanted = 3;
  CHECK(spillback.CountFor(demand, node.view.nodes[2]) == 3);
  node.view.nodes[2].available = Parsed("CPU:1");
  CHECK(spillback.CountFor(demand, node.view.nodes[2]) == 1);
}

SCENARIO("no more queues here for others than this node could run") {
  LeaseParts node("CPU:2", {"CPU:8"});
  Spillback& spillback = node.parts.spillback;
  std::vector<Demand*> demands;
  for (uint64_t key = 1; key <= 3; ++key) {
    demands.push_back(&node.Add(kA, key, "CPU:1", 5, /*via=*/2));
    demands.back()->cls->local = true;
    node.parts.demands.Enqueue(*demands.back(), node.now);
    CHECK(spillback.IsTooMuch(*demands.back()) == (key == 3));
  }
  WHEN("one goes back") {
    node.Grant(*demands[2]);
    spillback.GiveBack(*demands[2]);
    const auto said = node.parts.actions.Take();
    REQUIRE(said.size() == 1);
    CHECK(said[0].kind == Kind::kGiveBack);
    CHECK(said[0].node == 2);
    CHECK(said[0].wanted == 1);
    CHECK(said[0].hops == 1);
  }
  WHEN("others have room for long enough") {
    CHECK_FALSE(spillback.BackIsDue(*demands[0], node.now));
    const Nanos due = node.node().next;
    CHECK(due > node.now);
    CHECK(spillback.BackIsDue(*demands[0], due));
    THEN("they go one at a time") { CHECK_FALSE(spillback.BackIsDue(*demands[1], due)); }
  }
}

TEST_CASE("a node matters while a demand is from it or with it") {
  LeaseParts node("CPU:1", {"CPU:8", "CPU:8", "CPU:8"});
  Spillback& spillback = node.parts.spillback;
  const auto matters = [&](NodeNumber number) {
    return spillback.AnyOf([number](NodeNumber other) { return other == number; });
  };
  auto& demand = node.Add(ProcessId{4, 1}, 1, "CPU:1", 5, /*via=*/2);
  CHECK(matters(2));
  CHECK(matters(4));
  CHECK_FALSE(matters(3));
  spillback.SetShare(demand, 3, 2);
  CHECK(matters(3));
  spillback.SetShare(demand, 3, 0);
  CHECK_FALSE(matters(3));
  spillback.OnDropped(demand);
  CHECK_FALSE(matters(2));
  CHECK_FALSE(matters(4));
}

}  // namespace spillback_test
}  // namespace sheaf::lease_queue_test
