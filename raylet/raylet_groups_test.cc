// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Placement groups, seen from the processes and from the GCS.
#include <catch2/catch.hpp>

#include "raylet/raylet.h"
#include "raylet/raylet_node_for_test.h"

namespace sheaf {
namespace raylet_groups_test {

proto::GroupRequest GroupOf(ProcessId creator, int bundles, double cpus) {
  proto::GroupRequest request;
  request.set_id(PlacementGroupId::Make(creator, 77).Binary());
  for (int i = 0; i < bundles; ++i) {
    Resources::Cpu(cpus).ToMap(*request.add_bundles()->mutable_amounts());
  }
  return request;
}

SCENARIO("a GCS that starts again hears of named groups that it forgot") {
  RayletNode node;
  const ProcessId driver = node.Driver();
  proto::GroupRequest request = GroupOf(driver, 1, 1);
  request.set_name("mine");
  node.Send(driver, FrameKind::kGroupRequest, request);
  const auto reported = [&](uint64_t term) {
    node.AnswerGcs();
    node.gcs_requests.clear();
    proto::GcsEvent event;
    event.set_client(RayletOf(RayletNode::kNode).packed());
    event.mutable_restarted()->set_term(term);
    node.GcsSays(event);
    const auto reports = node.Asked(proto::GcsRequest::kNodeReport);
    REQUIRE(reports.size() == 1);
    return reports[0].node_report();
  };
  const proto::NodeReport report = reported(1000);
  REQUIRE(report.attached_groups_size() == 1);
  CHECK(report.attached_groups(0).name() == "mine");
  CHECK(report.groups_size() == 1);
  request.set_action(proto::GroupRequest::REMOVE);
  node.Send(driver, FrameKind::kGroupRequest, request);
  CHECK(reported(1001).attached_groups_size() == 0);
}

SCENARIO("a placement group is created, watched and removed") {
  RayletNode node;
  const ProcessId driver = node.Driver();
  const ProcessId watcher = node.Driver();
  proto::GroupRequest request = GroupOf(driver, 2, 1);
  node.Send(driver, FrameKind::kGroupRequest, request);
  auto states = node.Received<proto::GroupState>(driver, FrameKind::kGroupState);
  REQUIRE_FALSE(states.empty());
  CHECK(states.back().state() == proto::GroupState::CREATED);
  CHECK(states.back().bundle_nodes_size() == 2);

  request.set_action(proto::GroupRequest::WATCH);
  node.Send(watcher, FrameKind::kGroupRequest, request);
  states = node.Received<proto::GroupState>(watcher, FrameKind::kGroupState);
  REQUIRE(states.size() == 1);
  CHECK(states[0].state() == proto::GroupState::CREATED);

  GIVEN("its CPUs are taken, so that others wait") {
    node.Demand(watcher, 1, 1);
    node.WorkersReady();
    CHECK(node.Received<proto::LeaseGrant>(watcher, FrameKind::kLeaseGrant).empty());
    WHEN("it is removed, or its creator dies") {
      if (GENERATE(false, true)) {
        request.set_action(proto::GroupRequest::REMOVE);
        node.Send(driver, FrameKind::kGroupRequest, request);
      } else {
        node.Exit(driver);
      }
      node.WorkersReady();
      THEN("its watchers hear of it, and who waited gets a lease") {
        states = node.Received<proto::GroupState>(watcher, FrameKind::kGroupState);
        REQUIRE_FALSE(states.empty());
        CHECK(states.back().state() == proto::GroupState::REMOVED);
        CHECK(node.Received<proto::LeaseGrant>(watcher, FrameKind::kLeaseGrant).size() == 1);
        CHECK(node.raylet->figures().Get().groups == 0);
      }
    }
  }
}

SCENARIO("a placement group waits until leases end") {
  RayletNode node;
  const ProcessId driver = node.Driver();
  const proto::LeaseGrant grant = node.Lease(driver);
  node.Send(driver, FrameKind::kGroupRequest, GroupOf(driver, 2, 1));
  for (const auto& state : node.Received<proto::GroupState>(driver, FrameKind::kGroupState)) {
    CHECK(state.state() == proto::GroupState::PENDING);
  }
  node.Demand(driver, 1, 0);
  node.Return(driver, grant.lease());
  const auto states = node.Received<proto::GroupState>(driver, FrameKind::kGroupState);
  REQUIRE_FALSE(states.empty());
  CHECK(states.back().state() == proto::GroupState::CREATED);
}

SCENARIO("a named placement group is registered before it is created") {
  RayletNode node;
  const ProcessId driver = node.Driver();
  proto::GroupRequest request = GroupOf(driver, 1, 1);
  request.set_name("mine");
  node.Send(driver, FrameKind::kGroupRequest, request);
  CHECK(node.Received<proto::GroupState>(driver, FrameKind::kGroupState).empty());
  node.AnswerGcs();
  CHECK(node.Asked(proto::GcsRequest::kRegisterGroup).size() == 1);
  CHECK(node.Received<proto::GroupState>(driver, FrameKind::kGroupState).back().state() ==
        proto::GroupState::CREATED);
  CHECK(node.Asked(proto::GcsRequest::kGroupReport).back().group_report().state() ==
        proto::GroupInfo::CREATED);
}

// A demand for one worker in `group`.
proto::LeaseDemand DemandIn(const proto::GroupRequest& group, bool actor) {
  proto::LeaseDemand demand;
  demand.set_key(1);
  demand.set_wanted(1);
  demand.set_backlog(1);
  proto::LeaseSpec& spec = *demand.mutable_spec();
  Resources::Cpu(1).ToMap(*spec.mutable_resources()->mutable_amounts());
  spec.mutable_strategy()->set_kind(proto::Strategy::PLACEMENT_GROUP);
  spec.mutable_strategy()->set_group_id(group.id());
  spec.mutable_strategy()->set_bundle(kAnyBundle);
  spec.set_actor(actor);
  if (actor) spec.set_actor_id(ActorId{1, 1}.Binary());
  return demand;
}

std::vector<proto::LeaseRefused> Refused(RayletNode& node, ProcessId owner) {
  return node.Received<proto::LeaseRefused>(owner, FrameKind::kLeaseRefused);
}

SCENARIO("who waits for a worker in a placement group hears that it was removed") {
  RayletNode node;
  const ProcessId driver = node.Driver();
  proto::GroupRequest request = GroupOf(driver, 1, 1);
  node.Send(driver, FrameKind::kGroupRequest, request);
  const bool actor = GENERATE(false, true);
  node.Send(driver, FrameKind::kLeaseDemand, DemandIn(request, actor));
  REQUIRE(node.raylet->figures().Get().leases == 1);  // It has its room; its worker starts.
  request.set_action(proto::GroupRequest::REMOVE);
  node.Send(driver, FrameKind::kGroupRequest, request);
  const auto refused = Refused(node, driver);
  REQUIRE(refused.size() == 1);
  CHECK(refused[0].key() == 1);
  CHECK(static_cast<ErrorKind>(refused[0].error()) == ErrorKind::kGroupRemoved);
  CHECK(node.raylet->figures().Get().leases == 0);
  node.WorkersReady();
  CHECK(node.Received<proto::LeaseGrant>(driver, FrameKind::kLeaseGrant).empty());
  THEN("its room is free for others") { CHECK(node.Lease(driver, 2, 2).lease() != 0); }
}

SCENARIO("a detached actor whose worker starts as its placement group is removed ends") {
  RayletNode node;
  const ProcessId driver = node.Driver();
  proto::GroupRequest request = GroupOf(driver, 1, 1);
  node.Send(driver, FrameKind::kGroupRequest, request);
  proto::GcsEvent event;
  event.set_client(RayletOf(RayletNode::kNode).packed());
  proto::StartActor& start = *event.mutable_start_actor();
  start.set_actor_id(ActorId{1, 1}.Binary());
  start.set_incarnation(1);
  start.mutable_job()->set_job(1);
  *start.mutable_lease() = DemandIn(request, true).spec();
  node.GcsSays(event);
  REQUIRE(node.raylet->figures().Get().leases == 1);
  request.set_action(proto::GroupRequest::REMOVE);
  node.Send(driver, FrameKind::kGroupRequest, request);
  const auto reports = node.Asked(proto::GcsRequest::kActorStateReport);
  REQUIRE_FALSE(reports.empty());
  CHECK(reports.back().actor_state_report().died().cause() == proto::Death::START_FAILED);
  CHECK(node.raylet->figures().Get().leases == 0);
}

// What `process` was told last of its placement group; -1: nothing.
int LastState(RayletNode& node, ProcessId process) {
  const auto states = node.Received<proto::GroupState>(process, FrameKind::kGroupState);
  return states.empty() ? -1 : static_cast<int>(states.back().state());
}

SCENARIO("a placement group whose registration is on its way is there to be watched and removed") {
  RayletNode node;
  const ProcessId driver = node.Driver();
  const ProcessId watcher = node.Driver();
  proto::GroupRequest request = GroupOf(driver, 1, 1);
  request.set_name("mine");
  request.set_detached(GENERATE(false, true));
  node.Send(driver, FrameKind::kGroupRequest, request);
  request.set_action(proto::GroupRequest::WATCH);
  node.Send(watcher, FrameKind::kGroupRequest, request);
  CHECK(LastState(node, watcher) == proto::GroupState::PENDING);
  node.Send(driver, FrameKind::kLeaseDemand, DemandIn(request, false));
  CHECK(Refused(node, driver).empty());
  WHEN("it is registered") {
    node.AnswerGcs();
    CHECK(LastState(node, driver) == proto::GroupState::CREATED);
    CHECK(LastState(node, watcher) == proto::GroupState::CREATED);
    CHECK(node.raylet->figures().Get().leases == 1);
  }
  WHEN("it is removed first") {
    request.set_action(proto::GroupRequest::REMOVE);
    node.Send(driver, FrameKind::kGroupRequest, request);
    THEN("all hear so at once, the GCS too, and nothing is placed") {
      CHECK(LastState(node, driver) == proto::GroupState::REMOVED);
      CHECK(LastState(node, watcher) == proto::GroupState::REMOVED);
      const auto refused = Refused(node, driver);
      REQUIRE(refused.size() == 1);
      CHECK(static_cast<ErrorKind>(refused[0].error()) == ErrorKind::kGroupRemoved);
      node.AnswerGcs();
      CHECK_FALSE(node.Asked(proto::GcsRequest::kRemoveGroup).empty());
      CHECK(node.raylet->figures().Get().groups == 0);
      CHECK(node.Lease(driver, 2, 2).lease() != 0);
      request.set_action(proto::GroupRequest::WATCH);
      node.Send(watcher, FrameKind::kGroupRequest, request);
      CHECK(LastState(node, watcher) == proto::GroupState::REMOVED);
    }
  }
  WHEN("its creator ends first") {
    node.Exit(driver);
    node.AnswerGcs();
    if (request.detached()) {
      CHECK(LastState(node, watcher) == proto::GroupState::CREATED);
    } else {
      CHECK(LastState(node, watcher) == proto::GroupState::REMOVED);
      CHECK(node.raylet->figures().Get().groups == 0);
    }
  }
  WHEN("the GCS refuses it") {
    for (const proto::GcsRequest& asked :
         node.transport.Take<proto::GcsRequest>(kGcs, FrameKind::kGcsRequest)) {
      if (!asked.has_register_group()) continue;
      proto::GcsReply reply;
      reply.set_client(asked.client());
      reply.set_sequence(asked.sequence());
      reply.set_error(static_cast<uint32_t>(ErrorKind::kInvalidArgument));
      reply.set_message("the name is taken");
      const std::string body = reply.SerializeAsString();
      node.raylet->OnGcsFrame({FrameKind::kGcsReply, body});
    }
    THEN("all who wait for it hear so") {
      const auto states = node.Received<proto::GroupState>(watcher, FrameKind::kGroupState);
      REQUIRE(states.size() == 1);
      CHECK(states[0].state() == proto::GroupState::REMOVED);
      CHECK(states[0].message() == "the name is taken");
      CHECK(LastState(node, driver) == proto::GroupState::REMOVED);
      CHECK(Refused(node, driver).size() == 1);
    }
  }
}

}  // namespace raylet_groups_test
}  // namespace sheaf
