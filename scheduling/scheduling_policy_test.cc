// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "scheduling/scheduling_policy.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <set>

namespace sheaf {
namespace {

using Kind = Placement::Kind;
const PlacementGroupId kGroup = PlacementGroupId::Make({1, 1}, 7);

NodeView Node(const char* total, const char* available, Labels labels = {}) {
  NodeView node;
  node.total = ParseResources(total).value();
  node.available = ParseResources(available).value();
  node.labels = std::move(labels);
  return node;
}

LeaseSpec Wants(const char* resources, StrategyKind kind = StrategyKind::kHybrid) {
  LeaseSpec spec;
  spec.resources = ParseResources(resources).value();
  spec.running = spec.resources;
  spec.strategy.kind = kind;
  return spec;
}

bool operator==(const Placement& a, const Placement& b) {
  return a.kind == b.kind && (a.kind != Kind::kNode || a.node == b.node);
}
Placement At(NodeNumber node) { return {Kind::kNode, node}; }

ClusterView ThreeNodes() {
  ClusterView view;
  view.local = 2;
  view.nodes[1] = Node("CPU:4", "CPU:4", {{"zone", "a"}});
  view.nodes[2] = Node("CPU:4", "CPU:4", {{"zone", "b"}});
  view.nodes[3] = Node("CPU:4", "CPU:4", {{"zone", "b"}, {"disk", "ssd"}});
  return view;
}

}  // namespace

SCENARIO("hybrid packs nodes half full, the local one first, then takes the least loaded") {
  ClusterView view = ThreeNodes();
  std::map<NodeNumber, int> placed;
  std::vector<NodeNumber> order;
  for (int i = 0; i < 12; ++i) {
    const Placement placement = Place(Wants("CPU:1"), view);
    REQUIRE(placement.kind == Kind::kNode);
    order.push_back(placement.node);
    view.nodes[placement.node].available -= Resources::Cpu(1);
  }
  CHECK(order == std::vector<NodeNumber>{2, 2, 1, 1, 3, 3, 2, 1, 3, 2, 1, 3});
  CHECK((Place(Wants("CPU:1"), view) == Placement{Kind::kWait}));
  CHECK((Place(Wants(""), view) == At(2)));
}

SCENARIO("work without GPUs leaves nodes with GPUs alone while others have room") {
  ClusterView view = ThreeNodes();
  view.nodes[2].available = {};
  view.nodes[1].total.Set("GPU", kUnit);
  view.nodes[1].available.Set("GPU", kUnit);
  CHECK((Place(Wants("CPU:1"), view) == At(3)));
  CHECK((Place(Wants("CPU:1,GPU:1"), view) == At(1)));
}

SCENARIO("the node with most argument bytes comes first if it has room") {
  ClusterView view = ThreeNodes();
  const ArgumentBytes bytes = {{1, 10}, {3, 20}, {9, 99}};
  PolicyContext context;
  context.argument_bytes = &bytes;
  CHECK((Place(Wants("CPU:1"), view, context) == At(2)));  // Node 9 is unknown.
  const ArgumentBytes known = {{1, 10}, {3, 20}};
  context.argument_bytes = &known;
  CHECK((Place(Wants("CPU:1"), view, context) == At(3)));
  view.nodes[3].available = {};
  CHECK((Place(Wants("CPU:1"), view, context) == At(2)));
}

SCENARIO("spread visits the nodes in turn") {
  ClusterView view = ThreeNodes();
  const LeaseSpec spec = Wants("CPU:1", StrategyKind::kSpread);
  PolicyContext context;
  CHECK((Place(spec, view, context) == At(1)));
  context.last_spread = 1;
  CHECK((Place(spec, view, context) == At(2)));
  view.nodes[2].draining = true;
  CHECK((Place(spec, view, context) == At(3)));
  context.last_spread = 3;
  CHECK((Place(spec, view, context) == At(1)));
}

SCENARIO("node affinity: hard waits for its node, soft goes elsewhere when that cannot hold it") {
  ClusterView view = ThreeNodes();
  LeaseSpec spec = Wants("CPU:2", StrategyKind::kNodeAffinity);
  spec.strategy.node = 3;
  CHECK((Place(spec, view) == At(3)));
  view.nodes[3].available = {};
  CHECK((Place(spec, view) == Placement{Kind::kWait}));
  CHECK_FALSE(CouldHold(spec, view, 2));
  view.nodes[3].available = view.nodes[3].total;
  for (bool NodeView::* const takes_nothing : {&NodeView::draining, &NodeView::refuses}) {
    view.nodes[3].*takes_nothing = true;
    CHECK((Place(spec, view) == Placement{Kind::kWait}));
    view.nodes[3].*takes_nothing = false;
  }
  view.nodes[3].alive = false;
  CHECK((Place(spec, view) == Placement{Kind::kNodeGone}));
  spec.strategy.soft = true;
  CHECK((Place(spec, view) == At(2)));
  CHECK(CouldHold(spec, view, 2));
  spec.strategy.node = 77;
  CHECK((Place(spec, view) == At(2)));
  spec.strategy.soft = false;
  CHECK((Place(spec, view) == Placement{Kind::kNodeGone}));
  view.complete = false;  // It may be among those that the GCS has yet to list.
  CHECK((Place(spec, view) == Placement{Kind::kInfeasible}));
  view.complete = true;
  spec = Wants("CPU:5", StrategyKind::kNodeAffinity);
  spec.strategy.node = 1;
  CHECK((Place(spec, view) == Placement{Kind::kNodeUnfit}));
  CHECK(InfeasibleWords(spec, view) ==
        "node 1 has at most 4 CPU, 5 CPU are asked for; add a larger node or lower the request");
}

SCENARIO("a node that this one does not hear gets what only it can take") {
  ClusterView view = ThreeNodes();
  view.nodes[3].heard = false;
  view.nodes[2].available = {};
  CHECK((Place(Wants("CPU:1"), view) == At(1)));
  CHECK((Place(Wants("CPU:1", StrategyKind::kSpread), view, {.last_spread = 1}) == At(1)));
  const ArgumentBytes bytes = {{3, 20}};
  CHECK((Place(Wants("CPU:1"), view, {.argument_bytes = &bytes}) == At(1)));
  LeaseSpec bound = Wants("CPU:1", StrategyKind::kNodeAffinity);
  bound.strategy.node = 3;
  CHECK((Place(bound, view) == At(3)));
  bound.strategy.soft = true;
  CHECK((Place(bound, view) == At(1)));
  view.nodes[1].available = {};
  CHECK((Place(Wants("CPU:1"), view) == Placement{Kind::kWait}));  // It may be heard again.
}

SCENARIO("label selectors: the first that some node satisfies counts") {
  ClusterView view = ThreeNodes();
  LeaseSpec spec = Wants("CPU:1");
  spec.strategy.selectors = {{{{"zone", {"c"}}}}, {{{"zone", {"a", "b"}}, {"disk", {"ssd"}}}}};
  CHECK((Place(spec, view) == At(3)));
  CHECK_FALSE(CouldHold(spec, view, 2));
  view.nodes[3].available = {};
  CHECK((Place(spec, view) == Placement{Kind::kWait}));  // Node 3 could, later.
  spec.strategy.selectors = {{{{"zone", {"b"}, true}}}};
  CHECK((Place(spec, view) == At(1)));
  spec.strategy.selectors = {{{{"zone", {"c"}}}}, {{{"disk", {"ssd"}, true}, {"zone", {"d"}}}}};
  CHECK((Place(spec, view) == Placement{Kind::kInfeasible}));
  CHECK(InfeasibleWords(spec, view) ==
        "no node that has 1 CPU matches the labels zone in (c), nor disk not in (ssd) and zone in "
        "(d)");
}

SCENARIO("with hard affinity the labels of that node alone count") {
  ClusterView view = ThreeNodes();
  LeaseSpec spec = Wants("CPU:1", StrategyKind::kNodeAffinity);
  spec.strategy.node = 1;
  spec.strategy.selectors = {{{{"zone", {"b"}}}}, {{{"zone", {"a"}}}}};  // Others have the first.
  CHECK((Place(spec, view) == At(1)));
  spec.strategy.selectors = {{{{"zone", {"b"}}}}};
  CHECK((Place(spec, view) == Placement{Kind::kNodeUnfit}));
}

SCENARIO("a placement group names the nodes of its bundles") {
  ClusterView view = ThreeNodes();
  LeaseSpec spec = Wants("CPU:1", StrategyKind::kPlacementGroup);
  spec.strategy.group = kGroup;
  CHECK((Place(spec, view) == Placement{Kind::kWait}));
  view.groups[kGroup] = {GroupPlacement::State::kCreated, {1, 3, 2}};
  CHECK((Place(spec, view) == At(2)));  // Any bundle: the local node has one.
  spec.strategy.bundle = 1;
  CHECK((Place(spec, view) == At(3)));
  spec.strategy.bundle = 3;
  CHECK((Place(spec, view) == Placement{Kind::kInfeasible}));
  CHECK(InfeasibleWords(spec, view) == "the placement group has 3 bundles, there is no bundle 3");
  view.groups[kGroup].state = GroupPlacement::State::kRemoved;
  CHECK((Place(spec, view) == Placement{Kind::kGroupGone}));
}

SCENARIO("what no node can ever hold is said in words") {
  ClusterView view = ThreeNodes();
  CHECK((Place(Wants("slot:1"), view) == Placement{Kind::kInfeasible}));
  CHECK(InfeasibleWords(Wants("slot:1"), view) ==
        "no node has the resource 'slot'; add a node with it or lower the request");
  CHECK(
      InfeasibleWords(Wants("CPU:64"), view) ==
      "no node has more than 4 CPU, 64 CPU are asked for; add a larger node or lower the request");
  view.nodes[1].total.Set("GPU", kUnit);
  view.nodes[1].total.Set("CPU", kUnit);
  CHECK(InfeasibleWords(Wants("CPU:4,GPU:1"), view) ==
        "no node has 4 CPU, 1 GPU together; add a larger node or lower the request");
  view.nodes[1].alive = view.nodes[2].alive = view.nodes[3].alive = false;
  CHECK(InfeasibleWords(Wants("CPU:1"), view) == "no node takes work: all are draining or dead");
}

SCENARIO("of many nodes to fill, raylets that choose at the same time choose different ones") {
  ClusterView view;
  view.local = 100;
  for (NodeNumber node = 1; node <= 100; ++node)
    view.nodes[node] = Node("CPU:4", node == view.local ? "CPU:0" : "CPU:4");
  CHECK((Place(Wants("CPU:1"), view) == At(1)));
  std::set<NodeNumber> chosen;
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    SeededRandom random(seed);
    PolicyContext context;
    context.random = &random;
    chosen.insert(Place(Wants("CPU:1"), view, context).node);
  }
  CHECK(chosen.size() >= 15);
  CHECK(*chosen.rbegin() <= 20);  // The others stay empty, for what needs a whole node.
}

SCENARIO(
    "in a large cluster each raylet begins behind its own node, in a small one with the first") {
  ClusterView view;
  const auto first_choice = [&](NodeNumber local, NodeNumber nodes) {
    view.nodes.clear();
    view.local = local;
    for (NodeNumber node = 1; node <= nodes; ++node)
      view.nodes[node] = Node("CPU:4", node == local ? "CPU:0" : "CPU:4");
    return Place(Wants("CPU:1"), view);
  };
  CHECK((first_choice(300, 1'000) == At(301)));
  CHECK((first_choice(1'000, 1'000) == At(1)));
  CHECK((first_choice(30, 50) == At(1)));
  // Those whose nodes are some way apart meet nowhere.
  std::set<NodeNumber> chosen;
  for (NodeNumber local = 50; local <= 950; local += 50) {
    first_choice(local, 1'000);
    for (uint64_t seed = 1; seed <= 20; ++seed) {
      SeededRandom random(seed);
      PolicyContext context;
      context.random = &random;
      const NodeNumber node = Place(Wants("CPU:1"), view, context).node;
      CHECK(node > local);
      CHECK(node <= local + 20);
    }
  }
}

SCENARIO("a thousand nodes are filled to the last core, and equal seeds choose equally") {
  const auto fill = [](uint64_t seed, bool goes_on) {
    SeededRandom random(seed);
    ClusterView view;
    view.local = 501;
    for (NodeNumber node = 1; node <= 1'000; ++node) {
      view.nodes[node] = Node("CPU:4", "CPU:4");
      if (node % 10 == 0) view.nodes[node].total.Set("GPU", kUnit);
    }
    NodeSearch search;
    PolicyContext context;
    context.search = goes_on ? &search : nullptr;
    context.random = &random;
    std::vector<NodeNumber> chosen;
    for (;;) {
      const Placement placement = Place(Wants("CPU:1"), view, context);
      if (placement.kind != Kind::kNode) break;
      view.nodes[placement.node].available -= Resources::Cpu(1);
      chosen.push_back(placement.node);
    }
    return chosen;
  };
  const std::vector<NodeNumber> first = fill(1, false);
  CHECK(first.size() == 4'000);
  CHECK(first == fill(1, false));
  // A search that goes on finds all of them, too, and those with GPUs last.
  const std::vector<NodeNumber> second = fill(1, true);
  CHECK(second.size() == 4'000);
  CHECK(second == fill(1, true));
  const auto with_gpus =
      std::find_if(second.begin(), second.end(), [](NodeNumber node) { return node % 10 == 0; });
  CHECK(with_gpus - second.begin() == 3'600);
}

}  // namespace sheaf
