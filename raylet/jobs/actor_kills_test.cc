// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "raylet/jobs/actor_kills.h"

#include <catch2/catch.hpp>

#include "proto/worker.pb.h"
#include "raylet/raylet_node_for_test.h"

namespace sheaf {
namespace actor_kills_test {

struct Tool {
  RayletNode node;
  ProcessId tool = node.Attach(ProcessRole::kTool);

  void Kill(const std::string& actor, bool restart = false) {
    proto::GcsRequest request;
    request.mutable_end_actor()->set_actor_id(actor);
    request.mutable_end_actor()->set_restart(restart);
    proto::StateQuery query;
    query.set_request(7);
    query.set_what(proto::StateQuery::KEY_VALUE);
    query.set_key_value(request.SerializeAsString());
    node.Send(tool, FrameKind::kStateQuery, query);
  }
  // The GCS answers its last question so.
  void GcsKnows(proto::GcsReply reply, proto::GcsRequest::BodyCase asked) {
    uint64_t sequence = 0;
    for (const auto& request :
         node.transport.Take<proto::GcsRequest>(kGcs, FrameKind::kGcsRequest)) {
      if (request.body_case() == asked) sequence = request.sequence();
    }
    REQUIRE(sequence != 0);
    reply.set_client(RayletOf(RayletNode::kNode).packed());
    reply.set_sequence(sequence);
    const std::string body = reply.SerializeAsString();
    node.raylet->OnGcsFrame({FrameKind::kGcsReply, body});
  }
  std::vector<proto::GcsReply> Answers() {
    std::vector<proto::GcsReply> replies;
    for (const auto& answer : node.Received<proto::StateAnswer>(tool, FrameKind::kStateAnswer)) {
      CHECK(answer.request() == 7);
      REQUIRE_FALSE(answer.key_value().empty());  // A tool would ask on.
      REQUIRE(replies.emplace_back().ParseFromString(answer.key_value()));
    }
    return replies;
  }
};

SCENARIO("a tool has an actor ended by its creator") {
  Tool t;
  const ProcessId creator = t.node.Driver();
  const bool restart = GENERATE(false, true);
  t.Kill(ActorId::Make(creator, 3).Binary(), restart);
  const auto told = t.node.Received<proto::ActorControl>(creator, FrameKind::kActorControl);
  REQUIRE(told.size() == 1);
  CHECK(told[0].actor_id() == ActorId::Make(creator, 3).Binary());
  CHECK(told[0].kill());
  CHECK(told[0].no_restart() == !restart);
  CHECK(t.Answers().empty());
  t.GcsKnows({}, proto::GcsRequest::kLookupActor);  // It has a name, perhaps: that is not freed.
  CHECK(t.node.Asked(proto::GcsRequest::kEndActor).empty());
  REQUIRE(t.Answers().size() == 1);
}

SCENARIO("a creator on another node is told there") {
  Tool t;
  t.node.AddNode(2, "CPU:1");
  const ProcessId creator{2, 9};
  t.Kill(ActorId::Make(creator, 3).Binary());
  CHECK(t.node.Received<proto::ActorControl>(creator, FrameKind::kActorControl).size() == 1);
}

SCENARIO("the GCS ends a detached actor") {
  Tool t;
  const ActorId actor = ActorId::Make({RayletNode::kNode, 99}, 3);  // Its creator has gone.
  t.Kill(actor.Binary());
  proto::GcsReply known;
  known.mutable_actor()->set_detached(true);
  t.GcsKnows(known, proto::GcsRequest::kLookupActor);
  CHECK(t.Answers().empty());
  proto::GcsReply failed;
  failed.set_message("the disk is full");
  t.GcsKnows(failed, proto::GcsRequest::kEndActor);
  const auto answers = t.Answers();
  REQUIRE(answers.size() == 1);
  CHECK(answers[0].message() == "the disk is full");
}

SCENARIO("what is no actor's id is refused, and what is no such request goes its way") {
  Tool t;
  t.Kill("short");
  REQUIRE(t.Answers().size() == 1);
  proto::StateQuery workers;
  workers.set_request(7);
  workers.set_what(proto::StateQuery::WORKERS);
  t.node.Send(t.tool, FrameKind::kStateQuery, workers);
  CHECK(t.node.Received<proto::StateAnswer>(t.tool, FrameKind::kStateAnswer).size() == 1);
}

SCENARIO("a tool that goes before the answer is not looked for") {
  Tool t;
  t.Kill(ActorId::Make({RayletNode::kNode, 99}, 3).Binary());
  t.node.Exit(t.tool, proto::Death::EXITED, 0);
  t.GcsKnows({}, proto::GcsRequest::kLookupActor);
}

}  // namespace actor_kills_test
}  // namespace sheaf
