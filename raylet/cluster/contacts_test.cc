// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Frames between processes of two nodes, and who hears of a death.
#include "raylet/cluster/contacts.h"

#include <catch2/catch.hpp>

#include "raylet/node_parts_for_test.h"

namespace sheaf {
namespace contacts_test {

constexpr ProcessId kFar{2, 7};

struct Node : NodeParts {
  Node() { AddNode(2, "CPU:1"); }
  ProcessId driver = Attach(ProcessRole::kDriver);
  Contacts contacts{{.node = kNode,
                     .clock = clock,
                     .transport = transport,
                     .links = links,
                     .metrics = page,
                     .view = view,
                     .processes = processes,
                     .deaths = deaths}};

  absl::Status Relay(ProcessId to, FrameKind kind, std::string_view body = "") {
    const std::string relay = RelayTo(to, kind, body);
    const Frame frame{FrameKind::kRelay, relay};
    return contacts.ForwardOut(driver, frame) ? absl::OkStatus() : contacts.OnRelay(driver, frame);
  }
  bool IsOpen(ProcessId to) {
    const std::string relay = RelayTo(to, FrameKind::kTemplate, "");
    return contacts.ForwardOut(driver, {FrameKind::kRelay, relay});
  }
  static std::string RelayTo(ProcessId to, FrameKind kind, std::string_view body) {
    RelayHead head{};
    head.peer = to.packed();
    head.kind = static_cast<uint16_t>(kind);
    head.lane = static_cast<uint16_t>(Lane::kWork);
    return std::string(AsBytes(head)) + std::string(body);
  }
  std::vector<NodeNumber> Left(const absl::btree_set<ProcessId>& readers, ProcessId process,
                               const std::vector<NodeNumber>& nodes = {}) {
    CHECK(contacts.OnProcessDied(
              process, proto::Death(), [](ProcessId) { return proto::ProcessDied(); }, nodes) ==
          readers);
    std::vector<NodeNumber> told;
    for (const NodeNumber node : {2, 3, 4}) {
      if (!Received<proto::OwnerLeft>(RayletOf(node), FrameKind::kOwnerLeft).empty())
        told.push_back(node);
    }
    return told;
  }
};

SCENARIO("a frame leaves the node for whom it names") {
  Node node;
  REQUIRE(node.Relay(kFar, FrameKind::kTemplate, "abc").ok());
  const auto sent = node.links.Take();
  REQUIRE(sent.size() == 1);
  CHECK(sent[0].from == node.driver);
  CHECK(sent[0].to == kFar);
  CHECK(sent[0].kind == FrameKind::kTemplate);
  CHECK(sent[0].body == "abc");
  CHECK(node.IsOpen(kFar));
}

SCENARIO("what may not leave the node does not") {
  Node node;
  CHECK_FALSE(node.Relay(kFar, FrameKind::kJobStart).ok());
  CHECK_FALSE(node.Relay(RayletOf(2), FrameKind::kTemplate).ok());
  CHECK_FALSE(node.Relay({NodeParts::kNode, 9}, FrameKind::kTemplate).ok());
  CHECK_FALSE(node.Relay(kGcs, FrameKind::kTemplate).ok());
  CHECK_FALSE(node.contacts.OnRelay(node.driver, {FrameKind::kRelay, "short"}).ok());
  CHECK(node.Relay(RayletOf(2), FrameKind::kLeaseReturn).ok());
  CHECK(node.links.Take().size() == 1);
}

SCENARIO("who writes to a dead node is told so") {
  Node node;
  node.view.nodes[2].alive = false;
  REQUIRE(node.Relay(kFar, FrameKind::kTemplate).ok());
  const auto refused =
      node.Received<proto::ConnectRefused>(node.driver, FrameKind::kConnectRefused);
  REQUIRE(refused.size() == 1);
  CHECK(refused[0].peer() == kFar.packed());
  CHECK(refused[0].death().cause() == proto::Death::NODE_DIED);
  REQUIRE(node.Relay(RayletOf(2), FrameKind::kLeaseReturn).ok());  // Nobody waits for an answer.
  CHECK(node.transport.Take(node.driver).empty());
  CHECK(node.links.Take().empty());
}

SCENARIO("a frame from another node is delivered, or its sender hears who is dead") {
  Node node;
  const Frame frame{FrameKind::kTemplate, "abc"};
  CHECK_FALSE(node.contacts.ForwardIn(kFar, node.driver, Lane::kWork, frame));
  node.contacts.DeliverLocal(kFar, node.driver, Lane::kWork, frame);
  CHECK(node.contacts.ForwardIn(kFar, node.driver, Lane::kWork, frame));
  const auto got = node.transport.Take(node.driver);
  REQUIRE(got.size() == 2);
  CHECK(got[0].kind == FrameKind::kRelayed);
  CHECK(got[0].body == got[1].body);
  CHECK(got[0].body.substr(sizeof(RelayHead)) == "abc");
  GIVEN("a process that is no more") {
    const ProcessId dead{NodeParts::kNode, 99};
    node.contacts.DeliverLocal(kFar, dead, Lane::kWork, frame);
    CHECK(node.Received<proto::ConnectRefused>(kFar, FrameKind::kConnectRefused).size() == 1);
    node.contacts.DeliverLocal(kFar, dead, Lane::kControl, {FrameKind::kConnectRefused, ""});
    CHECK(node.transport.Take(kFar).empty());
  }
}

SCENARIO("whom a process spoke with hears of its death, and their raylets") {
  Node node;
  REQUIRE(node.Relay(kFar, FrameKind::kTemplate).ok());
  REQUIRE(node.Relay(RayletOf(2), FrameKind::kLeaseReturn).ok());
  node.contacts.Add(node.driver, {3, 8});
  CHECK(node.Left({kFar, {3, 8}}, node.driver, {4}) == std::vector<NodeNumber>{2, 3, 4});
  CHECK(node.Received<proto::ProcessDied>(kFar, FrameKind::kProcessDied).size() == 1);
  CHECK_FALSE(node.IsOpen(kFar));
  CHECK(node.Left({}, node.driver).empty());  // Nothing is left of its contacts.
}

SCENARIO(
    "of a remote process that is dead nobody is told again; its raylet may have what it made") {
  Node node;
  REQUIRE(node.Relay(kFar, FrameKind::kTemplate).ok());
  node.contacts.OnRemoteDeath(kFar);
  CHECK_FALSE(node.IsOpen(kFar));
  CHECK(node.Left({}, node.driver) == std::vector<NodeNumber>{kFar.node});
}

SCENARIO("a node dies: who spoke with its processes hears of each, all hear of the node") {
  Node node;
  const ProcessId other = node.Attach(ProcessRole::kWorker);
  const ProcessId tool = node.Attach(ProcessRole::kTool);
  REQUIRE(node.Relay(kFar, FrameKind::kTemplate).ok());
  proto::Death death;
  death.set_message("node 2 is dead");
  node.contacts.OnNodeDead(2, death);
  const auto got = node.transport.Take(node.driver);
  REQUIRE(got.size() == 2);
  CHECK(got[0].As<proto::ProcessDied>().process() == kFar.packed());
  CHECK(got[0].As<proto::ProcessDied>().started() == UINT64_MAX);
  CHECK(got[1].As<proto::NodeGone>().words() == "node 2 is dead");
  CHECK(node.Received<proto::NodeGone>(other, FrameKind::kNodeGone).size() == 1);
  CHECK(node.transport.Take(tool).empty());
  CHECK(node.Left({}, node.driver).empty());
}

SCENARIO("a node that nobody has described after a while is none") {
  Node node;
  REQUIRE(node.Relay({3, 1}, FrameKind::kTemplate).ok());
  REQUIRE(node.Relay({4, 1}, FrameKind::kTemplate).ok());
  CHECK(node.contacts.TakeUnknownNodes().empty());
  node.AddNode(4, "CPU:1");
  node.clock.Advance(Contacts::kUnknownNodeLimit);
  CHECK(node.contacts.TakeUnknownNodes() == std::vector<NodeNumber>{3});
  CHECK(node.contacts.TakeUnknownNodes().empty());
}

}  // namespace contacts_test
}  // namespace sheaf
