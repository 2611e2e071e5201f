// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "raylet/jobs/forgotten_logs.h"

#include <catch2/catch.hpp>

#include "raylet/raylet_node_for_test.h"

namespace sheaf {
namespace forgotten_logs_test {

constexpr auto kAsked = proto::GcsRequest::kForgottenSubmissions;

// What is on disk is told to the raylet that looks for it.
void Has(RayletNode& node, const std::vector<std::string>& names) {
  REQUIRE(node.logs.asked.size() == 1);
  proto::StateAnswer answer;
  for (const std::string& name : names) answer.add_log_files()->set_name(name);
  node.logs.asked[0].second(answer);
  node.logs.asked.clear();
}

void Forgets(RayletNode& node, const std::string& id) {
  proto::GcsReply reply;
  reply.set_client(RayletOf(RayletNode::kNode).packed());
  for (const proto::GcsRequest& request :
       node.transport.Take<proto::GcsRequest>(kGcs, FrameKind::kGcsRequest)) {
    if (request.has_forgotten_submissions()) reply.set_sequence(request.sequence());
  }
  REQUIRE(reply.sequence() != 0);
  reply.mutable_forgotten_submissions()->add_submission_ids(id);
  const std::string body = reply.SerializeAsString();
  node.raylet->OnGcsFrame({FrameKind::kGcsReply, body});
}

SCENARIO("logs of submissions that nobody remembers go, those of commands that run stay") {
  RayletNode node;
  node.AnswerGcs();
  proto::GcsEvent event;
  event.set_client(RayletOf(RayletNode::kNode).packed());
  event.mutable_start_entrypoint()->mutable_entrypoint()->set_submission_id("runs");
  event.mutable_start_entrypoint()->set_attempt(1);
  node.GcsSays(event);
  node.Advance(59 * kSecond, kSecond);
  CHECK(node.logs.asked.empty());
  node.Advance(2 * kSecond, kSecond);
  node.transport.Take(kGcs);
  Has(node, {"job-driver-old.log", "job-driver-old.log.1", "job-driver-kept.log",
             "job-driver-runs.log", "node.log"});
  Forgets(node, "old");
  CHECK(node.logs.removed == std::vector<std::string>{"job-driver-old.log"});
  CHECK(node.Asked(kAsked).empty());
}

SCENARIO("a node without such logs asks nothing") {
  RayletNode node;
  node.AnswerGcs();
  node.Advance(61 * kSecond, kSecond);
  Has(node, {"worker-1.2.out"});
  CHECK(node.Asked(kAsked).empty());
  node.Advance(61 * kSecond, kSecond);
  CHECK(node.logs.asked.size() == 1);
}

}  // namespace forgotten_logs_test
}  // namespace sheaf
