// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// For tests: a node with a driver, and a detached actor that the GCS wants started there.
#pragma once

#include <catch2/catch.hpp>

#include "raylet/raylet.h"
#include "raylet/raylet_node_for_test.h"

namespace sheaf {

struct DetachedTest {
  DetachedTest() {
    driver = node.Driver();
    start.mutable_start_actor()->set_actor_id(id.Binary());
    start.mutable_start_actor()->set_incarnation(1);
    start.mutable_start_actor()->set_creation("creation");
    start.mutable_start_actor()->mutable_job()->set_job(1);
    Resources::Cpu(1).ToMap(
        *start.mutable_start_actor()->mutable_lease()->mutable_resources()->mutable_amounts());
    start.set_client(RayletOf(RayletNode::kNode).packed());
  }
  proto::ActorStateReport LastReport() {
    const auto reports = node.Asked(proto::GcsRequest::kActorStateReport);
    REQUIRE_FALSE(reports.empty());
    return reports.back().actor_state_report();
  }
  // The worker that runs its creation task.
  ProcessId Placed() {
    for (uint32_t process = 1; process < 20; ++process) {
      const ProcessId worker{RayletNode::kNode, process};
      for (const SentFrame& frame : node.transport.Take(worker)) {
        if (frame.kind != FrameKind::kPushTask) continue;
        CHECK(frame.lane == Lane::kControl);  // Behind the LeaseBegin that it belongs to.
        CHECK(frame.body == "creation");
        return worker;
      }
    }
    FAIL("no worker got the creation task");
    return {};
  }
  void Says(ProcessId worker, const char* state) {
    proto::ActorReport report;
    report.mutable_actor()->set_actor_id(id.ToHex());
    report.mutable_actor()->set_state(state);
    report.mutable_actor()->set_death("it threw");
    node.Send(worker, FrameKind::kActorReport, report);
  }

  RayletNode node;
  ProcessId driver;
  const ActorId id = ActorId::Make({1, 1}, 5);
  proto::GcsEvent start;
};

}  // namespace sheaf
