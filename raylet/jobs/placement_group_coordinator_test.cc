// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Placement groups between processes, the GCS and the raylets of other nodes.
#include "raylet/jobs/placement_group_coordinator.h"

#include <catch2/catch.hpp>

#include "raylet/jobs/job_parts_for_test.h"

namespace sheaf {
namespace placement_group_coordinator_test {

using State = proto::GroupState;

struct Node : JobParts {
  ProcessId driver = Attach(ProcessRole::kDriver);

  // A group of the driver with bundles of a CPU each.
  proto::GroupRequest GroupOf(int bundles) const {
    proto::GroupRequest request;
    request.set_id(PlacementGroupId::Make(driver, 77).Binary());
    for (int i = 0; i < bundles; ++i)
      Resources::Cpu(1).ToMap(*request.add_bundles()->mutable_amounts());
    return request;
  }
  void Say(ProcessId from, proto::GroupRequest request,
           proto::GroupRequest::Action action = proto::GroupRequest::CREATE) {
    request.set_action(action);
    REQUIRE(groups.OnRequest(from, Of(FrameKind::kGroupRequest, request)).ok());
    Settle();
  }
  void Settle() {
    while (groups.Settle()) {
    }
  }
  // The last that `process` heard of a group.
  std::optional<State> Heard(ProcessId process) {
    const auto states = Received<State>(process, FrameKind::kGroupState);
    return states.empty() ? std::nullopt : std::optional(states.back());
  }
  void Bundles(ProcessId from, FrameKind kind, PlacementGroupId id, uint32_t index) {
    proto::Bundles message;
    message.set_group_id(id.Binary());
    message.set_attempt(1);
    message.set_ok(true);
    if (kind != FrameKind::kBundlesPrepared) {
      message.add_indexes(index);
      Resources::Cpu(1).ToMap(*message.add_resources()->mutable_amounts());
    }
    REQUIRE(groups.OnBundles(from, Of(kind, message)).ok());
    Settle();
  }
  void Registered(const proto::GcsRequest& request, uint32_t number) {
    proto::GcsReply reply;
    reply.mutable_group()->set_group_id(request.register_group().group_id());
    reply.mutable_group()->set_name(request.register_group().name());
    reply.mutable_group()->set_placement_number(number);
    Answer(request, reply);
    Settle();
  }

  // --- A group that a process of node 2 has made.
  const PlacementGroupId far = PlacementGroupId::Make({2, 7}, 1);
  proto::GroupRequest FarRequest() const {
    proto::GroupRequest request;
    request.set_id(far.Binary());
    return request;
  }
  void Die(NodeNumber node) {
    view.nodes[node].alive = false;
    groups.OnNodeDead(node);
    Settle();
  }
  // The questions about it that the GCS has got since the last time.
  std::vector<proto::GcsRequest> Lookups() {
    std::vector<proto::GcsRequest> found;
    for (const proto::GcsRequest& request : Asked()) {
      if (request.lookup_group().group_id() == far.Binary()) found.push_back(request);
    }
    return found;
  }
  // The GCS answers the one question that there is: `raylet` places it.
  void Placed(NodeNumber raylet, bool detached = true) {
    const auto asked = Lookups();
    REQUIRE(asked.size() == 1);
    proto::GcsReply reply;
    reply.mutable_group()->set_group_id(far.Binary());
    reply.mutable_group()->set_detached(detached);
    reply.mutable_group()->set_raylet(raylet);
    Answer(asked[0], reply);
    Settle();
  }
  void Missing() {
    const auto asked = Lookups();
    REQUIRE(asked.size() == 1);
    proto::GcsReply reply;
    reply.set_error(static_cast<uint32_t>(ErrorKind::kNotFound));
    Answer(asked[0], reply);
    Settle();
  }
  void Says(State::State state, std::vector<uint32_t> nodes = {}) {
    State message;
    message.set_id(far.Binary());
    message.set_state(state);
    message.mutable_bundle_nodes()->Assign(nodes.begin(), nodes.end());
    REQUIRE(groups.OnState(Of(FrameKind::kGroupState, message)).ok());
    Settle();
  }
  size_t WatchesAt(NodeNumber node) {
    size_t watches = 0;
    for (const auto& request :
         Received<proto::GroupRequest>(RayletOf(node), FrameKind::kGroupRequest))
      watches += request.action() == proto::GroupRequest::WATCH;
    return watches;
  }
  // A task in it is asked for.
  void Follow() {
    proto::LeaseSpec spec;
    spec.mutable_strategy()->set_kind(proto::Strategy::PLACEMENT_GROUP);
    spec.mutable_strategy()->set_group_id(far.Binary());
    groups.FollowGroupOf(spec);
  }
};

SCENARIO("a group without a name is this raylet's alone") {
  Node node;
  const ProcessId watcher = node.Attach(ProcessRole::kWorker);
  node.Say(node.driver, node.GroupOf(2));
  REQUIRE(node.Heard(node.driver)->state() == State::CREATED);
  CHECK(node.Asked().empty());
  node.Say(watcher, node.GroupOf(2), proto::GroupRequest::WATCH);
  CHECK(node.Heard(watcher)->bundle_nodes_size() == 2);
  const bool dies = GENERATE(false, true);
  if (dies) {
    node.processes.erase(node.driver);
    node.groups.OnProcessGone(node.driver);
    node.Settle();
  } else {
    node.Say(node.driver, node.GroupOf(2), proto::GroupRequest::REMOVE);
    CHECK(node.Heard(node.driver)->state() == State::REMOVED);
  }
  CHECK(node.Heard(watcher)->state() == State::REMOVED);
  CHECK(node.groups.states().empty());
  CHECK(node.ledger.available() == Resources::Cpu(2));
}

SCENARIO("a group that a worker has made ends with the driver of its job, not with that worker") {
  Node node;
  const ProcessId driver = node.Driver();
  const ProcessId worker = node.Attach(ProcessRole::kWorker);
  node.processes.at(worker).job = node.jobs.OfDriver(driver);
  proto::GroupRequest request = node.GroupOf(2);
  request.set_id(PlacementGroupId::Make(worker, 1).Binary());
  node.Say(worker, request);
  REQUIRE(node.groups.states().size() == 1);
  node.processes.erase(worker);
  node.groups.OnProcessGone(worker);
  node.Settle();
  CHECK(node.groups.states().size() == 1);
  CHECK_FALSE(node.groups.Sweep(PlacementGroupId::FromBinary(request.id()).value()));
  node.jobs.End(node.jobs.OfDriver(driver), {});
  node.Settle();
  CHECK(node.groups.states().empty());
  CHECK(node.ledger.available() == Resources::Cpu(2));
}

SCENARIO("a named group is made when the GCS has its name") {
  Node node;
  proto::GroupRequest request = node.GroupOf(1);
  request.set_name("mine");
  node.Say(node.driver, request);
  const auto asked = node.Asked();
  REQUIRE(asked.size() == 1);
  CHECK(asked[0].register_group().name() == "mine");
  CHECK_FALSE(node.Heard(node.driver).has_value());
  WHEN("it is registered") {
    node.Registered(asked[0], 4);
    CHECK(node.Heard(node.driver)->state() == State::CREATED);
    THEN("the GCS hears of each change, and all of it after a restart") {
      const auto told = node.Asked();
      REQUIRE_FALSE(told.empty());
      CHECK(told.back().group_report().state() == proto::GroupInfo::CREATED);
      CHECK(told.back().group_report().placement_number() == 4);
      proto::NodeReport report;
      node.groups.FillReport(&report);
      REQUIRE(report.groups_size() == 1);
      CHECK(report.attached_groups(0).name() == "mine");
    }
  }
  WHEN("the name is taken") {
    proto::GcsReply reply;
    reply.set_error(1);
    reply.set_message("taken");
    node.Answer(asked[0], reply);
    node.Settle();
    const auto heard = node.Heard(node.driver);
    REQUIRE(heard.has_value());
    CHECK(heard->state() == State::REMOVED);
    CHECK(heard->message() == "taken");
  }
  WHEN("it is removed first") {
    node.Say(node.driver, request, proto::GroupRequest::REMOVE);
    CHECK(node.Heard(node.driver)->state() == State::REMOVED);
    node.Registered(asked[0], 4);
    CHECK(node.groups.states().empty());
    CHECK(node.ledger.available() == Resources::Cpu(2));
    size_t removals = 0;
    for (const proto::GcsRequest& told : node.Asked()) removals += told.has_remove_group();
    CHECK(removals == 2);  // The first may have come ahead of the registration.
  }
}

SCENARIO("what users asked for wrongly is refused; what no process sends is malformed") {
  Node node;
  node.Say(node.driver, node.GroupOf(0));
  CHECK(node.Heard(node.driver)->state() == State::REMOVED);
  const ProcessId other = node.Attach(ProcessRole::kDriver);
  node.Say(other, node.GroupOf(1));  // It is not its id.
  CHECK(node.Heard(other)->state() == State::REMOVED);
  CHECK_FALSE(node.groups.OnRequest(other, {FrameKind::kGroupRequest, "\xff"}).ok());
}

SCENARIO("a group over two nodes: prepared there, committed, and told to its raylet") {
  Node node;
  node.AddNode(2, "CPU:2");
  proto::GroupRequest request = node.GroupOf(2);
  request.set_placement(proto::GroupRequest::STRICT_SPREAD);
  const auto id = PlacementGroupId::FromBinary(request.id()).value();
  node.Say(node.driver, request);
  const auto asked = node.Received<proto::Bundles>(RayletOf(2), FrameKind::kPrepareBundles);
  REQUIRE(asked.size() == 1);
  CHECK(asked[0].indexes_size() == 1);
  node.Bundles(RayletOf(2), FrameKind::kBundlesPrepared, id, 0);
  CHECK(node.Heard(node.driver)->state() == State::CREATED);
  const auto frames = node.transport.Take(RayletOf(2));
  REQUIRE(frames.size() == 2);
  CHECK(frames[0].kind == FrameKind::kCommitBundles);
  CHECK(frames[1].As<State>().state() == State::CREATED);
  THEN("its bundles are placed anew when the node dies") {
    node.view.nodes[2].alive = false;
    node.groups.OnNodeDead(2);
    node.Settle();
    CHECK(node.Heard(node.driver)->state() == State::INFEASIBLE);  // On one node.
    node.AddNode(3, "CPU:2");
    node.groups.OnRoom();
    node.Settle();
    CHECK(node.Received<proto::Bundles>(RayletOf(3), FrameKind::kPrepareBundles).size() == 1);
  }
}

SCENARIO("bundles for another raylet: all or none, until it gives them back or dies") {
  Node node;
  node.AddNode(2, "CPU:2");
  const auto id = PlacementGroupId::Make({2, 7}, 1);
  node.Bundles(RayletOf(2), FrameKind::kPrepareBundles, id, 0);
  auto answers = node.Received<proto::Bundles>(RayletOf(2), FrameKind::kBundlesPrepared);
  REQUIRE(answers.size() == 1);
  CHECK(answers[0].ok());
  CHECK(node.ledger.available() == Resources::Cpu(1));
  node.Bundles(RayletOf(2), FrameKind::kCommitBundles, id, 0);
  proto::Bundles two;
  two.set_group_id(PlacementGroupId::Make({2, 7}, 2).Binary());
  for (uint32_t i = 0; i < 2; ++i) {
    two.add_indexes(i);
    Resources::Cpu(1).ToMap(*two.add_resources()->mutable_amounts());
  }
  REQUIRE(node.groups.OnBundles(RayletOf(2), node.Of(FrameKind::kPrepareBundles, two)).ok());
  answers = node.Received<proto::Bundles>(RayletOf(2), FrameKind::kBundlesPrepared);
  REQUIRE(answers.size() == 1);
  CHECK_FALSE(answers[0].ok());
  CHECK(node.ledger.available() == Resources::Cpu(1));
  two.clear_resources();
  CHECK_FALSE(node.groups.OnBundles(RayletOf(2), node.Of(FrameKind::kPrepareBundles, two)).ok());
  WHEN("it gives them back") { node.Bundles(RayletOf(2), FrameKind::kReturnBundles, id, 0); }
  WHEN("it dies") {
    node.Die(2);
    node.Missing();
    CHECK(node.view.groups.at(id).state == GroupPlacement::State::kRemoved);
  }
  CHECK(node.ledger.available() == Resources::Cpu(2));
}

SCENARIO("a group of another raylet is followed there") {
  Node node;
  node.AddNode(2, "CPU:2");
  const auto id = PlacementGroupId::Make({2, 7}, 1);
  CHECK(node.groups.IsElsewhere(id));
  proto::LeaseSpec spec;
  spec.mutable_strategy()->set_kind(proto::Strategy::PLACEMENT_GROUP);
  spec.mutable_strategy()->set_group_id(id.Binary());
  node.groups.FollowGroupOf(spec);
  proto::GroupRequest watch;
  watch.set_id(id.Binary());
  node.Say(node.driver, watch, proto::GroupRequest::WATCH);
  const auto asked = node.Received<proto::GroupRequest>(RayletOf(2), FrameKind::kGroupRequest);
  CHECK(asked.size() == 2);
  State state;
  state.set_id(id.Binary());
  state.set_state(State::CREATED);
  state.add_bundle_nodes(2);
  REQUIRE(node.groups.OnState(node.Of(FrameKind::kGroupState, state)).ok());
  CHECK(node.Heard(node.driver)->state() == State::CREATED);
  CHECK(node.view.groups.at(id).bundle_nodes == std::vector<NodeNumber>{2});
  node.groups.FollowGroupOf(spec);  // It is known.
  CHECK(node.Received<proto::GroupRequest>(RayletOf(2), FrameKind::kGroupRequest).empty());
  CHECK_FALSE(node.groups.IsUnknown(PlacementGroupId::Make({2, 7}, 2)));
  CHECK(node.groups.IsUnknown(PlacementGroupId::Make(node.driver, 2)));
}

SCENARIO("a detached group is followed to the node that places it after its maker's is dead") {
  Node node;
  for (const NodeNumber other : {2, 3, 4}) node.AddNode(other, "CPU:2");
  const bool before = GENERATE(false, true);  // It was watched while it waited for room.
  if (before) {
    node.Say(node.driver, node.FarRequest(), proto::GroupRequest::WATCH);
    node.Says(State::PENDING);
    CHECK(node.Heard(node.driver)->state() == State::PENDING);
  }
  node.Die(2);
  if (!before) {
    node.Follow();
    node.Say(node.driver, node.FarRequest(), proto::GroupRequest::WATCH);
  }
  CHECK((!before || node.Heard(node.driver)->state() == State::PENDING));
  node.Placed(3);
  CHECK_FALSE(node.Heard(node.driver).has_value());
  CHECK(node.WatchesAt(3) == 1);
  node.Says(State::CREATED, {4});
  CHECK(node.Heard(node.driver)->state() == State::CREATED);
  CHECK(node.view.groups.at(node.far).bundle_nodes == std::vector<NodeNumber>{4});
  node.Follow();  // It is known.
  CHECK(node.Lookups().empty());
  WHEN("the next one is dead, too") {
    node.Die(3);
    CHECK(node.Heard(node.driver)->state() == State::PENDING);
    node.Placed(4);
    CHECK(node.WatchesAt(4) == 1);
  }
  WHEN("the next one has lost it") {
    node.Says(State::REMOVED);
    CHECK(node.Heard(node.driver)->state() == State::PENDING);
    CHECK(node.view.groups.at(node.far).state == GroupPlacement::State::kPending);
    GIVEN("the GCS has it placed by another") {
      node.Placed(4);
      CHECK(node.WatchesAt(4) == 1);
    }
    GIVEN("it is removed") {
      node.Missing();
      CHECK(node.Heard(node.driver)->state() == State::REMOVED);
      CHECK(node.view.groups.at(node.far).state == GroupPlacement::State::kRemoved);
    }
  }
  WHEN("it is removed from here") {
    node.Say(node.driver, node.FarRequest(), proto::GroupRequest::REMOVE);
    const auto asked = node.Asked();
    REQUIRE(asked.size() == 2);
    CHECK(asked[0].has_remove_group());
    CHECK(asked[1].has_lookup_group());
  }
}

SCENARIO("the GCS is asked again until it names a node that lives") {
  Node node;
  for (const NodeNumber other : {2, 3}) node.AddNode(other, "CPU:2");
  node.Die(2);
  node.Say(node.driver, node.FarRequest(), proto::GroupRequest::WATCH);
  const NodeNumber named = GENERATE(NodeNumber{0}, NodeNumber{2}, NodeParts::kNode);
  node.Placed(named);
  node.Say(node.driver, node.FarRequest(), proto::GroupRequest::WATCH);
  CHECK(node.Lookups().size() == 1);  // Who asks anew need not wait.
  CHECK_FALSE(node.Heard(node.driver).has_value());
}

SCENARIO("a group that is not detached ends with the node of its maker, for those who wait, too") {
  Node node;
  node.AddNode(2, "CPU:2");
  const bool watched = GENERATE(false, true);
  if (watched) {
    node.Say(node.driver, node.FarRequest(), proto::GroupRequest::WATCH);
  } else {
    node.Follow();
    node.Says(State::PENDING);
  }
  node.Heard(node.driver);
  node.Die(2);
  const bool named = GENERATE(false, true);
  if (named) {  // The GCS may find that out only now.
    node.Placed(2, /*detached=*/false);
  } else {
    node.Missing();
  }
  CHECK(node.view.groups.at(node.far).state == GroupPlacement::State::kRemoved);
  if (watched) {
    const auto heard = node.Heard(node.driver);
    REQUIRE(heard.has_value());
    CHECK(heard->state() == State::REMOVED);
  }
}

SCENARIO("another raylet asks for a group before the order to place it is here") {
  Node node;
  for (const NodeNumber other : {2, 3, 4}) node.AddNode(other, "CPU:2");
  node.Die(2);
  node.Say(RayletOf(3), node.FarRequest(), proto::GroupRequest::WATCH);
  CHECK_FALSE(node.Heard(RayletOf(3)).has_value());
  WHEN("the order comes") {
    node.Placed(NodeParts::kNode);
    proto::PlaceGroup place;
    place.mutable_group()->set_group_id(node.far.Binary());
    place.mutable_group()->set_placement_number(2);
    Resources::Cpu(1).ToMap(*place.mutable_group()->add_bundles()->mutable_amounts());
    node.groups.OnPlace(place);
    node.Settle();
    CHECK(node.Heard(RayletOf(3))->state() == State::CREATED);
    THEN("who watches a group that is placed anew waits on") {
      proto::DropGroup drop;
      drop.set_group_id(node.far.Binary());
      drop.set_placement_number(2);
      node.Say(node.driver, node.FarRequest(), proto::GroupRequest::WATCH);
      CHECK(node.Heard(node.driver)->state() == State::CREATED);
      node.groups.OnDrop(drop);
      node.Settle();
      CHECK(node.Heard(node.driver)->state() == State::PENDING);
      CHECK(node.ledger.available() == Resources::Cpu(2));
      place.mutable_group()->set_placement_number(3);
      node.groups.OnPlace(place);
      node.Settle();
      CHECK(node.Heard(node.driver)->state() == State::CREATED);
    }
  }
  WHEN("the GCS has meanwhile named a third one") {
    node.Placed(4);
    THEN("the other hears so, and asks the GCS itself") {
      CHECK(node.Heard(RayletOf(3))->state() == State::REMOVED);
      node.Says(State::CREATED, {4});
      CHECK_FALSE(node.Heard(RayletOf(3)).has_value());
    }
  }
}

SCENARIO("the GCS has a detached group placed here, and drops it") {
  Node node;
  const auto id = PlacementGroupId::Make({9, 7}, 1);
  proto::PlaceGroup place;
  place.mutable_group()->set_group_id(id.Binary());
  place.mutable_group()->set_placement_number(3);
  Resources::Cpu(1).ToMap(*place.mutable_group()->add_bundles()->mutable_amounts());
  node.view.groups[id].state = GroupPlacement::State::kRemoved;  // By a node that is dead.
  node.groups.OnPlace(place);
  node.Settle();
  CHECK(node.groups.states().at(id).state() == State::CREATED);
  node.groups.OnPlace(place);  // A repeat: it is told where it is.
  CHECK(node.Asked().back().group_report().placement_number() == 3);
  // A GCS that has started again and does not know it has it dropped: it was removed before.
  proto::NodeReport report;
  node.groups.FillReport(&report);
  REQUIRE(report.groups_size() == 1);
  CHECK(report.groups(0).detached());
  proto::DropGroup drop;
  drop.set_group_id(id.Binary());
  drop.set_placement_number(2);
  node.groups.OnDrop(drop);  // An older one.
  node.Settle();
  CHECK_FALSE(node.groups.states().empty());
  drop.set_placement_number(3);
  node.groups.OnDrop(drop);
  node.Settle();
  CHECK(node.groups.states().empty());
  CHECK(node.ledger.available() == Resources::Cpu(2));
}

SCENARIO("the sweep finds groups whose creator is gone, and states of no group") {
  Node node;
  node.Say(node.driver, node.GroupOf(1));
  const auto id = PlacementGroupId::FromBinary(node.GroupOf(1).id()).value();
  CHECK_FALSE(node.groups.Sweep(id));
  node.processes.erase(node.driver);
  CHECK(node.groups.Sweep(id));
  node.Settle();
  CHECK(node.groups.states().empty());
  CHECK_FALSE(node.groups.Sweep(id));
}

}  // namespace placement_group_coordinator_test
}  // namespace sheaf
