// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Placement groups: state machine, table and service.
#include <catch2/catch.hpp>

#include "gcs/gcs_world_for_test.h"
#include "gcs/placement_groups/group_state.h"

namespace sheaf {
namespace group_test {

using Info = proto::GroupInfo;

class GroupWorld : public GcsWorld {
 public:
  GroupWorld() {
    node = AddNode();
    other = AddNode();
    maker = {node, 1};
    id = PlacementGroupId::Make(maker, 1);
  }
  proto::GcsReply Register(bool detached, const std::string& name = "group") {
    proto::GcsRequest request;
    proto::RegisterGroup* group = request.mutable_register_group();
    group->set_group_id(id.Binary());
    group->set_name(name);
    group->set_detached(detached);
    (*group->add_bundles()->mutable_amounts())["CPU"] = 10'000;
    return Ask(maker, request);
  }
  void Report(NodeNumber from, uint32_t number, Info::State state, std::vector<uint32_t> nodes,
              bool detached = true) {
    proto::GcsRequest request;
    proto::GroupReport* report = request.mutable_group_report();
    report->set_group_id(id.Binary());
    report->set_placement_number(number);
    report->set_state(state);
    report->set_detached(detached);
    report->mutable_bundle_nodes()->Assign(nodes.begin(), nodes.end());
    Ask(RayletOf(from), request);
  }
  Info Lookup(NodeNumber asker) {
    proto::GcsRequest request;
    request.mutable_lookup_group()->set_group_id(id.Binary());
    return Ask({asker, 7}, request).group();
  }
  std::vector<uint32_t> Places(NodeNumber raylet) {
    std::vector<uint32_t> numbers;
    for (const proto::GcsEvent& event : TakeEvents(RayletOf(raylet))) {
      if (event.has_place_group())
        numbers.push_back(event.place_group().group().placement_number());
      if (event.has_drop_group()) drops.emplace_back(raylet, event.drop_group().placement_number());
    }
    return numbers;
  }
  NodeNumber node;
  NodeNumber other;
  ProcessId maker;
  PlacementGroupId id;
  std::vector<std::pair<NodeNumber, uint32_t>> drops;  // Seen by Places.
};

SCENARIO("the life of a group, every state and event") {
  CHECK(Next(Info::PENDING, GroupEvent::kPlaced)->next == Info::CREATED);
  CHECK(Next(Info::PENDING, GroupEvent::kLost)->next == Info::PENDING);
  CHECK(Next(Info::CREATED, GroupEvent::kPlaced) == std::nullopt);
  CHECK(Next(Info::CREATED, GroupEvent::kLost)->next == Info::RESCHEDULING);
  CHECK(Next(Info::RESCHEDULING, GroupEvent::kPlaced)->next == Info::CREATED);
  CHECK(Next(Info::RESCHEDULING, GroupEvent::kLost)->action == GroupDecision::kPlace);
  for (const Info::State state : {Info::PENDING, Info::CREATED, Info::RESCHEDULING}) {
    CHECK(Next(state, GroupEvent::kRemoved)->next == Info::REMOVED);
  }
  CHECK(Next(Info::REMOVED, GroupEvent::kRemoved) == std::nullopt);
}

SCENARIO("a detached group is durable, another is not") {
  GroupWorld world;
  const bool detached = GENERATE(true, false);
  const int commits = world.storage().commits;
  CHECK(world.Register(detached).group().placement_number() == 1);
  CHECK(world.storage().commits == commits + (detached ? 1 : 0));
  CHECK(Is(world.Register(detached), ErrorKind::kNone));
  world.id = PlacementGroupId::Make(world.maker, 2);
  CHECK(Is(world.Register(detached), ErrorKind::kInvalidArgument));
  world.id = PlacementGroupId::Make(world.maker, 1);
  world.Report(world.node, 1, Info::CREATED, {world.node}, detached);
  CHECK(world.Lookup(world.other).state() == Info::CREATED);
  proto::GcsRequest gone;
  gone.mutable_process_gone()->set_process(world.maker.packed());
  world.Ask(RayletOf(world.node), gone);
  CHECK(world.service().Stats().groups == (detached ? 1 : 0));
}

SCENARIO("a detached group is placed anew when a node with a bundle dies") {
  GroupWorld world;
  world.Register(/*detached=*/true);
  world.Report(world.node, 1, Info::CREATED, {world.node, world.other});
  world.Pass(6 * kSecond, {world.other});
  CHECK(world.Lookup(world.other).state() == Info::RESCHEDULING);
  const std::vector<uint32_t> places = world.Places(world.other);
  REQUIRE_FALSE(places.empty());
  CHECK(places.front() == 2);
  const std::pair<NodeNumber, uint32_t> old{world.other, 1};
  CHECK(world.drops == std::vector(world.drops.size(), old));
  CHECK_FALSE(world.drops.empty());
  WHEN("the raylet does not say that the old placement is gone, it is told again until it does") {
    world.drops.clear();
    world.Pass(2 * kSecond, {world.other});
    world.Places(world.other);
    CHECK(world.drops == std::vector(2, old));
    world.Report(world.other, 1, Info::REMOVED, {});
    world.drops.clear();
    world.Pass(2 * kSecond, {world.other});
    world.Places(world.other);
    CHECK(world.drops.empty());
  }
  WHEN("the raylet does not answer, it is told again") {
    world.Pass(2 * kSecond, {world.other});
    CHECK(world.Places(world.other) == std::vector<uint32_t>{2, 2});
  }
  WHEN("it is placed") {
    world.Report(world.other, 2, Info::CREATED, {world.other});
    CHECK(world.Lookup(world.other).state() == Info::CREATED);
    CHECK(world.Lookup(world.other).bundle_nodes_size() == 1);
    world.Pass(3 * kSecond, {world.other});
    CHECK(world.Places(world.other).empty());
  }
  WHEN("an old placement turns up, it is dropped") {
    world.drops.clear();
    world.Report(world.other, 1, Info::CREATED, {world.other});
    world.Places(world.other);
    CHECK(world.drops == std::vector<std::pair<NodeNumber, uint32_t>>{{world.other, 1}});
    CHECK(world.Lookup(world.other).state() == Info::RESCHEDULING);
  }
}

SCENARIO("a removed group gives its bundles back and its name free") {
  GroupWorld world;
  world.Register(/*detached=*/true);
  world.Report(world.node, 1, Info::CREATED, {world.node, world.other});
  proto::GcsRequest remove;
  remove.mutable_remove_group()->set_group_id(world.id.Binary());
  CHECK(Is(world.Ask({world.other, 3}, remove), ErrorKind::kNone));
  CHECK(Is(world.Ask({world.other, 3}, remove), ErrorKind::kNone));
  world.Places(world.node);
  world.Places(world.other);
  CHECK(world.drops ==
        std::vector<std::pair<NodeNumber, uint32_t>>{{world.node, 1}, {world.other, 1}});
  for (const auto& [key, value] : world.disk()) CHECK(key.first != Table::kGroups);
  world.id = PlacementGroupId::Make(world.maker, 2);
  CHECK(Is(world.Register(/*detached=*/true), ErrorKind::kNone));
}

SCENARIO("a detached group that was removed before a restart is dropped where it still is") {
  GroupWorld world;
  world.Restart();
  proto::NodeReport report;
  proto::GroupReport* group = report.add_groups();
  group->set_group_id(world.id.Binary());
  group->set_placement_number(2);
  group->set_state(Info::CREATED);
  group->set_detached(true);
  world.ReportNode(world.node, report);
  CHECK(world.Places(world.node).empty());
  CHECK(world.drops.size() == 1);
}

SCENARIO("after a restart groups are what the raylets report") {
  GroupWorld world;
  const bool detached = GENERATE(true, false);
  world.Register(detached);
  world.Report(world.node, 1, Info::CREATED, {world.node}, detached);
  world.drops.clear();
  const Info before = world.Lookup(world.node);
  world.Restart();
  proto::NodeReport report;
  report.add_processes(world.maker.packed());
  if (detached) {
    proto::GroupReport* group = report.add_groups();
    group->set_group_id(world.id.Binary());
    group->set_placement_number(1);
    group->set_state(Info::CREATED);
    group->set_detached(true);
    group->add_bundle_nodes(world.node);
  } else {
    *report.add_attached_groups() = before;
  }
  const bool reported = GENERATE(true, false);
  INFO("detached: " << detached << ", reported: " << reported);
  world.ReportNode(world.node, reported ? report : proto::NodeReport());
  world.ReportNode(world.other);
  if (reported) {
    CHECK(world.Lookup(world.node).state() == Info::CREATED);
    CHECK(world.Places(world.node).empty());
    CHECK(world.drops.empty());
  } else if (detached) {
    CHECK(world.Places(world.node) == std::vector<uint32_t>{2});
  } else {
    CHECK(world.Lookup(world.node).group_id().empty());
  }
}

}  // namespace group_test
}  // namespace sheaf
