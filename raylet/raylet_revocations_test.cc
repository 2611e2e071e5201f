// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// An owner that is asked for a lease and does not answer: it is stopped, or cut off.
#include <catch2/catch.hpp>

#include "raylet/raylet.h"
#include "raylet/raylet_node_for_test.h"

namespace sheaf {
namespace {

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

}  // namespace

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

SCENARIO("a worker returns only what its raylet has asked back") {
  RayletNode node{Resources::Cpu(1)};
  const ProcessId driver = node.Driver();
  const proto::LeaseGrant grant = node.Lease(driver);
  node.Return(ProcessId::Unpack(grant.worker()), grant.lease());
  CHECK(node.raylet->figures().Get().leases == 1);
}

}  // namespace sheaf
