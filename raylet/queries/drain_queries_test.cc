// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Drains, as tools ask for them.
#include <catch2/catch.hpp>

#include "raylet/raylet.h"
#include "raylet/raylet_node_for_test.h"

namespace sheaf {
namespace drain_queries_test {

SCENARIO("a tool has a node drained") {
  RayletNode node;
  const ProcessId tool = node.Attach(ProcessRole::kTool);
  proto::StateQuery query;
  query.set_what(proto::StateQuery::DRAIN);
  WHEN("it names a node") {
    query.set_id("5");
    node.Send(tool, FrameKind::kStateQuery, query);
    const auto asked = node.Asked(proto::GcsRequest::kUnregisterNode);
    REQUIRE(asked.size() == 1);
    CHECK(asked[0].unregister_node().node() == 5);
    CHECK(asked[0].unregister_node().drain_only());
    const auto answers = node.Received<proto::StateAnswer>(tool, FrameKind::kStateAnswer);
    REQUIRE(answers.size() == 1);
    CHECK(answers[0].error().empty());
  }
  WHEN("the GCS is away, and it names this node") {
    node.raylet->OnGcsLink(false, 0);
    query.set_id(absl::StrCat(RayletNode::kNode));
    node.Send(tool, FrameKind::kStateQuery, query);
    CHECK(node.Received<proto::StateAnswer>(tool, FrameKind::kStateAnswer).empty());
    node.Advance(2 * kSecond);
    const auto answers = node.Received<proto::StateAnswer>(tool, FrameKind::kStateAnswer);
    REQUIRE(answers.size() == 1);
    CHECK_THAT(answers[0].error(), Catch::Contains("takes no new work from now on"));
    const auto state = [&] {
      proto::StateQuery nodes;
      nodes.set_what(proto::StateQuery::NODES);
      node.Send(tool, FrameKind::kStateQuery, nodes);
      node.Advance(2 * kSecond);
      const auto rows = node.Received<proto::StateAnswer>(tool, FrameKind::kStateAnswer);
      return rows.size() == 1 && rows[0].nodes_size() == 1 ? rows[0].nodes(0).state() : "no answer";
    };
    CHECK(state() == "DRAINED");
    const ProcessId driver = node.Driver();
    CHECK(state() == "DRAINING");
    node.Demand(driver, 2, 1);
    CHECK(node.Received<proto::LeaseGrant>(driver, FrameKind::kLeaseGrant).empty());
  }
  WHEN("the GCS is away, and it names another node") {
    node.raylet->OnGcsLink(false, 0);
    query.set_id("5");
    node.Send(tool, FrameKind::kStateQuery, query);
    node.Advance(2 * kSecond);
    const auto answers = node.Received<proto::StateAnswer>(tool, FrameKind::kStateAnswer);
    REQUIRE(answers.size() == 1);
    CHECK_THAT(answers[0].error(), Catch::Contains("the node will drain when it does"));
    CHECK(node.Lease(node.Driver()).lease() != 0);
  }
  WHEN("it names none") {
    query.set_id(GENERATE("", "0", "two", "-1", "99999999999"));
    node.Send(tool, FrameKind::kStateQuery, query);
    const auto answers = node.Received<proto::StateAnswer>(tool, FrameKind::kStateAnswer);
    REQUIRE(answers.size() == 1);
    CHECK_THAT(answers[0].error(), Catch::Contains("is no node number"));
    CHECK(node.Asked(proto::GcsRequest::kUnregisterNode).empty());
  }
}

SCENARIO("a node that drains asks for its leases, and says when nothing runs there any more") {
  RayletNode node;
  const ProcessId driver = node.Driver();
  const proto::LeaseGrant grant = node.Lease(driver);
  const auto drained = [&] {
    node.Advance(kSecond);
    return node.Asked(proto::GcsRequest::kHeartbeat).back().heartbeat().drained();
  };
  CHECK_FALSE(drained());
  node.NodeBecomes(RayletNode::kNode, proto::NodeInfo::DRAINING);
  CHECK(node.Received<proto::LeaseRevoke>(driver, FrameKind::kLeaseRevoke).size() == 1);
  CHECK_FALSE(drained());
  node.Return(driver, grant.lease());
  node.Demand(driver, 2, 1);
  CHECK(node.Received<proto::LeaseGrant>(driver, FrameKind::kLeaseGrant).empty());
  CHECK_FALSE(drained());  // A driver runs there.
  node.Exit(driver, proto::Death::EXITED, 0);
  CHECK_FALSE(drained());  // Workers may wait for what they have begun elsewhere.
  node.ExitKilled();
  CHECK(drained());
}

}  // namespace drain_queries_test
}  // namespace sheaf
