// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// An owner that is asked for a lease and does not answer: it is stopped, or cut off.
#include <catch2/catch.hpp>

#include "raylet/raylet.h"
#include "raylet/raylet_node_for_test.h"

namespace sheaf {
namespace raylet_revocations_test {

// One CPU: `stopped` holds it, `other` waits.
struct StoppedOwner {
  StoppedOwner() {
    stopped = node.Driver();
    other = node.Driver();
    grant = node.Lease(stopped, 1);
    worker = ProcessId::Unpack(grant.worker());
    node.Demand(stopped, 1, 3);  // It has more to do.
    node.Demand(other, 1, 1);
    node.WorkersReady();
    node.Advance(100 * kMillisecond);
    REQUIRE(Revokes(stopped) == 1);
  }
  size_t Revokes(ProcessId process) {
    return node.Received<proto::LeaseRevoke>(process, FrameKind::kLeaseRevoke).size();
  }
  std::vector<proto::LeaseGrant> Grants(ProcessId process) {
    node.WorkersReady();
    return node.Received<proto::LeaseGrant>(process, FrameKind::kLeaseGrant);
  }

  RayletNode node{Resources::Cpu(1)};
  ProcessId stopped, other, worker;
  proto::LeaseGrant grant;
};

SCENARIO("an owner that answers within a second keeps its worker to itself") {
  StoppedOwner t;
  t.node.Advance(500 * kMillisecond);
  t.node.Demand(t.stopped, 1, 0);
  t.node.Return(t.stopped, t.grant.lease());
  CHECK(t.Grants(t.other).size() == 1);
  t.node.Advance(2 * kSecond);
  CHECK(t.Revokes(t.worker) == 0);
}

SCENARIO("the lease of an owner that does not answer is taken from its worker") {
  StoppedOwner t;
  t.node.Advance(1200 * kMillisecond);
  REQUIRE(t.Revokes(t.worker) == 1);
  CHECK(t.Grants(t.other).empty());  // It runs something still.
  t.node.Return(t.worker, t.grant.lease());
  const auto granted = t.Grants(t.other);
  REQUIRE(granted.size() == 1);
  THEN("while it is silent it gets nothing, whatever it wanted") {
    t.node.Demand(t.other, 1, 0);
    t.node.Return(t.other, granted[0].lease());
    t.node.Advance(5 * kSecond);
    CHECK(t.Grants(t.stopped).empty());
    CHECK(t.node.raylet->figures().Get().leases == 0);
    AND_THEN("when it has returned the lease itself, it is served as any") {
      t.node.Return(t.stopped, t.grant.lease());
      CHECK(t.Grants(t.stopped).size() == 1);
    }
    AND_THEN("when it has heard that the worker died meanwhile, it is served as any") {
      t.node.Exit(t.worker);
      t.node.Drained(t.stopped, t.other);
      CHECK(t.Grants(t.stopped).empty());
      t.node.Drained(t.stopped, t.worker);
      CHECK(t.Grants(t.stopped).size() == 1);
    }
    AND_THEN(
        "when it asks, it is served by another process: the old one may still get its pushes") {
      t.node.Demand(t.stopped, 1, 4);
      const auto again = t.Grants(t.stopped);
      REQUIRE(again.size() == 1);
      CHECK(ProcessId::Unpack(again[0].worker()) != t.worker);
    }
  }
  THEN("its return comes late, and ends nobody's lease") {
    t.node.Return(t.stopped, t.grant.lease());
    CHECK(t.node.raylet->figures().Get().leases == 1);
  }
  THEN("its death leaves nothing") {
    t.node.Exit(t.stopped);
    t.node.ExitKilled();
    CHECK(t.node.raylet->figures().Get().leases == 1);
  }
}

// Its node has asked for all that it wants, and says nothing more: the owner's word alone counts.
SCENARIO("an owner of another node that was cut off has its demand served after a worker's death") {
  RayletNode node{Resources::Cpu(1)};
  node.AddNode(2, "GPU:1");  // No room there for who waits here.
  const ProcessId far{2, 7};
  proto::RemoteJob job;
  job.set_job(9);
  job.set_driver(far.packed());
  node.FromNode(2, FrameKind::kRemoteJob, job);
  proto::SpillbackDemand demand;
  demand.set_owner(far.packed());
  demand.set_driver(far.packed());
  demand.set_hops(1);
  demand.mutable_demand()->set_key(3);
  demand.mutable_demand()->set_wanted(1);
  demand.mutable_demand()->set_backlog(1);
  Resources::Cpu(1).ToMap(
      *demand.mutable_demand()->mutable_spec()->mutable_resources()->mutable_amounts());
  node.FromNode(2, FrameKind::kSpillbackDemand, demand);
  node.WorkersReady();
  const auto grants = node.Received<proto::LeaseGrant>(far, FrameKind::kLeaseGrant);
  REQUIRE(grants.size() == 1);
  const ProcessId worker = ProcessId::Unpack(grants[0].worker());
  const ProcessId other = node.Driver();
  node.Demand(other, 1, 1);
  node.Advance(1300 * kMillisecond);
  REQUIRE(node.Received<proto::LeaseRevoke>(worker, FrameKind::kLeaseRevoke).size() == 1);
  node.Return(worker, grants[0].lease());
  node.WorkersReady();
  const auto others = node.Received<proto::LeaseGrant>(other, FrameKind::kLeaseGrant);
  REQUIRE(others.size() == 1);
  node.Demand(other, 1, 0);
  node.Return(other, others[0].lease());
  node.Exit(worker);
  node.WorkersReady();
  CHECK(node.Received<proto::LeaseGrant>(far, FrameKind::kLeaseGrant).empty());
  REQUIRE(node.Received<proto::ProcessDied>(far, FrameKind::kProcessDied).size() == 1);
  proto::PeerDrained drained;
  drained.set_process(worker.packed());
  const std::string body = drained.SerializeAsString();
  node.raylet->OnRemoteFrame(far, RayletOf(RayletNode::kNode), Lane::kControl,
                             {FrameKind::kPeerDrained, body});
  node.WorkersReady();
  CHECK(node.Received<proto::LeaseGrant>(far, FrameKind::kLeaseGrant).size() == 1);
}

SCENARIO("a worker returns only what its raylet has asked back") {
  RayletNode node{Resources::Cpu(1)};
  const ProcessId driver = node.Driver();
  const proto::LeaseGrant grant = node.Lease(driver);
  node.Return(ProcessId::Unpack(grant.worker()), grant.lease());
  CHECK(node.raylet->figures().Get().leases == 1);
}

}  // namespace raylet_revocations_test
}  // namespace sheaf
