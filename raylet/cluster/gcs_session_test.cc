// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Heartbeats, reports, and the end of the membership.
#include "raylet/cluster/gcs_session.h"

#include <catch2/catch.hpp>

#include "raylet/node_parts_for_test.h"

namespace sheaf {
namespace gcs_session_test {

struct Node : NodeParts, GcsSession::Node {
  void FillReport(proto::NodeReport* report) const override { report->add_processes(77); }
  bool HasEntrypoints() const override { return entrypoints; }
  bool entrypoints = false;
  void OnNodeLease(Nanos until, Nanos) override { lease_until = until; }
  void OnFenced() override { ++fences; }

  int followed = 0;
  int fences = 0;
  Nanos lease_until = 0;
  GcsSession session{{.options = options,
                      .clock = clock,
                      .transport = transport,
                      .gcs = gcs,
                      .view = view,
                      .queue = queue,
                      .processes = processes,
                      .node = *this,
                      .follow_again = [this] { ++followed; }}};

  std::vector<proto::Heartbeat> Heartbeats() {
    session.Tick();
    std::vector<proto::Heartbeat> sent;
    for (const proto::GcsRequest& request : Asked()) {
      if (request.has_heartbeat()) sent.push_back(request.heartbeat());
    }
    return sent;
  }
  static proto::HeartbeatReply ReplyTo(const proto::Heartbeat& heartbeat) {
    proto::HeartbeatReply reply;
    reply.set_number(heartbeat.number());
    reply.set_lease_ns(10 * kSecond);
    return reply;
  }
};

SCENARIO("a heartbeat comes each period, and at once when there is more or less to give") {
  Node node;
  node.AddNode(2, "CPU:1");
  auto sent = node.Heartbeats();
  REQUIRE(sent.size() == 1);
  CHECK(sent[0].available().amounts().at("CPU") == 20'000);
  CHECK(node.Heartbeats().empty());
  REQUIRE(node.ledger.Prepare({PlacementGroupId(), 0}, Resources::Cpu(1), kGcs).ok());
  sent = node.Heartbeats();
  REQUIRE(sent.size() == 1);
  CHECK(sent[0].available().amounts().at("CPU") == 10'000);
  node.clock.Advance(node.options.heartbeat_period);
  CHECK(node.Heartbeats().size() == 1);
  GIVEN("a GCS that answers nothing") {
    for (int i = 0; i < 6; ++i) {
      node.clock.Advance(node.options.heartbeat_period);
      CHECK(node.Heartbeats().size() == 1);
    }
    node.ledger.ReturnBundle({PlacementGroupId(), 0});
    CHECK(node.Heartbeats().empty());  // It has enough to read.
  }
}

SCENARIO("the lease counts from when the heartbeat was sent") {
  Node node;
  const Nanos sent_at = node.clock.Now();
  const auto sent = node.Heartbeats();
  node.clock.Advance(3 * kSecond);
  node.session.OnHeartbeatReply(Node::ReplyTo(sent.at(0)));
  CHECK(node.lease_until == sent_at + 10 * kSecond);
  node.lease_until = 0;
  node.session.OnHeartbeatReply(Node::ReplyTo(sent.at(0)));  // A repeat.
  CHECK(node.lease_until == 0);
}

SCENARIO("a node that was declared dead says no more") {
  Node node;
  proto::HeartbeatReply reply = Node::ReplyTo(node.Heartbeats().at(0));
  reply.set_fenced(true);
  node.session.OnHeartbeatReply(reply);
  node.session.OnHeartbeatReply(reply);
  CHECK(node.fences == 1);
  CHECK(node.session.fenced());
  CHECK(node.lease_until == 0);
  node.clock.Advance(10 * kSecond);
  CHECK(node.Heartbeats().empty());
}

SCENARIO("a new term of the GCS: it hears how things stand, and processes that it began anew") {
  Node node;
  const ProcessId driver = node.Attach(ProcessRole::kDriver);
  WHEN("the reply to a heartbeat says so") {
    proto::HeartbeatReply reply;
    reply.set_term(3);
    node.session.OnHeartbeatReply(reply);
  }
  WHEN("the link says so") { node.session.OnLink(true, 3); }
  CHECK(node.followed == 1);
  const auto asked = node.Asked();
  REQUIRE(asked.size() == 1);
  CHECK(asked[0].node_report().processes(0) == 77);
  const auto events = node.Received<proto::GcsEvent>(driver, FrameKind::kGcsEvent);
  REQUIRE(events.size() == 1);
  CHECK(events[0].restarted().term() == 3);
  node.session.OnRestarted(3);
  CHECK(node.followed == 1);  // Known.
}

SCENARIO(
    "a link that is back: what is open goes out once more, and no report but for many deaths") {
  Node node;
  const bool many = GENERATE(false, true);
  node.session.OnLink(false, 0);
  CHECK(node.Heartbeats().empty());
  for (uint32_t i = 0; i < (many ? 2000u : 3u); ++i)
    node.session.ReportDeath({NodeParts::kNode, i + 1}, proto::Death());
  node.session.OnLink(true, 0);
  size_t reports = 0, deaths = 0;
  for (const proto::GcsRequest& request : node.Asked()) {
    reports += request.has_node_report();
    deaths += request.has_process_gone();
  }
  CHECK(reports == (many ? 1 : 0));
  CHECK(deaths == (many ? 1000 : 3));
}

SCENARIO("a drained node says so when nothing runs there") {
  Node node;
  node.view.here().draining = true;
  const ProcessId driver = node.Attach(ProcessRole::kDriver);
  CHECK_FALSE(node.Heartbeats().at(0).drained());
  node.processes.erase(driver);
  node.clock.Advance(node.options.heartbeat_period);
  CHECK(node.Heartbeats().at(0).drained());
}

SCENARIO("a node leaves") {
  Node node;
  node.session.Leave();
  const auto asked = node.Asked();
  REQUIRE(asked.size() == 1);
  REQUIRE(asked[0].has_unregister_node());
  CHECK_FALSE(node.session.has_left());
  node.Answer(asked[0]);
  CHECK(node.session.has_left());
  CHECK(node.Heartbeats().empty());
}

}  // namespace gcs_session_test
}  // namespace sheaf
