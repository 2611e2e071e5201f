// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The lease queue of a node among others: what goes to them, and what comes back.
#include <catch2/catch.hpp>

#include "raylet/scheduling/lease_queue.h"
#include "raylet/scheduling/lease_queue_for_test.h"

namespace sheaf {

using namespace lease_queue_test;

SCENARIO("what no node can hold is said once, and again only after it could be held") {
  Node node("CPU:2");
  node.queue.OnDemand(kA, Wants(1, "slot:1", 1), node.now);
  node.queue.OnDemand(kA, Wants(1, "slot:1", 2), node.now);
  auto actions = node.Take();
  REQUIRE(actions.size() == 1);
  CHECK(actions[0].kind == Kind::kNotice);
  CHECK(actions[0].message ==
        "no node has the resource 'slot'; add a node with it or lower the request");
  node.queue.OnDemand(kB, Wants(1, "slot:1", 2), node.now);
  CHECK(node.Count(Kind::kNotice) == 1);
  node.queue.OnClusterChanged(node.now);
  CHECK(node.Take().empty());
  WHEN("a node with it joins") {
    node.AddNode(2, "CPU:2,slot:1");
    THEN("the demand goes there, as far as there is room") {
      actions = node.Take();
      REQUIRE(actions.size() == 1);
      CHECK(actions[0].kind == Kind::kSpillback);
      CHECK(actions[0].node == 2);
      CHECK(actions[0].wanted == 1);
      CHECK(actions[0].hops == 1);
    }
    node.Take();
    AND_WHEN("that node dies") {
      node.view.nodes[2].alive = false;
      node.queue.OnClusterChanged(node.now);
      THEN("the demand is back here, and said to be infeasible") {
        const auto after = node.Take();
        CHECK(std::count_if(after.begin(), after.end(), [](const LeaseAction& action) {
                return action.kind == Kind::kNotice;
              }) == 2);
        CHECK(node.queue.FindPending(kA, 1)->missing == 2);
      }
    }
  }
}

SCENARIO("a full node hands demands on, once") {
  Node node("CPU:1");
  node.AddNode(2, "CPU:8");
  node.queue.OnDemand(kA, Wants(1, "CPU:1", 5), node.now);
  auto actions = node.Take();
  REQUIRE(actions.size() == 2);
  CHECK(actions[0].kind == Kind::kGrant);
  CHECK(actions[1].kind == Kind::kSpillback);
  CHECK(actions[1].wanted == 4);
  WHEN("the owner wants fewer") {
    node.queue.OnDemand(kA, Wants(1, "CPU:1", 2), node.now);
    THEN("the other node hears the smaller number") {
      actions = node.Take();
      REQUIRE(actions.size() == 1);
      CHECK(actions[0].wanted == 1);
    }
  }
  WHEN("a demand is handed on to a full node and no other node has room") {
    node.AddNode(3, "CPU:1");
    node.view.nodes[2].available = node.view.nodes[3].available = {};
    node.queue.OnDemand({3, 9}, Wants(1, "CPU:1", 1), node.now, {}, 3, 1);
    THEN("it waits here") {
      CHECK(node.Take().empty());
      CHECK(node.queue.AllPending().size() == 1);
      node.view.nodes[3].alive = false;
      node.queue.OnClusterChanged(node.now);
      CHECK(node.queue.AllPending().empty());  // Its owner's node is dead.
    }
    AND_WHEN("another node gets room before this one does") {
      node.AddNode(4, "CPU:1");
      THEN("it goes back to who sent it, who may hand it on anew, when that had time to hear so") {
        CHECK(node.Take().empty());
        node.PassTime();
        actions = node.Take();
        REQUIRE(actions.size() == 1);
        CHECK(actions[0].kind == Kind::kGiveBack);
        CHECK(actions[0].node == 3);
        CHECK(actions[0].hops == 1);
        CHECK(actions[0].wanted == 0);
        CHECK(node.queue.AllPending().empty());
      }
    }
  }
  WHEN("the other node gives back what finds no room there, and a third one has room") {
    node.AddNode(4, "CPU:2");
    node.Take();
    node.view.nodes[2].available = {};
    node.queue.OnGivenBack(kA, 1, 2, 1, 3, false, node.now);
    THEN("the rest goes to that one") {
      actions = node.Take();
      REQUIRE(actions.size() == 2);
      CHECK(actions[0].node == 2);
      CHECK(actions[0].wanted == 3);
      CHECK(actions[1].node == 4);
      CHECK(actions[1].wanted == 1);
      CHECK(node.queue.FindPending(kA, 1)->missing == 0);
    }
    AND_WHEN("the same word comes again, or from a node that got nothing") {
      node.Take();
      node.queue.OnGivenBack(kA, 1, 2, 1, 3, false, node.now);
      node.queue.OnGivenBack(kA, 1, 5, 1, 0, false, node.now);
      CHECK(node.Take().empty());
    }
  }
}

SCENARIO("what is spread goes to all nodes in turn, the own one too") {
  Node node("CPU:4");
  node.AddNode(2, "CPU:4");
  node.AddNode(3, "CPU:4");
  std::vector<NodeNumber> turns;
  for (uint64_t key = 1; key <= 6; ++key) {
    proto::LeaseDemand demand = key % 2 == 0 ? Wants(key, "CPU:1", 1) : ActorDemand(key, "CPU:1");
    demand.mutable_spec()->mutable_strategy()->set_kind(proto::Strategy::SPREAD);
    node.queue.OnDemand(kA, demand, node.now);
    for (const LeaseAction& action : node.Take())
      turns.push_back(action.kind == Kind::kSpillback ? action.node : node.view.local);
  }
  CHECK(turns == std::vector<NodeNumber>{1, 2, 3, 1, 2, 3});
}

SCENARIO("a node that gave something back counts as full until it says what it has free") {
  Node node("CPU:1");
  node.AddNode(2, "CPU:2");
  node.queue.OnDemand(kA, Wants(1, "CPU:1", 3), node.now);
  CHECK(node.Count(Kind::kSpillback) == 1);
  node.view.nodes[2].available = Parsed("CPU:2");  // As the GCS has it: this word is older.
  node.queue.OnClusterChanged(node.now);
  node.queue.OnGivenBack(kA, 1, 2, 1, 0, false, node.now);
  auto actions = node.Take();
  REQUIRE(actions.size() == 1);
  CHECK(actions[0].wanted == 0);
  CHECK(node.queue.FindPending(kA, 1)->missing == 2);
  node.view.nodes[2].available = Parsed("CPU:2");
  node.queue.OnClusterChanged(node.now);
  actions = node.Take();
  REQUIRE(actions.size() == 1);
  CHECK(actions[0].node == 2);
  CHECK(actions[0].wanted == 2);
}

SCENARIO("no more demands of other nodes queue than fit on the empty node") {
  Node node("CPU:2");
  node.queue.OnDemand(kA, Wants(1, "CPU:1", 2), node.now);
  node.AddNode(2, "CPU:8");
  node.Take();
  const auto hand = [&](uint32_t owner, const char* resources = "CPU:1") {
    node.queue.OnDemand({2, owner}, Wants(1, resources, 1), node.now, {}, 2, 1);
    return node.Count(Kind::kGiveBack);
  };
  CHECK(hand(1) == 0);
  CHECK(hand(2) == 0);
  CHECK(hand(3) == 1);
  CHECK(hand(4) == 1);
  CHECK(hand(5, "CPU:2") == 0);  // Another kind.
  CHECK(node.queue.AllPending().size() == 3);
  WHEN("room comes free") {
    node.ReturnOne(kA);
    THEN("the first gets it, and one more may queue") {
      CHECK(node.Count(Kind::kGrant) == 1);
      CHECK(hand(6) == 0);
      CHECK(hand(7) == 1);
    }
  }
  WHEN("this node drains") {
    node.view.here().draining = true;
    node.queue.OnDraining(node.now);
    node.Take();
    CHECK(hand(8) == 1);
  }
  WHEN("it is bound to this node") {
    proto::LeaseDemand bound = Wants(1, "CPU:1", 1);
    bound.mutable_spec()->mutable_strategy()->set_kind(proto::Strategy::NODE_AFFINITY);
    bound.mutable_spec()->mutable_strategy()->set_node(1);
    for (uint32_t owner = 10; owner < 20; ++owner)
      node.queue.OnDemand({2, owner}, bound, node.now, {}, 2, 1);
    THEN("all of them queue") { CHECK(node.Count(Kind::kGiveBack) == 0); }
  }
}

SCENARIO("demands of other nodes that wait go to room elsewhere one after the other") {
  Node node("CPU:4");
  node.queue.OnDemand(kA, Wants(1, "CPU:1", 4), node.now);
  node.AddNode(2, "CPU:1");
  node.view.nodes[2].available = {};
  node.queue.OnClusterChanged(node.now);
  for (uint32_t owner = 1; owner <= 3; ++owner)
    node.queue.OnDemand({2, owner}, Wants(1, "CPU:1", 1), node.now, {}, 2, 1);
  node.Take();
  node.AddNode(3, "CPU:8");
  CHECK(node.Take().empty());
  for (uint32_t owner = 1; owner <= 3; ++owner) {
    node.PassTime();
    const auto actions = node.Take();
    REQUIRE(actions.size() == 1);
    CHECK(actions[0].kind == Kind::kGiveBack);
    CHECK(actions[0].demand.owner == ProcessId{2, owner});
  }
  CHECK(node.queue.AllPending().empty());
}

SCENARIO("demands of this node do not wait behind those of others for room elsewhere") {
  Node node("CPU:1");
  node.queue.OnDemand(kA, Wants(1, "CPU:1", 1), node.now);
  node.AddNode(2, "CPU:1");
  node.view.nodes[2].available = {};
  node.queue.OnClusterChanged(node.now);
  node.queue.OnDemand({2, 1}, Wants(1, "CPU:1", 1), node.now, {}, 2, 1);
  node.queue.OnDemand(kB, Wants(1, "CPU:1", 1), node.now);
  node.Take();
  node.AddNode(3, "CPU:1");
  const auto actions = node.Take();
  REQUIRE(actions.size() == 1);
  CHECK(actions[0].kind == Kind::kSpillback);
  CHECK(actions[0].node == 3);
  CHECK(actions[0].demand.owner == kB);
}

SCENARIO("what an owner of another node returns unused is not granted to it again") {
  Node node("CPU:2");
  node.AddNode(2, "CPU:2");
  const ProcessId far{2, 9};
  node.queue.OnDemand(far, Wants(1, "CPU:1", 2), node.now, {}, 2, 1);
  CHECK(node.Count(Kind::kGrant) == 2);
  node.queue.OnUnneeded(1);
  CHECK(node.queue.OnReturn(1, node.now));
  const auto actions = node.Take();
  REQUIRE(actions.size() == 1);
  CHECK(actions[0].kind == Kind::kGiveBack);
  CHECK(actions[0].node == 2);
  CHECK(actions[0].wanted == 1);
  WHEN("its raylet hears of that, and the owner has no more tasks") {
    Node home("CPU:1");
    home.AddNode(2, "CPU:2");
    home.queue.OnDemand(kA, Wants(1, "CPU:1", 3), home.now);
    CHECK(home.Take().size() == 2);  // One here, two there.
    home.queue.OnDemand(kA, Wants(1, "CPU:1", 3, /*backlog=*/0), home.now);
    CHECK(home.Take().empty());
    home.queue.OnGivenBack(kA, 1, 2, 1, 1, false, home.now);
    THEN("the other node is told its part, and nothing is looked for elsewhere") {
      const auto said = home.Take();
      REQUIRE(said.size() == 1);
      CHECK(said[0].kind == Kind::kSpillback);
      CHECK(said[0].wanted == 1);
    }
  }
}

SCENARIO("what needs nothing and comes back drains there, though the GCS has not told") {
  Node home("CPU:1");
  home.AddNode(2, "CPU:2");
  home.AddNode(3, "CPU:2");
  home.view.here().draining = true;
  home.queue.OnDemand(kA, Wants(1, "", 1), home.now);
  auto actions = home.Take();
  REQUIRE(actions.size() == 1);
  CHECK(actions[0].node == 2);
  home.queue.OnGivenBack(kA, 1, 2, 1, 0, false, home.now);
  for (const LeaseAction& action : home.Take()) actions.push_back(action);
  REQUIRE(actions.size() == 3);
  CHECK(actions[1].node == 2);
  CHECK(actions[1].wanted == 0);
  CHECK(actions[2].node == 3);
  CHECK(actions[2].wanted == 1);
}

SCENARIO("a lease that is returned says nothing of its node, where the next task goes as well") {
  Node home("CPU:1");
  home.AddNode(2, "CPU:2");
  home.view.here().draining = true;
  home.queue.OnDemand(kA, Wants(1, "", 2), home.now);
  CHECK(home.Take().size() == 1);
  // Of an earlier task; it crossed with this demand.
  home.queue.OnGivenBack(kA, 1, 2, 1, 0, /*unneeded=*/true, home.now);
  const auto actions = home.Take();
  REQUIRE(actions.size() == 1);
  CHECK(actions[0].node == 2);
  CHECK(actions[0].wanted == 2);
  CHECK(home.view.nodes[2].usable());
}

SCENARIO("leases that are returned from many nodes at once bring no new ones") {
  Node home("CPU:1");
  home.AddNode(2, "CPU:2");
  home.AddNode(3, "CPU:2");
  home.queue.OnDemand(kA, Wants(1, "CPU:1", 5), home.now);
  home.Take();
  // All tasks are done. The owner returns one lease of each node, one after the other, and each
  // word of it lowers the part of the node that was asked last.
  home.queue.OnDemand(kA, Wants(1, "CPU:1", 4, /*backlog=*/0), home.now);
  home.queue.OnDemand(kA, Wants(1, "CPU:1", 3, /*backlog=*/0), home.now);
  home.Take();
  home.queue.OnGivenBack(kA, 1, 2, 1, 1, false, home.now);
  home.queue.OnGivenBack(kA, 1, 3, 1, 1, false, home.now);
  home.queue.OnDemand(kA, Wants(1, "CPU:1", 3, /*backlog=*/0), home.now);
  CHECK(home.queue.FindPending(kA, 1)->missing == 0);
  for (const LeaseAction& action : home.Take()) {
    CHECK(action.kind == Kind::kSpillback);
    CHECK(action.wanted <= 1);
  }
  THEN("the next tasks are placed as ever") {
    home.AddNode(4, "CPU:8");
    home.queue.OnDemand(kA, Wants(1, "CPU:1", 5), home.now);
    const auto actions = home.Take();
    REQUIRE(actions.size() == 1);
    CHECK(actions[0].node == 4);
    CHECK(actions[0].wanted == 3);
  }
}

SCENARIO("a node that drains asks for its leases back, and its demands go to others") {
  Node node("CPU:3");
  node.queue.OnDemand(kB, ActorDemand(1, "CPU:1"), node.now);
  node.queue.OnDemand(kA, Wants(1, "CPU:1", 3), node.now);
  CHECK(node.Count(Kind::kGrant) == 4);
  node.view.here().draining = true;
  node.queue.OnDraining(node.now);
  const auto asked = node.Take();
  REQUIRE(asked.size() == 3);
  for (const LeaseAction& action : asked) {
    CHECK(action.kind == Kind::kRevoke);
    CHECK(action.demand.owner == kA);  // Actors stay.
  }
  node.ReturnOne(kA);
  CHECK(node.Count(Kind::kGrant) == 0);
  node.AddNode(2, "CPU:8");
  const auto actions = node.Take();
  REQUIRE(actions.size() == 1);
  CHECK(actions[0].kind == Kind::kSpillback);
  CHECK(actions[0].node == 2);
}

SCENARIO("in a large cluster a demand spreads step by step, and slowly where others do, too") {
  constexpr NodeNumber kNodes = 1'000;
  Node node("slot:1");
  for (NodeNumber other = 2; other <= kNodes; ++other)
    node.view.nodes[other].total = node.view.nodes[other].available = Parsed("CPU:1");
  node.queue.OnClusterChanged(node.now);
  node.queue.OnDemand(kA, Wants(1, "CPU:1", kNodes - 1), node.now);
  std::vector<LeaseAction> asked = node.Take();
  CHECK(asked.size() == 16);
  WHEN("nothing comes back") {
    size_t all = asked.size();
    const Nanos begin = node.now;
    while (node.queue.NextTick() != kForever) {
      node.PassTime();
      all += node.Count(Kind::kSpillback);
    }
    THEN("it is everywhere in some milliseconds") {
      CHECK(all == kNodes - 1);
      CHECK(node.now - begin <= 8 * kMillisecond);
    }
  }
  WHEN("all comes back, as others have come first") {
    size_t all = 0;
    const Nanos begin = node.now;
    while (node.now - begin < 200 * kMillisecond) {
      all += asked.size();
      for (const LeaseAction& action : asked)
        node.queue.OnGivenBack(kA, 1, action.node, action.hops, 0, false, node.now);
      node.Take();
      node.PassTime();
      asked = node.Take();
    }
    THEN("few are asked until there is news") {
      CHECK(all < 60);
      CHECK(asked.size() == 1);
    }
  }
}

}  // namespace sheaf
