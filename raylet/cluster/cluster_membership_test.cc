// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What the GCS says reaches whom it is for, and what is said to it goes there while it can.
#include "raylet/cluster/cluster_membership.h"

#include <catch2/catch.hpp>

#include "raylet/node_parts_for_test.h"

namespace sheaf {
namespace cluster_membership_test {

struct Node : NodeParts, ClusterMembership::Node {
  void OnGcsEvent(const proto::GcsEvent& event) override { events.push_back(event.body_case()); }
  void OnRoom() override {}
  void OnNodeDead(NodeNumber node, const std::string&) override { dead.push_back(node); }
  void OnDraining() override {}
  void OnJobOver(const proto::JobInfo&) override {}
  void FillReport(proto::NodeReport*) const override {}
  bool HasEntrypoints() const override { return false; }
  void OnNodeLease(Nanos, Nanos) override {}
  void OnFenced() override { fenced = true; }

  std::vector<proto::GcsEvent::BodyCase> events;
  std::vector<NodeNumber> dead;
  bool fenced = false;
  ClusterMembership cluster{{.options = options,
                             .clock = clock,
                             .transport = transport,
                             .links = links,
                             .queue = queue,
                             .view = view,
                             .processes = processes,
                             .deaths = deaths,
                             .node = *this}};

  bool Event(proto::GcsEvent event, ProcessId to = RayletOf(kNode)) {
    event.set_client(to.packed());
    return cluster.OnGcsFrame(Of(FrameKind::kGcsEvent, event));
  }
  bool Reply(proto::GcsReply reply) {
    reply.set_client(RayletOf(kNode).packed());
    return cluster.OnGcsFrame(Of(FrameKind::kGcsReply, reply));
  }
};

SCENARIO("an event goes to the process that it is for, or to the part of the raylet") {
  Node node;
  const ProcessId driver = node.Attach(ProcessRole::kDriver);
  proto::GcsEvent event;
  event.mutable_start_actor();
  CHECK_FALSE(node.Event(event, driver));
  CHECK(node.Received<proto::GcsEvent>(driver, FrameKind::kGcsEvent).size() == 1);
  CHECK_FALSE(node.Event(event, {2, 7}));
  CHECK(node.events.empty());
  CHECK(node.Event(event));
  CHECK(node.events == std::vector{proto::GcsEvent::kStartActor});
  CHECK_FALSE(node.cluster.OnGcsFrame({FrameKind::kGcsEvent, "no message"}));
}

SCENARIO("a GCS of another term is asked again for what is followed, and told how things stand") {
  Node node;
  node.cluster.Follow();
  const size_t subscriptions = node.Asked().size();
  CHECK(subscriptions > 0);
  proto::GcsEvent event;
  event.mutable_restarted()->set_term(node.options.gcs_term + 1);
  CHECK(node.Event(event));
  CHECK(node.events.empty());
  size_t followed = 0;
  size_t reports = 0;
  for (const proto::GcsRequest& request : node.Asked()) {
    followed += request.has_subscribe();
    reports += request.has_node_report();
  }
  CHECK(followed >= subscriptions);
  CHECK(reports == 1);
}

SCENARIO("while the GCS is away its processes keep what they want of it") {
  Node node;
  const ProcessId driver = node.Attach(ProcessRole::kDriver);
  proto::GcsRequest request;
  request.set_sequence(1);
  node.cluster.OnGcsLink(false, 0);
  CHECK(node.cluster.OnGcsRequest(driver, node.Of(FrameKind::kGcsRequest, request)).ok());
  CHECK(node.Asked().empty());
  node.cluster.OnGcsLink(true, node.options.gcs_term);
  node.Asked();
  CHECK(node.cluster.OnGcsRequest(driver, node.Of(FrameKind::kGcsRequest, request)).ok());
  const auto asked = node.Asked();
  REQUIRE(asked.size() == 1);
  CHECK(asked[0].client() == driver.packed());
  CHECK_FALSE(node.cluster.OnGcsRequest(driver, {FrameKind::kGcsRequest, "\xff"}).ok());
}

SCENARIO("a node that the GCS declared dead hears it with the answer to its heartbeat") {
  Node node;
  node.cluster.Tick();
  proto::GcsReply reply;
  reply.mutable_heartbeat()->set_number(1);
  CHECK(node.Reply(reply));
  CHECK_FALSE(node.fenced);
  reply.mutable_heartbeat()->set_fenced(true);
  CHECK(node.Reply(reply));
  CHECK(node.fenced);
  CHECK(node.cluster.fenced());
}

}  // namespace cluster_membership_test
}  // namespace sheaf
