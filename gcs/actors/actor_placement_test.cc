// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Where detached actors start: the GCS counts what it has ordered, and follows labels, strategies
// and placement groups.
#include <catch2/catch.hpp>
#include <map>

#include "gcs/gcs_world_for_test.h"

namespace sheaf {
namespace actor_placement_test {

constexpr int64_t kCpu = 10'000;

// Nodes of two CPUs, a driver on the first, and detached actors of it.
class PlacementWorld : public GcsWorld {
 public:
  explicit PlacementWorld(int count) {
    for (int i = 0; i < count; ++i) nodes.push_back(AddNode());
    for (const NodeNumber node : nodes) ReportNode(node);
    job = AddJob(nodes[0]);
    driver = {nodes[0], 1};
  }
  static proto::LeaseSpec Lease(int64_t cpus, bool holds = true) {
    proto::LeaseSpec lease;
    (*lease.mutable_resources()->mutable_amounts())["CPU"] = cpus * kCpu;
    if (!holds) lease.mutable_running();
    return lease;
  }
  ActorId Make(const proto::LeaseSpec& lease) {
    const ActorId id = ActorId::Make(driver, ++made);
    proto::GcsRequest request;
    proto::RegisterActor* actor = request.mutable_register_actor();
    actor->set_actor_id(id.Binary());
    actor->set_job(job);
    actor->set_detached(true);
    *actor->mutable_lease() = lease;
    last_reply = Ask(driver, request);
    return id;
  }
  // The nodes that were told to start `id` since the last call, and which incarnation.
  std::vector<std::pair<NodeNumber, uint32_t>> Starts(const ActorId& id) {
    std::vector<std::pair<NodeNumber, uint32_t>> found;
    for (const NodeNumber node : nodes) {
      for (const proto::GcsEvent& event : TakeEvents(RayletOf(node))) {
        if (event.has_start_actor()) {
          starts[event.start_actor().actor_id()].emplace_back(node,
                                                              event.start_actor().incarnation());
        }
      }
    }
    found.swap(starts[id.Binary()]);
    return found;
  }
  NodeNumber NodeOf(const ActorId& id) {
    const auto found = Starts(id);
    return found.empty() ? 0 : found.back().first;
  }
  std::map<NodeNumber, int> Count(const std::vector<ActorId>& actors) {
    std::map<NodeNumber, int> count;
    for (const ActorId& id : actors) ++count[NodeOf(id)];
    return count;
  }
  void Free(NodeNumber node, int64_t cpus) {
    proto::GcsRequest request;
    (*request.mutable_heartbeat()->mutable_available()->mutable_amounts())["CPU"] = cpus * kCpu;
    Tell(RayletOf(node), request);
  }
  void Report(NodeNumber node, const ActorId& id, uint32_t incarnation, bool gives_back) {
    proto::GcsRequest request;
    proto::ActorStateReport* report = request.mutable_actor_state_report();
    report->set_actor_id(id.Binary());
    report->set_incarnation(incarnation);
    if (gives_back) {
      report->mutable_died()->set_cause(proto::Death::NODE_DIED);
    } else {
      report->set_pending("a worker");
    }
    Ask(RayletOf(node), request);
  }
  proto::ActorInfo Lookup(const ActorId& id) {
    proto::GcsRequest request;
    request.mutable_lookup_actor()->set_actor_id(id.Binary());
    return Ask(driver, request).actor();
  }
  NodeNumber AddLabelled(const std::string& zone) {
    proto::GcsRequest request;
    proto::RegisterNode* node = request.mutable_register_node();
    node->set_nonce(std::string(16, static_cast<char>('A' + nodes.size())));
    node->set_version(GcsOptions().version);
    (*node->mutable_total()->mutable_amounts())["CPU"] = 2 * kCpu;
    (*node->mutable_labels())["zone"] = zone;
    nodes.push_back(
        Ask({0, static_cast<uint32_t>(1000 + nodes.size())}, request).node_registered().node());
    return nodes.back();
  }

  std::vector<NodeNumber> nodes;
  JobNumber job = 0;
  ProcessId driver;
  uint64_t made = 0;
  proto::GcsReply last_reply;
  std::map<std::string, std::vector<std::pair<NodeNumber, uint32_t>>> starts;
};

SCENARIO("what was ordered from a node counts as taken there until it reports") {
  PlacementWorld world(3);
  std::vector<ActorId> actors;
  for (int i = 0; i < 6; ++i) actors.push_back(world.Make(PlacementWorld::Lease(1)));
  CHECK(world.Count(actors) ==
        std::map<NodeNumber, int>{{world.nodes[0], 2}, {world.nodes[1], 2}, {world.nodes[2], 2}});
  WHEN("it has reported them, and says what is free") {
    for (const ActorId& id : actors) {
      for (const NodeNumber node : world.nodes) world.Report(node, id, 7, false);  // Not current.
    }
    proto::GcsRequest end;
    world.Free(world.nodes[1], 2);  // Said before it had them.
    CHECK(world.NodeOf(world.Make(PlacementWorld::Lease(2))) != 0);
    for (const ActorId& id : actors) world.Report(world.nodes[1], id, 1, false);
    world.Free(world.nodes[1], 2);
    CHECK(world.NodeOf(world.Make(PlacementWorld::Lease(2))) == world.nodes[1]);
  }
}

SCENARIO("actors that hold nothing while they run are spread") {
  PlacementWorld world(3);
  std::vector<ActorId> actors;
  for (int i = 0; i < 6; ++i) actors.push_back(world.Make(PlacementWorld::Lease(1, false)));
  CHECK(world.Count(actors) ==
        std::map<NodeNumber, int>{{world.nodes[0], 2}, {world.nodes[1], 2}, {world.nodes[2], 2}});
}

SCENARIO("SPREAD takes one node after the other") {
  PlacementWorld world(3);
  proto::LeaseSpec lease = PlacementWorld::Lease(1);
  lease.mutable_strategy()->set_kind(proto::Strategy::SPREAD);
  std::vector<ActorId> actors;
  for (int i = 0; i < 3; ++i) actors.push_back(world.Make(lease));
  CHECK(world.Count(actors).size() == 3);
}

SCENARIO("labels are followed, and what no node satisfies waits with words") {
  PlacementWorld world(2);
  proto::LeaseSpec lease = PlacementWorld::Lease(1);
  proto::LabelTerm* term = lease.mutable_strategy()->add_selectors()->add_terms();
  term->set_key("zone");
  term->add_values("b");
  const ActorId id = world.Make(lease);
  world.Pass(2 * kSecond, world.nodes);
  CHECK(world.Starts(id).empty());
  CHECK_THAT(world.Lookup(id).words(), Catch::Contains("zone in (b)"));
  const NodeNumber right = world.AddLabelled("b");
  world.Pass(kSecond, world.nodes);
  CHECK(world.NodeOf(id) == right);
}

SCENARIO("a raylet that gives an actor back is not asked again at once") {
  PlacementWorld world(2);
  const ActorId id = world.Make(PlacementWorld::Lease(1));
  const NodeNumber first = world.NodeOf(id);
  const NodeNumber second = first == world.nodes[0] ? world.nodes[1] : world.nodes[0];
  world.Report(first, id, 1, true);
  CHECK(world.Starts(id) == std::vector<std::pair<NodeNumber, uint32_t>>{{second, 2}});
  CHECK(world.Lookup(id).restarts() == 0);
  THEN("the other one may give it back as well") {
    world.Report(second, id, 2, true);
    CHECK(world.Starts(id) == std::vector<std::pair<NodeNumber, uint32_t>>{{first, 3}});
  }
  THEN("where there is no other it is asked again, less and less often") {
    proto::GcsRequest drain;
    drain.mutable_unregister_node()->set_node(first);
    drain.mutable_unregister_node()->set_drain_only(true);
    world.Ask(world.driver, drain);
    size_t asked = 0;
    uint32_t incarnation = 2;
    for (int i = 0; i < 100; ++i) {
      world.Report(second, id, incarnation, true);
      world.Pass(100 * kMillisecond, world.nodes);
      const auto again = world.Starts(id);
      if (again.empty()) continue;
      ++asked;
      incarnation = again.back().second;
    }
    CHECK(asked >= 4);
    CHECK(asked <= 12);
  }
}

SCENARIO("an actor in a placement group goes to its bundle") {
  PlacementWorld world(3);
  const PlacementGroupId group = PlacementGroupId::Make(world.driver, 77);
  proto::LeaseSpec lease = PlacementWorld::Lease(1);
  lease.mutable_strategy()->set_kind(proto::Strategy::PLACEMENT_GROUP);
  lease.mutable_strategy()->set_group_id(group.Binary());
  lease.mutable_strategy()->set_bundle(1);
  const auto placed = [&](uint32_t number) {
    proto::GcsRequest request;
    proto::GroupReport* report = request.mutable_group_report();
    report->set_group_id(group.Binary());
    report->set_placement_number(number);
    report->set_state(proto::GroupInfo::CREATED);
    report->add_bundle_nodes(world.nodes[1]);
    report->add_bundle_nodes(world.nodes[2]);
    world.Ask(RayletOf(world.nodes[0]), request);
  };
  WHEN("it is detached") {
    proto::GcsRequest request;
    proto::RegisterGroup* made = request.mutable_register_group();
    made->set_group_id(group.Binary());
    made->set_detached(true);
    made->add_bundles();
    made->add_bundles();
    world.Ask(RayletOf(world.nodes[0]), request);
    const ActorId id = world.Make(lease);
    CHECK(world.Starts(id).empty());
    CHECK_THAT(world.Lookup(id).words(), Catch::Contains("not placed yet"));
    placed(1);
    world.Pass(kSecond, world.nodes);
    CHECK(world.NodeOf(id) == world.nodes[2]);
  }
  WHEN("only the raylet of its creator knows it, that one is asked and tells") {
    const ActorId id = world.Make(lease);
    CHECK(world.NodeOf(id) == world.nodes[0]);
    placed(0);
    world.Report(world.nodes[0], id, 1, true);
    CHECK(world.Starts(id) == std::vector<std::pair<NodeNumber, uint32_t>>{{world.nodes[2], 2}});
  }
  WHEN("that one takes no new work, as the node of a driver outside of the cluster") {
    proto::GcsRequest drain;
    drain.mutable_unregister_node()->set_node(world.nodes[0]);
    drain.mutable_unregister_node()->set_drain_only(true);
    world.Ask(world.driver, drain);
    const ActorId id = world.Make(lease);
    CHECK(world.NodeOf(id) == world.nodes[0]);
    placed(0);
    world.Report(world.nodes[0], id, 1, true);
    CHECK(world.Starts(id) == std::vector<std::pair<NodeNumber, uint32_t>>{{world.nodes[2], 2}});
  }
  WHEN("the node with its bundle drains") {
    const ActorId id = world.Make(lease);
    world.Starts(id);
    placed(0);
    proto::GcsRequest drain;
    drain.mutable_unregister_node()->set_node(world.nodes[2]);
    drain.mutable_unregister_node()->set_drain_only(true);
    world.Ask(world.driver, drain);
    world.Report(world.nodes[0], id, 1, true);
    THEN("it starts there all the same: the bundle is its own") {
      CHECK(world.Starts(id) == std::vector<std::pair<NodeNumber, uint32_t>>{{world.nodes[2], 2}});
    }
  }
  WHEN("the raylet that tells has not heard yet that the node of its bundle is dead") {
    const ActorId id = world.Make(lease);
    world.Starts(id);
    world.Pass(8 * kSecond, {world.nodes[0], world.nodes[1]});
    placed(0);
    world.Report(world.nodes[0], id, 1, true);
    THEN("it is asked again") {
      world.Pass(kSecond, {world.nodes[0], world.nodes[1]});
      CHECK(world.NodeOf(id) == world.nodes[0]);
    }
  }
  WHEN("its creator's node is dead, so is it") {
    world.job = world.AddJob(world.nodes[1]);
    world.Pass(8 * kSecond, {world.nodes[1], world.nodes[2]});
    world.driver = {world.nodes[1], 1};
    const ActorId id = world.Make(lease);
    CHECK(world.Lookup(id).state() == proto::ActorInfo::DEAD);
    CHECK_THAT(world.Lookup(id).death().message(), Catch::Contains("was removed"));
  }
}

SCENARIO(
    "a job that is over makes no detached actors, as its code is gone; one that left some does") {
  PlacementWorld world(2);
  const bool left_some = GENERATE(false, true);
  proto::LeaseSpec elsewhere = PlacementWorld::Lease(1);
  elsewhere.mutable_strategy()->set_kind(proto::Strategy::NODE_AFFINITY);
  elsewhere.mutable_strategy()->set_node(world.nodes[1]);
  if (left_some) world.Make(elsewhere);
  world.AddJob(world.nodes[1]);
  world.Pass(8 * kSecond, {world.nodes[1]});  // The driver's node dies.
  world.driver = {world.nodes[1], 1};
  world.Make(PlacementWorld::Lease(1));
  CHECK_THAT(world.last_reply.message(),
             left_some ? Catch::Equals("") : Catch::Equals("job 1 is over"));
}

SCENARIO("an actor bound to a node that is gone ends, and says so") {
  PlacementWorld world(2);
  proto::LeaseSpec lease = PlacementWorld::Lease(1);
  lease.mutable_strategy()->set_kind(proto::Strategy::NODE_AFFINITY);
  lease.mutable_strategy()->set_node(99);
  const ActorId id = world.Make(lease);
  CHECK(world.Lookup(id).state() == proto::ActorInfo::DEAD);
  CHECK_THAT(world.Lookup(id).death().message(), Catch::Contains("node 99"));
}

SCENARIO("a detached actor that asks for nonsense is refused") {
  PlacementWorld world(1);
  world.Make(PlacementWorld::Lease(-1));
  CHECK(Is(world.last_reply, ErrorKind::kInvalidArgument));
}

}  // namespace actor_placement_test
}  // namespace sheaf
