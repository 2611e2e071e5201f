// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The view of the cluster, from what the GCS streams.
#include "raylet/cluster/cluster_follower.h"

#include <catch2/catch.hpp>

#include "raylet/node_parts_for_test.h"

namespace sheaf {
namespace cluster_follower_test {

struct Node : NodeParts, ClusterFollower::Observer {
  void OnRoom() override { ++rooms; }
  void OnNodeDead(NodeNumber node, const std::string& reason) override {
    dead.emplace_back(node, reason);
  }
  void OnDraining() override { ++drains; }
  void OnJobOver(const proto::JobInfo& job) override { over.push_back(job.job()); }

  int rooms = 0;
  int drains = 0;
  std::vector<std::pair<NodeNumber, std::string>> dead;
  std::vector<JobNumber> over;
  ClusterFollower follower{{.options = options,
                            .clock = clock,
                            .gcs = gcs,
                            .links = links,
                            .queue = queue,
                            .view = view,
                            .deaths = deaths,
                            .observer = *this}};

  // Subscribes; the GCS answers with these nodes, as number `number` of its changes.
  void Follow(const std::vector<NodeNumber>& nodes, uint64_t number = 1) {
    view.complete = false;
    follower.Follow();
    for (const proto::GcsRequest& request : Asked()) {
      REQUIRE(request.has_subscribe());
      proto::GcsReply reply;
      proto::Snapshot& snapshot = *reply.mutable_snapshot();
      snapshot.set_number(number);
      if (request.subscribe().channel() == proto::Subscribe::NODES) {
        for (const NodeNumber node : nodes) *snapshot.add_items() = Is(node);
      }
      Answer(request, reply);
    }
  }
  static proto::Change Is(NodeNumber node, proto::NodeInfo::State state = proto::NodeInfo::ALIVE,
                          double cpus = 4) {
    proto::Change change;
    change.mutable_node()->set_node(node);
    change.mutable_node()->set_state(state);
    change.mutable_node()->set_address("host:1");
    Resources::Cpu(cpus).ToMap(*change.mutable_node()->mutable_total()->mutable_amounts());
    *change.mutable_node()->mutable_available() = change.node().total();
    return change;
  }
  void Delta(uint64_t number, const proto::Change& change) {
    proto::Delta delta;
    delta.set_subscription(1);
    delta.set_number(number);
    *delta.mutable_change() = change;
    follower.OnDelta(delta);
  }
};

SCENARIO("the view is complete when the GCS has listed the nodes") {
  Node node;
  node.Follow({1, 2});
  CHECK(node.view.complete);
  CHECK(node.view.nodes.at(2).total == Resources::Cpu(4));
  CHECK(node.links.addresses.at(2) == "host:1");
  CHECK(node.view.nodes.at(1).total == Resources::Cpu(2));  // Of itself it knows better.
}

SCENARIO("changes come in order; when one is missing the GCS is asked anew") {
  Node node;
  node.Follow({1, 2});
  node.Delta(2, Node::Is(3));
  CHECK(node.view.nodes.contains(3));
  node.Delta(2, Node::Is(9));  // A repeat.
  CHECK_FALSE(node.view.nodes.contains(9));
  CHECK(node.Asked().empty());
  node.Delta(4, Node::Is(5));
  CHECK_FALSE(node.view.nodes.contains(5));
  const auto asked = node.Asked();
  REQUIRE(asked.size() == 1);
  CHECK(asked[0].subscribe().known_number() == 2);
  node.Delta(5, Node::Is(6));  // The answer will have it.
  CHECK_FALSE(node.view.nodes.contains(6));
}

SCENARIO("a node dies once") {
  Node node;
  node.Follow({1, 2});
  proto::Change change = Node::Is(2, proto::NodeInfo::DEAD);
  change.mutable_node()->set_death("no heartbeat");
  node.Delta(2, change);
  REQUIRE(node.dead.size() == 1);
  CHECK(node.dead[0].second == "node 2 is dead: no heartbeat");
  CHECK(node.deaths.IsNodeDead(2));
  node.Delta(3, Node::Is(2));  // Numbers are never used again.
  CHECK_FALSE(node.view.nodes.at(2).alive);
  node.Delta(4, Node::Is(8, proto::NodeInfo::DEAD));  // Never seen alive.
  CHECK(node.dead.size() == 1);
  CHECK_FALSE(node.view.nodes.contains(8));
}

SCENARIO("who is missing in a list of all nodes is dead, but for those that are newer") {
  Node node;
  node.Follow({1, 2, 3});
  node.follower.OnHeard(9);
  node.Follow({1, 3});
  REQUIRE(node.dead.size() == 1);
  CHECK(node.dead[0].first == 2);
  CHECK(node.view.nodes.at(9).alive);
  CHECK(node.view.nodes.at(9).draining);  // Gets no work before the GCS has described it.
}

SCENARIO("of many dead nodes the last stay in the view, and all stay dead") {
  Node node;
  std::vector<NodeNumber> nodes;
  for (NodeNumber i = 2; i < 80; ++i) nodes.push_back(i);
  node.Follow(nodes);
  for (NodeNumber i = 2; i < 80; ++i) node.Delta(i, Node::Is(i, proto::NodeInfo::DEAD));
  CHECK(node.view.nodes.size() == 65);
  CHECK_FALSE(node.view.nodes.contains(2));
  CHECK(node.deaths.IsNodeDead(2));
}

SCENARIO("what was handed to a node counts until it is over") {
  Node node;
  node.Follow({1, 2});
  node.view.nodes[2].available -= Resources::Cpu(1);
  node.follower.Tick();
  CHECK(node.view.nodes[2].available == Resources::Cpu(4));  // As it said last.
  node.view.nodes[2].available -= Resources::Cpu(1);
  node.view.nodes[2].refuses = true;
  node.follower.Tick();
  CHECK(node.view.nodes[2].available == Resources::Cpu(3));
  CHECK_FALSE(node.view.nodes[2].usable());
  node.clock.Advance(2 * kSecond);
  node.rooms = 0;
  node.follower.Tick();
  CHECK(node.view.nodes[2].available == Resources::Cpu(4));
  CHECK(node.view.nodes[2].usable());
  CHECK(node.rooms == 1);
}

SCENARIO("what nodes have free comes in one message") {
  Node node;
  node.Follow({1, 2});
  proto::NodeLoads loads;
  proto::LoadColumn& column = *loads.add_columns();
  column.set_resource("CPU");
  column.set_unit(kUnit);
  for (const uint32_t step : {1, 1, 7}) {  // This node, node 2, and one that is not known.
    column.add_nodes(step);
    column.add_amounts(1);
  }
  proto::Delta delta;
  delta.set_subscription(1);
  delta.set_number(2);
  delta.set_loads(loads.SerializeAsString());
  node.follower.OnDelta(delta);
  CHECK(node.view.nodes.at(2).available == Resources::Cpu(1));
  delta.set_number(3);
  delta.set_loads("\xff");
  node.follower.OnDelta(delta);
  CHECK(node.view.nodes.at(2).available == Resources::Cpu(1));
}

SCENARIO("this node drains once; a silent link keeps new work away from its node") {
  Node node;
  node.Follow({1, 2});
  node.Delta(2, Node::Is(1, proto::NodeInfo::DRAINING));
  node.Delta(3, Node::Is(1, proto::NodeInfo::DRAINING));
  CHECK(node.drains == 1);
  CHECK(node.view.here().draining);
  node.follower.OnNodeLink(2, false);
  CHECK_FALSE(node.view.nodes.at(2).heard);
  node.follower.OnNodeLink(2, true);
  CHECK(node.view.nodes.at(2).heard);
}

SCENARIO("jobs that are over are passed on") {
  Node node;
  node.Follow({1});
  proto::Delta delta;
  delta.set_subscription(2);
  for (const auto state : {proto::JobInfo::RUNNING, proto::JobInfo::FAILED}) {
    delta.set_number(state == proto::JobInfo::RUNNING ? 2 : 3);
    delta.mutable_change()->mutable_job()->set_job(7);
    delta.mutable_change()->mutable_job()->set_state(state);
    node.follower.OnDelta(delta);
    CHECK(node.over.size() == (state == proto::JobInfo::RUNNING ? 0 : 1));
  }
}

SCENARIO("a GCS that refuses is asked again") {
  Node node;
  node.follower.Follow();
  for (const proto::GcsRequest& request : node.Asked()) {
    proto::GcsReply reply;
    reply.set_error(1);
    node.Answer(request, reply);
  }
  node.follower.Tick();
  CHECK(node.Asked().empty());
  node.clock.Advance(2 * kSecond);
  node.follower.Tick();
  CHECK(node.Asked().size() == 2);
}

SCENARIO("a node that takes no work says so at once") {
  Node node;
  node.options.takes_work = false;
  node.follower.Follow();
  const auto asked = node.Asked();
  REQUIRE(asked.size() == 3);
  CHECK(asked[2].unregister_node().drain_only());
}

}  // namespace cluster_follower_test
}  // namespace sheaf
