// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Detached actors that a node has no room for, or must not take: they wait, or go elsewhere.
#include <catch2/catch.hpp>

#include "raylet/detached_actor_for_test.h"

namespace sheaf {

SCENARIO("a node that drains gives back the detached actors that have no worker yet") {
  DetachedTest t;
  const auto drain = [&] {
    t.node.AnswerGcs();
    t.node.NodeBecomes(RayletNode::kNode, proto::NodeInfo::DRAINING);
  };
  WHEN("one waits") {
    t.node.GcsSays(t.start);
    drain();
    CHECK(t.LastReport().died().cause() == proto::Death::NODE_DIED);
    CHECK(t.node.raylet->figures().Get().leases == 0);
  }
  WHEN("one is ordered afterwards") {
    drain();
    t.node.GcsSays(t.start);
    CHECK(t.LastReport().died().cause() == proto::Death::NODE_DIED);
  }
  WHEN("one runs") {
    t.node.GcsSays(t.start);
    t.node.WorkersReady();
    t.Says(t.Placed(), "ALIVE");
    drain();
    CHECK(t.LastReport().has_started());
    CHECK(t.node.raylet->figures().Get().leases == 1);
  }
}

SCENARIO("a node that drains starts the detached actors of placement groups that it has room for") {
  DetachedTest t;
  const PlacementGroupId group = PlacementGroupId::Make(t.driver, 3);
  proto::GroupRequest request;
  request.set_action(proto::GroupRequest::CREATE);
  request.set_id(group.Binary());
  (*request.add_bundles()->mutable_amounts())["CPU"] = kUnit;
  t.node.Send(t.driver, FrameKind::kGroupRequest, request);
  proto::Strategy* strategy = t.start.mutable_start_actor()->mutable_lease()->mutable_strategy();
  strategy->set_kind(proto::Strategy::PLACEMENT_GROUP);
  strategy->set_group_id(group.Binary());
  strategy->set_bundle(0);
  const auto drain = [&] {
    t.node.AnswerGcs();
    t.node.NodeBecomes(RayletNode::kNode, proto::NodeInfo::DRAINING);
  };
  WHEN("one waits for its worker") {
    t.node.GcsSays(t.start);
    drain();
    t.node.WorkersReady();
    t.Placed();
    CHECK(t.LastReport().has_pending());
  }
  WHEN("one is ordered afterwards") {
    drain();
    t.node.GcsSays(t.start);
    t.node.WorkersReady();
    t.Placed();
    CHECK(t.LastReport().has_pending());
  }
  WHEN("its bundle is not here") {
    drain();
    strategy->set_bundle(1);
    t.node.GcsSays(t.start);
    CHECK(t.LastReport().died().cause() == proto::Death::NODE_DIED);
  }
}

SCENARIO("a detached actor without room here goes back to the GCS when another node has some") {
  DetachedTest t;
  const proto::LeaseGrant grant = t.node.Lease(t.driver, 9, 2);  // Both CPUs.
  t.node.GcsSays(t.start);
  CHECK(t.LastReport().has_pending());
  WHEN("no node has room, it stays in the queue here") {
    t.node.AddNode(2, "slot:1");
    t.node.Advance(10 * kSecond);
    CHECK(t.LastReport().has_pending());
    t.node.Return(t.driver, grant.lease());
    t.node.WorkersReady();
    t.Placed();
  }
  WHEN("another node has room, this one has a second") {
    t.node.AddNode(2, "CPU:4");
    t.node.Advance(800 * kMillisecond);
    CHECK(t.LastReport().has_pending());
    t.node.Advance(600 * kMillisecond);
    CHECK(t.LastReport().died().cause() == proto::Death::NODE_DIED);
    THEN("it does not start here any more") {
      t.node.Demand(t.driver, 9, 0, 2);
      t.node.Return(t.driver, grant.lease());
      t.node.WorkersReady();
      CHECK(t.node.raylet->figures().Get().leases == 0);
    }
  }
}

SCENARIO("a detached actor of a placement group of which nobody knows ends") {
  DetachedTest t;
  proto::Strategy* strategy = t.start.mutable_start_actor()->mutable_lease()->mutable_strategy();
  strategy->set_kind(proto::Strategy::PLACEMENT_GROUP);
  strategy->set_group_id(PlacementGroupId::Make(t.driver, 3).Binary());
  strategy->set_bundle(-1);
  t.node.GcsSays(t.start);
  CHECK(t.LastReport().has_pending());
  t.node.Advance(2 * kSecond);
  CHECK(t.LastReport().died().cause() == proto::Death::START_FAILED);
  CHECK_THAT(t.LastReport().died().message(), Catch::Contains("was removed"));
}

}  // namespace sheaf
