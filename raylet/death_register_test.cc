// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Who counts as dead, here and on other nodes.
#include "raylet/death_register.h"

#include <catch2/catch.hpp>

namespace sheaf {
namespace death_register_test {

struct Node {
  Node() {
    view.local = 1;
    view.nodes[1];
  }
  AttachedProcesses attached;
  ClusterView view;
  DeathRegister deaths{attached, view};
};

proto::Death Signalled() {
  proto::Death death;
  death.set_cause(proto::Death::SIGNALLED);
  return death;
}

SCENARIO("a process of this node is dead unless it is attached") {
  Node node;
  const ProcessId process{1, 7};
  CHECK(node.deaths.IsDead(process));
  node.attached[process];
  CHECK(node.deaths.IsAlive(process));
  CHECK(node.deaths.IsReachable(process));
  CHECK_THAT(node.deaths.DeathOf(process).message(), Catch::Contains("refused"));
  node.attached.erase(process);
  CHECK_FALSE(node.deaths.IsReachable(process));
  CHECK_THAT(node.deaths.DeathOf(process).message(), Catch::Contains("a long time ago"));
}

SCENARIO("a process of another node is alive until its death is recorded") {
  Node node;
  const ProcessId process{2, 7};
  CHECK(node.deaths.IsReachable(process));
  CHECK_FALSE(node.deaths.IsAlive(process));
  CHECK_FALSE(node.deaths.IsRecorded(process));
  node.deaths.Record(process, Signalled());
  CHECK(node.deaths.IsRecorded(process));
  CHECK(node.deaths.IsDead(process));
  CHECK(node.deaths.DeathOf(process).cause() == proto::Death::SIGNALLED);
  node.deaths.Record(process, proto::Death());
  CHECK(node.deaths.DeathOf(process).cause() == proto::Death::SIGNALLED);
}

SCENARIO("a node is dead when the GCS said so, or forgot it") {
  Node node;
  node.view.nodes[2];
  CHECK_FALSE(node.deaths.IsNodeDead(2));
  node.view.nodes[2].alive = false;
  CHECK(node.deaths.IsNodeDead(2));
  CHECK(node.deaths.IsDead({2, 7}));
  CHECK(node.deaths.DeathOf({2, 7}).cause() == proto::Death::NODE_DIED);
  GIVEN("a node that is not in the view") {
    CHECK_FALSE(node.deaths.IsNodeDead(3));  // The word of it is on its way.
    node.deaths.OnNodeDescribed(4);
    node.deaths.OnNodeDescribed(2);
    THEN("it is dead if newer ones were described, and all that live are in the view") {
      CHECK(node.deaths.IsNodeDead(3));
      CHECK_FALSE(node.deaths.IsNodeDead(5));
      node.view.complete = false;
      CHECK_FALSE(node.deaths.IsNodeDead(3));
    }
  }
  CHECK_FALSE(node.deaths.IsNodeDead(1));  // This one.
}

SCENARIO("so many deaths are remembered, the last ones") {
  Node node;
  for (uint32_t i = 0; i <= DeathRegister::kMostRecorded; ++i)
    node.deaths.Record({2, i + 1}, Signalled());
  CHECK_FALSE(node.deaths.IsRecorded({2, 1}));
  CHECK(node.deaths.IsRecorded({2, 2}));
  CHECK(node.deaths.IsRecorded({2, DeathRegister::kMostRecorded + 1}));
}

SCENARIO("of whom nothing is left is known for a while") {
  Node node;
  node.deaths.RecordNothingLeft({1, 7}, 0);
  node.deaths.RecordNothingLeft({1, 8}, 2 * kSecond);
  CHECK(node.deaths.EndedWithin(3 * kSecond, 3 * kSecond) ==
        std::vector{ProcessId{1, 7}, ProcessId{1, 8}});
  CHECK(node.deaths.EndedWithin(3 * kSecond, 4 * kSecond) == std::vector{ProcessId{1, 8}});
}

}  // namespace death_register_test
}  // namespace sheaf
