// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What is said to a GCS that does not answer or is away, and who hears that it is.
#include "raylet/raylet.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <set>

#include "raylet/raylet_node_for_test.h"

namespace sheaf {
namespace raylet_gcs_test {

SCENARIO("a request to the GCS that is not answered is sent again") {
  RayletNode node;
  const ProcessId driver = node.Attach(ProcessRole::kDriver);
  node.Send(driver, FrameKind::kJobStart, proto::JobStart());
  node.transport.Take(kGcs);  // Lost.
  node.Advance(kSecond);
  node.AnswerGcs();
  CHECK(node.Received<proto::JobStarted>(driver, FrameKind::kJobStarted).size() == 1);
}

SCENARIO("what the GCS does not answer on a living link is sent ever more rarely") {
  RayletNode node;
  const ProcessId driver = node.Attach(ProcessRole::kDriver);
  node.Send(driver, FrameKind::kJobStart, proto::JobStart());
  const auto sent = [&] {
    size_t count = 0;
    for (const auto& request :
         node.transport.Take<proto::GcsRequest>(kGcs, FrameKind::kGcsRequest)) {
      count += request.has_register_job();
    }
    return count;
  };
  CHECK(sent() == 1);
  node.Advance(kSecond);
  CHECK(sent() == 1);
  node.Advance(60 * kSecond);
  CHECK(sent() == 9);  // After 0.5, 1, 2 and 4 s, then each 8 s.
  node.Advance(3600 * kSecond, kSecond);
  const size_t in_an_hour = sent();
  CHECK(in_an_hour >= 440);
  CHECK(in_an_hour <= 451);
}

SCENARIO("a wish that a full disk of the GCS refuses is said again until it is granted") {
  FakeClock clock;
  RecordingTransport transport;
  GcsLink link(1, clock, transport);
  proto::GcsRequest removal;
  removal.mutable_remove_group()->set_group_id(std::string(16, 'g'));
  link.Insist(removal);
  std::set<uint64_t> numbers;
  for (int refused = 0; refused < 5; ++refused) {
    clock.Advance(GcsLink::kLongestPause);
    link.Tick();
    const auto sent = transport.Take<proto::GcsRequest>(kGcs, FrameKind::kGcsRequest);
    REQUIRE(!sent.empty());
    CHECK(sent.back().remove_group().group_id() == removal.remove_group().group_id());
    numbers.insert(sent.back().sequence());
    proto::GcsReply full;
    full.set_sequence(sent.back().sequence());
    full.set_error(static_cast<uint32_t>(ErrorKind::kGcsStorageFull));
    link.OnReply(full);
    CHECK(link.unanswered() == 1);
  }
  CHECK(numbers.size() == 5);  // A repeat of one would get the answer that it got.
  clock.Advance(GcsLink::kLongestPause);
  link.Tick();
  proto::GcsReply done;
  done.set_sequence(
      transport.Take<proto::GcsRequest>(kGcs, FrameKind::kGcsRequest).at(0).sequence());
  link.OnReply(done);
  CHECK(link.unanswered() == 0);
}

SCENARIO("a head is away for two hours while processes come and go") {
  RayletNode node;
  const ProcessId driver = node.Driver();
  node.Advance(kSecond);
  node.AnswerGcs();
  node.raylet->OnGcsLink(false, 0);
  proto::GcsRequest question;  // Of a process: it is kept there.
  question.set_client(driver.packed());
  question.mutable_kv_get()->add_keys("key");
  for (int minute = 0; minute < 120; ++minute) {
    for (int i = 0; i < 20; ++i) {
      node.Exit(node.Attach(ProcessRole::kDriver), proto::Death::LEFT, 0);
    }
    question.set_sequence(minute + 1);
    node.Send(driver, FrameKind::kGcsRequest, question);
    node.Advance(60 * kSecond, kSecond);
  }
  CHECK(node.transport.Take(kGcs).empty());
  CHECK(node.raylet->figures().Get().unanswered_gcs_commands <= 1010);
  node.Received<proto::GcsEvent>(driver, FrameKind::kGcsEvent);

  WHEN("it is back in another term") {
    node.raylet->OnGcsLink(true, 2);
    node.Advance(100 * kMillisecond);
    const auto said = node.transport.Take<proto::GcsRequest>(kGcs, FrameKind::kGcsRequest);
    CHECK(said.size() <= 1020);
    const auto report = std::find_if(said.begin(), said.end(),
                                     [](const auto& each) { return each.has_node_report(); });
    REQUIRE(report != said.end());
    CHECK(report->node_report().processes_size() == 1);
    CHECK(report->node_report().processes(0) == driver.packed());
    CHECK(said.back().has_heartbeat());
  }
  WHEN("only the link was lost") {
    node.raylet->OnGcsLink(true, 0);
    node.Advance(100 * kMillisecond);
    const auto said = node.transport.Take<proto::GcsRequest>(kGcs, FrameKind::kGcsRequest);
    CHECK(said.size() <= 1020);
    CHECK(std::any_of(said.begin(), said.end(),
                      [](const auto& each) { return each.has_node_report(); }));
  }
  CHECK(node.Received<proto::GcsEvent>(driver, FrameKind::kGcsEvent).size() == 1);
}

SCENARIO("a GCS that answers no heartbeat gets few, and as many as ever once it answers") {
  RayletNode node(Resources::Cpu(2), /*heartbeat_period=*/100 * kMillisecond);
  node.AddNode(2, "CPU:1");
  const auto heartbeats = [&] { return node.Asked(proto::GcsRequest::kHeartbeat).size(); };
  node.Advance(10 * kSecond);
  const size_t before = heartbeats();
  node.Advance(10 * kSecond);
  const size_t unanswered = heartbeats() - before;
  CHECK(unanswered >= 18);
  CHECK(unanswered <= 21);
  proto::GcsReply reply;
  reply.set_client(RayletOf(RayletNode::kNode).packed());
  reply.mutable_heartbeat()->set_number(before + unanswered);
  const std::string body = reply.SerializeAsString();
  node.raylet->OnGcsFrame({FrameKind::kGcsReply, body});
  node.Advance(kSecond);
  CHECK(heartbeats() - before - unanswered >= 7);
}

SCENARIO("nodes that died long ago are not in the view, and are dead all the same") {
  RayletNode node;
  const ProcessId driver = node.Driver();
  for (NodeNumber number = 2; number < 402; ++number) {
    node.AddNode(number, "CPU:1");
    node.NodeBecomes(number, proto::NodeInfo::DEAD);
  }
  CHECK(node.raylet->figures().Get().nodes_known <= 65);
  const ProcessId other{2, 9};
  RelayHead head;
  head.peer = other.packed();
  head.kind = static_cast<uint16_t>(FrameKind::kPushTask);
  const std::string frame(reinterpret_cast<const char*>(&head), sizeof head);
  node.raylet->OnFrame(driver, {FrameKind::kRelay, frame});
  const auto refused = node.Received<proto::ConnectRefused>(driver, FrameKind::kConnectRefused);
  REQUIRE(refused.size() == 1);
  CHECK(ProcessId::Unpack(refused[0].peer()) == other);
  for (const FakeNodeLinks::Sent& sent : node.links.sent) CHECK(sent.to != other);
}

SCENARIO("waits for a node end when nobody has heard it, nor the GCS, for a minute") {
  RayletNode node;
  const ProcessId driver = node.Driver();
  node.AddNode(2, "CPU:1");
  node.AddNode(3, "CPU:1");
  const auto told = [&](ProcessId process) {
    return node.Received<proto::NodeSilent>(process, FrameKind::kNodeSilent);
  };
  node.raylet->OnNodeLink(2, false);
  node.Advance(100 * kSecond);
  CHECK(told(driver).empty());  // The GCS would say that it is dead.
  node.raylet->OnGcsLink(false, 0);
  node.Advance(30 * kSecond);
  node.raylet->OnGcsLink(false, 0);  // Another reason: it is silent since then all the same.
  node.Advance(29 * kSecond);
  CHECK(told(driver).empty());
  node.Advance(2 * kSecond);
  const auto silent = told(driver);
  REQUIRE(silent.size() == 1);
  CHECK(silent[0].node() == 2);
  CHECK_FALSE(silent[0].words().empty());
  CHECK(node.Received<proto::NodeGone>(driver, FrameKind::kNodeGone).empty());
  CHECK(node.links.forgotten.empty());  // What is pending there may come yet.
  const ProcessId late = node.Driver();
  CHECK(told(late).size() == 1);
  node.Advance(60 * kSecond);
  CHECK(told(driver).empty());

  WHEN("it is heard again") {
    node.raylet->OnNodeLink(2, true);
    const auto heard = told(driver);
    REQUIRE(heard.size() == 1);
    CHECK(heard[0].node() == 2);
    CHECK(heard[0].words().empty());
    AND_WHEN("it is silent again") {
      node.raylet->OnNodeLink(2, false);
      node.Advance(59 * kSecond);
      CHECK(told(driver).empty());
      node.Advance(2 * kSecond);
      CHECK(told(driver).size() == 1);
    }
  }
  WHEN("the GCS is heard again") {
    node.raylet->OnGcsLink(true, 0);
    node.Advance(kSecond);
    const auto heard = told(driver);
    REQUIRE(heard.size() == 1);
    CHECK(heard[0].words().empty());
    AND_WHEN("it says that the node is dead") {
      node.NodeBecomes(2, proto::NodeInfo::DEAD);
      CHECK(node.Received<proto::NodeGone>(driver, FrameKind::kNodeGone).size() == 1);
      node.raylet->OnNodeLink(2, false);
      node.raylet->OnGcsLink(false, 0);
      node.Advance(100 * kSecond);
      CHECK(told(driver).empty());
    }
  }
}

}  // namespace raylet_gcs_test
}  // namespace sheaf
