// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "raylet/scheduling/placement_group_ledger.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <set>

#include "base/random.h"
#include "scheduling/lease_spec.h"

namespace sheaf {
namespace placement_group_ledger_test {

using Kind = GroupAction::Kind;
using State = proto::GroupState;
constexpr ProcessId kCreator{1, 5};

Resources Parsed(const std::string& text) { return ParseResources(text).value(); }
PlacementGroupId GroupNumber(uint64_t number) { return PlacementGroupId::Make(kCreator, number); }

GroupSpec Spec(uint64_t number, PlacementGroupPolicy policy,
               const std::vector<std::string>& bundles) {
  GroupSpec spec;
  spec.id = GroupNumber(number);
  spec.policy = policy;
  for (const std::string& bundle : bundles) spec.bundles.push_back(Parsed(bundle));
  return spec;
}

struct Cluster {
  explicit Cluster(const std::string& local, const std::vector<std::string>& others = {})
      : ledger(Parsed(local), {}), groups(ledger, WithNodes(view, local, others)) {}

  static ClusterView& WithNodes(ClusterView& view, const std::string& local,
                                const std::vector<std::string>& others) {
    view.local = 1;
    view.nodes[1].total = view.nodes[1].available = Parsed(local);
    for (size_t i = 0; i < others.size(); ++i) {
      NodeView& node = view.nodes[static_cast<NodeNumber>(i + 2)];
      node.total = node.available = Parsed(others[i]);
    }
    return view;
  }
  State::State StateOf(uint64_t number) {
    const PlacementGroupLedger::Group* group = groups.Find(GroupNumber(number));
    return group == nullptr ? State::REMOVED : group->state;
  }
  std::vector<GroupAction> Take(Kind kind) {
    std::vector<GroupAction> actions = groups.TakeActions();
    actions.erase(std::remove_if(actions.begin(), actions.end(),
                                 [&](const GroupAction& action) { return action.kind != kind; }),
                  actions.end());
    return actions;
  }

  ResourceLedger ledger;
  ClusterView view;
  PlacementGroupLedger groups;
  Nanos now = kSecond;
};

using Nodes = std::vector<NodeNumber>;
std::optional<Nodes> PlaceOn(Cluster& cluster, const GroupSpec& spec, const Nodes& kept = {}) {
  return PlaceBundles(spec, cluster.view, kept);
}

SCENARIO("each policy places its bundles as its name says") {
  Cluster cluster("CPU:2", {"CPU:4", "CPU:4"});
  using enum PlacementGroupPolicy;
  CHECK(PlaceOn(cluster, Spec(1, kPack, {"CPU:1", "CPU:1"})) == Nodes{1, 1});
  CHECK(PlaceOn(cluster, Spec(1, kPack, {"CPU:1", "CPU:3"})) == Nodes{2, 2});
  CHECK(PlaceOn(cluster, Spec(1, kPack, {"CPU:1", "CPU:3", "CPU:4"})) == Nodes{3, 3, 2});
  CHECK(PlaceOn(cluster, Spec(1, kSpread, {"CPU:1", "CPU:1", "CPU:1", "CPU:1"})) ==
        Nodes{1, 2, 3, 1});
  CHECK(PlaceOn(cluster, Spec(1, kStrictPack, {"CPU:2", "CPU:2"})) == Nodes{2, 2});
  CHECK_FALSE(PlaceOn(cluster, Spec(1, kStrictPack, {"CPU:3", "CPU:2"})).has_value());
  CHECK(PlaceOn(cluster, Spec(1, kStrictSpread, {"CPU:1", "CPU:4", "CPU:4"})) == Nodes{1, 2, 3});
  CHECK_FALSE(
      PlaceOn(cluster, Spec(1, kStrictSpread, {"CPU:1", "CPU:1", "CPU:1", "CPU:1"})).has_value());
  THEN("bundles that are placed already are taken into account") {
    CHECK(PlaceOn(cluster, Spec(1, kStrictSpread, {"CPU:1", "CPU:1"}), {1, 0}) == Nodes{1, 2});
    CHECK(PlaceOn(cluster, Spec(1, kPack, {"CPU:1", "CPU:1"}), {3, 0}) == Nodes{3, 3});
  }
  THEN("draining and dead nodes are not") {
    cluster.view.nodes[1].draining = true;
    cluster.view.nodes[2].alive = false;
    CHECK(PlaceOn(cluster, Spec(1, kSpread, {"CPU:1", "CPU:1"})) == Nodes{3, 3});
  }
}

SCENARIO("STRICT_SPREAD finds a placement whenever there is one") {
  Cluster cluster("CPU:2", {"CPU:2", "CPU:2"});
  cluster.view.nodes[1].labels = {{"zone", "a"}};
  cluster.view.nodes[2].labels = {{"zone", "a"}, {"disk", "ssd"}};
  cluster.view.nodes[3].labels = {{"disk", "ssd"}};
  GroupSpec spec = Spec(1, PlacementGroupPolicy::kStrictSpread, {"CPU:1", "CPU:1", "CPU:1"});
  spec.selectors = {{{{"zone", {"a"}}}}, {{{"disk", {"ssd"}}}}, {{{"zone", {"a"}}}}};
  const auto nodes = PlaceOn(cluster, spec);
  REQUIRE(nodes.has_value());
  CHECK((*nodes)[1] == 3);
  CHECK(std::set<NodeNumber>(nodes->begin(), nodes->end()).size() == 3);
}

SCENARIO("on one node a group is created and removed within one event each") {
  Cluster cluster("CPU:4");
  cluster.groups.OnCreate(Spec(1, PlacementGroupPolicy::kPack, {"CPU:1", "CPU:2"}), kCreator,
                          cluster.now);
  const auto actions = cluster.groups.TakeActions();
  REQUIRE(actions.size() == 1);
  CHECK(actions[0].state == State::CREATED);
  CHECK(actions[0].bundle_nodes == Nodes{1, 1});
  CHECK(cluster.ledger.available() == Parsed("CPU:1"));
  CHECK(cluster.view.here().available == Parsed("CPU:1"));
  CHECK(cluster.view.groups[GroupNumber(1)].state == GroupPlacement::State::kCreated);
  CHECK(cluster.ledger.AcquireIn(GroupNumber(1), 1, Parsed("CPU:2")).has_value());
  cluster.groups.OnCreate(Spec(1, PlacementGroupPolicy::kPack, {"CPU:1", "CPU:2"}), kCreator,
                          cluster.now);
  CHECK(cluster.Take(Kind::kState).size() == 1);  // A repeat is answered again.
  CHECK(cluster.ledger.available() == Parsed("CPU:1"));

  CHECK(cluster.groups.OnRemove(GroupNumber(1), cluster.now));
  CHECK_FALSE(cluster.groups.OnRemove(GroupNumber(1), cluster.now));
  CHECK(cluster.Take(Kind::kState).at(0).state == State::REMOVED);
  CHECK(cluster.ledger.available() == Parsed("CPU:2"));  // A lease has the rest.
  CHECK(cluster.view.groups[GroupNumber(1)].state == GroupPlacement::State::kRemoved);
  cluster.groups.OnCreate(Spec(1, PlacementGroupPolicy::kPack, {"CPU:1"}), kCreator, cluster.now);
  CHECK(cluster.Take(Kind::kState).at(0).state == State::REMOVED);  // Late repeat.
}

SCENARIO("groups without room wait, oldest first, and say why when they wait in vain") {
  Cluster cluster("CPU:2");
  cluster.groups.OnCreate(Spec(1, PlacementGroupPolicy::kPack, {"CPU:2"}), kCreator, cluster.now);
  for (uint64_t number : {2, 3, 4})
    cluster.groups.OnCreate(Spec(number, PlacementGroupPolicy::kPack, {"CPU:1"}), kCreator,
                            cluster.now);
  CHECK(cluster.groups.pending() == 3);
  CHECK(cluster.groups.WaitingHere() == Parsed("CPU:1"));
  cluster.groups.OnRemove(GroupNumber(1), cluster.now);
  CHECK(cluster.StateOf(2) == State::CREATED);
  CHECK(cluster.StateOf(3) == State::CREATED);
  CHECK(cluster.StateOf(4) == State::PENDING);
  cluster.groups.TakeActions();

  cluster.groups.OnCreate(Spec(5, PlacementGroupPolicy::kStrictSpread, {"CPU:1", "CPU:1"}),
                          kCreator, cluster.now);
  cluster.groups.OnCreate(Spec(6, PlacementGroupPolicy::kPack, {"CPU:1", "GPU:1"}), kCreator,
                          cluster.now);
  const auto actions = cluster.Take(Kind::kState);
  REQUIRE(actions.size() == 2);
  CHECK(actions[0].state == State::INFEASIBLE);
  CHECK(actions[0].message ==
        "STRICT_SPREAD: 2 bundles need as many nodes, of 1 not enough can hold one each; add "
        "nodes or use SPREAD");
  CHECK(actions[1].message ==
        "bundle 1 (1 GPU): no node has the resource 'GPU'; add a node with it "
        "or lower the request");
  CHECK_FALSE(cluster.groups.WaitingHere() == Parsed("CPU:2"));
  WHEN("a node joins") {
    cluster.view.nodes[2].total = cluster.view.nodes[2].available = Parsed("CPU:4");
    cluster.groups.OnRoom(cluster.now);
    THEN("those that can be placed are prepared there or said to wait") {
      CHECK(cluster.StateOf(5) == State::PENDING);
      CHECK(cluster.StateOf(6) == State::INFEASIBLE);
    }
  }
}

SCENARIO("over several nodes a group is created only when all have prepared") {
  Cluster cluster("CPU:1", {"CPU:1", "CPU:1"});
  const auto create = [&] {
    cluster.groups.OnCreate(
        Spec(1, PlacementGroupPolicy::kStrictSpread, {"CPU:1", "CPU:1", "CPU:1"}), kCreator,
        cluster.now);
  };
  create();
  const auto prepares = cluster.Take(Kind::kPrepare);
  REQUIRE(prepares.size() == 2);
  CHECK(cluster.ledger.available().empty());
  cluster.groups.OnPrepared(GroupNumber(1), 2, 1, true, cluster.now);
  cluster.groups.OnPrepared(GroupNumber(1), 2, 1, true, cluster.now);  // A resend.
  CHECK(cluster.StateOf(1) == State::PENDING);
  CHECK_FALSE(cluster.ledger.CanAcquireIn(GroupNumber(1), kAnyBundle, Parsed("CPU:1")));
  WHEN("the last one answers yes") {
    cluster.groups.OnPrepared(GroupNumber(1), 3, 1, true, cluster.now);
    THEN("all are committed") {
      CHECK(cluster.Take(Kind::kCommit).size() == 2);
      CHECK(cluster.StateOf(1) == State::CREATED);
      CHECK(cluster.ledger.CanAcquireIn(GroupNumber(1), kAnyBundle, Parsed("CPU:1")));
      AND_WHEN("a node dies") {
        cluster.view.nodes[2].alive = false;
        cluster.view.nodes[4].total = cluster.view.nodes[4].available = Parsed("CPU:2");
        cluster.groups.OnNodeDead(2, cluster.now);
        THEN("only its bundle is placed anew") {
          const auto again = cluster.Take(Kind::kPrepare);
          REQUIRE(again.size() == 1);
          CHECK(again[0].node == 4);
          CHECK(again[0].bundles.size() == 1);
          cluster.groups.OnPrepared(GroupNumber(1), 4, 2, true, cluster.now);
          CHECK(cluster.StateOf(1) == State::CREATED);
          CHECK(cluster.groups.Find(GroupNumber(1))->nodes == Nodes{1, 4, 3});
        }
      }
    }
  }
  WHEN("the last one answers no") {
    cluster.groups.OnPrepared(GroupNumber(1), 3, 1, false, cluster.now);
    THEN("all give back, and it waits") {
      const auto returns = cluster.Take(Kind::kReturn);
      REQUIRE(returns.size() == 2);
      CHECK(cluster.ledger.available() == Parsed("CPU:1"));
      CHECK(cluster.StateOf(1) == State::PENDING);
      cluster.groups.OnPrepared(GroupNumber(1), 3, 1, true, cluster.now);  // Late.
      CHECK(cluster.StateOf(1) == State::PENDING);
    }
  }
  WHEN("it is removed before the last one answers") {
    cluster.groups.OnRemove(GroupNumber(1), cluster.now);
    cluster.groups.OnPrepared(GroupNumber(1), 3, 1, true, cluster.now);
    THEN("all give back") {
      CHECK(cluster.Take(Kind::kReturn).size() == 2);
      CHECK(cluster.ledger.available() == Parsed("CPU:1"));
    }
  }
  WHEN("a node dies before it answers") {
    cluster.view.nodes[3].alive = false;
    cluster.groups.OnNodeDead(3, cluster.now);
    THEN("the others give back") {
      CHECK(cluster.Take(Kind::kReturn).size() == 1);
      CHECK(cluster.ledger.available() == Parsed("CPU:1"));
      CHECK(cluster.StateOf(1) == State::INFEASIBLE);
    }
  }
}

SCENARIO("a process takes its groups with it, detached ones stay") {
  Cluster cluster("CPU:4");
  cluster.groups.OnCreate(Spec(1, PlacementGroupPolicy::kPack, {"CPU:1"}), kCreator, cluster.now);
  GroupSpec detached = Spec(2, PlacementGroupPolicy::kPack, {"CPU:1"});
  detached.detached = true;
  cluster.groups.OnCreate(detached, kCreator, cluster.now);
  cluster.groups.OnCreate(Spec(3, PlacementGroupPolicy::kPack, {"CPU:1"}), {1, 6}, cluster.now);
  cluster.groups.OnOwnerGone(kCreator, cluster.now);
  CHECK(cluster.StateOf(1) == State::REMOVED);
  CHECK(cluster.StateOf(2) == State::CREATED);
  CHECK(cluster.StateOf(3) == State::CREATED);
  CHECK(cluster.ledger.available() == Parsed("CPU:2"));
}

SCENARIO("requests of a peer are checked") {
  proto::GroupRequest request;
  request.set_id(GroupNumber(1).Binary());
  CHECK_FALSE(ParseGroupSpec(request).ok());  // No bundles.
  (*request.add_bundles()->mutable_amounts())["CPU"] = kUnit;
  request.set_placement(proto::GroupRequest::STRICT_SPREAD);
  REQUIRE(ParseGroupSpec(request).ok());
  CHECK(ParseGroupSpec(request)->policy == PlacementGroupPolicy::kStrictSpread);
  request.add_selectors();
  CHECK(ParseGroupSpec(request).ok());
  request.add_bundles();
  CHECK_FALSE(ParseGroupSpec(request).ok());  // An empty bundle, and one selector for two.
  request.set_id("short");
  CHECK_FALSE(ParseGroupSpec(request).ok());
}

SCENARIO("whatever nodes answer and whoever dies, all bundles come back") {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    INFO("seed " << seed);
    SeededRandom random(seed);
    Cluster cluster("CPU:4,GPU:2", {"CPU:4", "CPU:8,GPU:1", "CPU:2"});
    // What each other node set aside, as its own raylet would.
    std::map<NodeNumber, std::map<BundleId, Resources>> remote;
    std::vector<GroupAction> inbox;
    uint64_t next = 0;
    const auto deliver = [&] {
      for (GroupAction& action : cluster.groups.TakeActions()) {
        if (action.kind != Kind::kState) inbox.push_back(std::move(action));
      }
      while (!inbox.empty() && !random.OneIn(4)) {
        const GroupAction action = inbox.front();
        inbox.erase(inbox.begin());
        auto& bundles = remote[action.node];
        if (!cluster.view.nodes[action.node].alive) continue;
        Resources free = cluster.view.nodes[action.node].total;
        for (const auto& [bundle, resources] : bundles) free -= resources;
        Resources sum;
        for (const auto& [bundle, resources] : action.bundles) sum += resources;
        switch (action.kind) {
          case Kind::kPrepare: {
            const bool ok = free.Fits(sum) && !random.OneIn(10);
            for (const auto& [bundle, resources] : action.bundles) {
              if (ok) REQUIRE(bundles.emplace(bundle, resources).second);
            }
            cluster.groups.OnPrepared(action.group, action.node, action.attempt, ok, cluster.now);
            break;
          }
          case Kind::kCommit:
            for (const auto& [bundle, resources] : action.bundles)
              REQUIRE(bundles.contains(bundle));
            break;
          default:
            for (const auto& [bundle, resources] : action.bundles) bundles.erase(bundle);
        }
        for (GroupAction& more : cluster.groups.TakeActions()) {
          if (more.kind != Kind::kState) inbox.push_back(std::move(more));
        }
      }
    };
    for (int step = 0; step < 400; ++step) {
      const uint64_t what = random.Below(20);
      if (what < 10) {
        std::vector<std::string> bundles(1 + random.Below(4));
        for (std::string& bundle : bundles)
          bundle = random.OneIn(4) ? "CPU:1,GPU:0.5" : random.OneIn(3) ? "CPU:2" : "CPU:1";
        cluster.groups.OnCreate(
            Spec(++next, static_cast<PlacementGroupPolicy>(random.Below(4)), bundles), kCreator,
            cluster.now);
      } else if (what < 18) {
        cluster.groups.OnRemove(GroupNumber(1 + random.Below(next + 1)), cluster.now);
      } else if (what == 18) {
        for (auto& [number, node] : cluster.view.nodes) {  // A report of all nodes.
          if (number != 1) {
            node.available = node.total;
            for (const auto& [bundle, resources] : remote[number]) node.available -= resources;
          }
        }
        cluster.groups.OnRoom(cluster.now);
      } else if (random.OneIn(20)) {
        const NodeNumber node = static_cast<NodeNumber>(2 + random.Below(3));
        cluster.view.nodes[node].alive = false;
        remote.erase(node);
        cluster.groups.OnNodeDead(node, cluster.now);
      }
      deliver();
      REQUIRE(cluster.ledger.available().Missing({}).empty());
      REQUIRE(cluster.ledger.available().cpu() >= 0);
    }
    cluster.groups.OnOwnerGone(kCreator, cluster.now);
    while (!inbox.empty()) deliver();
    deliver();
    while (!inbox.empty()) deliver();
    CHECK(cluster.ledger.available() == cluster.ledger.total());
    CHECK(cluster.groups.pending() == 0);
    for (const auto& [node, bundles] : remote) CHECK(bundles.empty());
  }
}

}  // namespace placement_group_ledger_test
}  // namespace sheaf
