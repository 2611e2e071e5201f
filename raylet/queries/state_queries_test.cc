// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What tools ask, and how it is answered from owners, the GCS and other raylets.
#include <catch2/catch.hpp>

#include "base/message_limits.h"
#include "raylet/raylet.h"
#include "raylet/raylet_node_for_test.h"
#include "telemetry/why_counts.h"

namespace sheaf {
namespace state_queries_test {

SCENARIO(
    "tasks and objects are asked of their owners, and one that is silent is left out in time") {
  RayletNode node;
  const ProcessId owner = node.Driver();
  const ProcessId silent = node.Driver();
  const ProcessId tool = node.Attach(ProcessRole::kTool);
  proto::StateQuery query;
  query.set_request(42);
  query.set_what(proto::StateQuery::TASKS);
  node.Send(tool, FrameKind::kStateQuery, query);
  const auto asked = node.Received<proto::StateQuery>(owner, FrameKind::kStateQuery);
  REQUIRE(asked.size() == 1);
  REQUIRE(node.Received<proto::StateQuery>(silent, FrameKind::kStateQuery).size() == 1);
  proto::StateAnswer answer;
  answer.set_request(asked[0].request());
  answer.add_tasks()->set_name("f");
  node.Send(owner, FrameKind::kStateAnswer, answer);
  node.Send(owner, FrameKind::kStateAnswer, answer);  // A duplicate.
  CHECK(node.Received<proto::StateAnswer>(tool, FrameKind::kStateAnswer).empty());
  const bool dies = GENERATE(false, true);
  if (dies) {
    node.Exit(silent);
  } else {
    node.Advance(1100 * kMillisecond);
  }
  const auto answers = node.Received<proto::StateAnswer>(tool, FrameKind::kStateAnswer);
  REQUIRE(answers.size() == 1);
  CHECK(answers[0].request() == 42);
  CHECK(answers[0].tasks_size() == 1);
  CHECK(answers[0].truncated() != dies);
}

SCENARIO("a listing holds so many rows and bytes, whatever is asked for, and says that it is cut") {
  RayletNode node;
  const ProcessId owner = node.Driver();
  const ProcessId tool = node.Attach(ProcessRole::kTool);
  proto::StateQuery query;
  query.set_request(42);
  query.set_what(proto::StateQuery::TASKS);
  query.set_limit(UINT32_MAX);
  node.Send(tool, FrameKind::kStateQuery, query);
  const auto asked = node.Received<proto::StateQuery>(owner, FrameKind::kStateQuery);
  REQUIRE(asked.size() == 1);
  CHECK(asked[0].limit() == kMaxStateRows);
  const bool long_names = GENERATE(false, true);
  proto::StateAnswer answer;
  answer.set_request(asked[0].request());
  for (uint32_t i = 0; i < (long_names ? 60 : kMaxStateRows + 1); ++i)
    answer.add_tasks()->set_name(std::string(long_names ? 1 << 20 : 1, 'f'));
  node.Send(owner, FrameKind::kStateAnswer, answer);
  const auto answers = node.Received<proto::StateAnswer>(tool, FrameKind::kStateAnswer);
  REQUIRE(answers.size() == 1);
  CHECK(answers[0].tasks_size() == (long_names ? 32 : static_cast<int>(kMaxStateRows)));
  CHECK(answers[0].ByteSizeLong() < kMaxStateBytes + (2 << 20));
  CHECK(answers[0].truncated());
}

SCENARIO(
    "ended calls of all who answer come behind the running ones, the last first, to the limit") {
  RayletNode node;
  const ProcessId owner = node.Driver();
  const ProcessId tool = node.Attach(ProcessRole::kTool);
  proto::StateQuery query;
  query.set_what(proto::StateQuery::TASKS);
  query.set_ended(true);
  query.set_limit(3);
  node.Send(tool, FrameKind::kStateQuery, query);
  REQUIRE(node.events.asked.size() == 1);
  proto::StateAnswer remembered;
  for (const int64_t end : {9, 7, 5}) remembered.add_tasks()->set_end_unix_ns(end);
  remembered.set_events_lost(2);
  node.events.asked[0](remembered);
  CHECK(node.Received<proto::StateAnswer>(tool, FrameKind::kStateAnswer).empty());
  proto::StateAnswer told;
  told.set_request(node.Received<proto::StateQuery>(owner, FrameKind::kStateQuery).at(0).request());
  told.add_tasks()->set_state("RUNNING");
  node.Send(owner, FrameKind::kStateAnswer, told);
  const auto answers = node.Received<proto::StateAnswer>(tool, FrameKind::kStateAnswer);
  REQUIRE(answers.size() == 1);
  REQUIRE(answers[0].tasks_size() == 3);
  CHECK(answers[0].tasks(0).state() == "RUNNING");
  CHECK(answers[0].tasks(1).end_unix_ns() == 9);
  CHECK(answers[0].tasks(2).end_unix_ns() == 7);
  CHECK(answers[0].truncated());
  CHECK(answers[0].events_lost() == 2);
  node.events.asked[0](remembered);  // Late, or a second time.
}

SCENARIO("a history that does not answer in time is left out") {
  RayletNode node;
  const ProcessId tool = node.Attach(ProcessRole::kTool);
  proto::StateQuery query;
  query.set_what(proto::StateQuery::FUNCTIONS);
  node.Send(tool, FrameKind::kStateQuery, query);
  node.Advance(1100 * kMillisecond);
  const auto answers = node.Received<proto::StateAnswer>(tool, FrameKind::kStateAnswer);
  REQUIRE(answers.size() == 1);
  CHECK(answers[0].truncated());
}

SCENARIO("why: what the owner says of that id, then the raylet of the lease that it waits for") {
  RayletNode node;
  const ProcessId driver = node.Driver();
  node.Demand(driver, 1, 1, 64);
  node.Demand(driver, 2, 1, 65);
  const ProcessId tool = node.Attach(ProcessRole::kTool);
  proto::StateQuery query;
  query.set_what(proto::StateQuery::WHY);
  query.set_id(TaskId::Make(driver, 3).ToHex());
  proto::StateAnswer said;
  const auto count = [&](std::string_view key, uint64_t value) {
    proto::CountRow& row = *said.add_counts();
    row.set_key(std::string(key));
    row.set_count(value);
  };
  proto::GcsReply known;
  known.set_error(static_cast<uint32_t>(ErrorKind::kNotFound));
  const auto ask = [&] {
    node.Send(tool, FrameKind::kStateQuery, query);
    for (const auto& asked : node.Received<proto::StateQuery>(driver, FrameKind::kStateQuery)) {
      said.set_request(asked.request());
      node.Send(driver, FrameKind::kStateAnswer, said);
    }
    for (const auto& request :
         node.transport.Take<proto::GcsRequest>(kGcs, FrameKind::kGcsRequest)) {
      known.set_client(request.client());
      known.set_sequence(request.sequence());
      node.raylet->OnGcsFrame({FrameKind::kGcsReply, known.SerializeAsString()});
    }
    const auto answers = node.Received<proto::StateAnswer>(tool, FrameKind::kStateAnswer);
    REQUIRE(answers.size() == 1);
    CHECK(answers[0].counts_size() == 0);
    return answers[0];
  };
  SECTION("it waits for one of two leases") {
    said.set_words("f waits for a worker");
    count(telemetry::kWhyLease, 2);
    CHECK_THAT(ask().words(), Catch::StartsWith("f waits for a worker\n") &&
                                  Catch::Contains("65 CPU") && !Catch::Contains("64 CPU"));
  }
  SECTION("it runs, whatever else its owner waits for") {
    said.set_words("f runs");
    CHECK(ask().words() == "f runs");
  }
  SECTION("it is over") {
    count(telemetry::kWhyMade, 1);
    CHECK(ask().words() == "it has ended");
  }
  SECTION("it is a detached actor, which its maker does not manage") {
    count(telemetry::kWhyMade, 1);
    known.clear_error();
    known.mutable_actor()->set_detached(true);
    known.mutable_actor()->set_state(proto::ActorInfo::ALIVE);
    CHECK(ask().words() == "the detached actor is alive");
  }
  SECTION("there is none of that id, or it is none at all") {
    if (GENERATE(true, false)) query.set_id("nonsense");
    CHECK_FALSE(ask().error().empty());
  }
}

SCENARIO("the status of a node, also while the GCS is away") {
  RayletNode node;
  const ProcessId driver = node.Driver();
  node.Demand(driver, 1, 5);
  node.WorkersReady();
  const ProcessId tool = node.Attach(ProcessRole::kTool);
  proto::StateQuery query;
  query.set_what(proto::StateQuery::STATUS);
  node.Send(tool, FrameKind::kStateQuery, query);
  node.Advance(1100 * kMillisecond);
  const auto answers = node.Received<proto::StateAnswer>(tool, FrameKind::kStateAnswer);
  REQUIRE(answers.size() == 1);
  REQUIRE(answers[0].nodes_size() == 1);
  CHECK(answers[0].nodes(0).total().amounts().at("CPU") == 20'000);
  CHECK(answers[0].nodes(0).available().amounts().empty());
  REQUIRE(answers[0].demand_size() == 1);
  CHECK(answers[0].demand(0).count() == 3);
  CHECK(answers[0].workers_size() >= 2);
  CHECK(answers[0].metrics_url() == "http://127.0.0.1:1/metrics");
  CHECK(answers[0].store().capacity_bytes() > 0);
  CHECK_THAT(answers[0].words(), Catch::Contains("gives no answer"));
}

SCENARIO("the status says that the disk of the GCS is full") {
  RayletNode node;
  const ProcessId tool = node.Attach(ProcessRole::kTool);
  proto::StateQuery query;
  query.set_what(proto::StateQuery::STATUS);
  node.Send(tool, FrameKind::kStateQuery, query);
  const auto answer = [&node](auto matches, auto fill) {
    for (const proto::GcsRequest& request :
         node.transport.Take<proto::GcsRequest>(kGcs, FrameKind::kGcsRequest)) {
      if (!matches(request)) continue;
      proto::GcsReply reply;
      reply.set_client(request.client());
      reply.set_sequence(request.sequence());
      fill(&reply);
      const std::string body = reply.SerializeAsString();
      node.raylet->OnGcsFrame({FrameKind::kGcsReply, body});
      return true;
    }
    return false;
  };
  REQUIRE(answer([](const auto& request) { return request.has_list_nodes(); },
                 [](proto::GcsReply* reply) { reply->mutable_nodes(); }));
  REQUIRE(answer([](const auto& request) { return request.has_describe_cluster(); },
                 [](proto::GcsReply* reply) { reply->mutable_cluster()->set_read_only(true); }));
  REQUIRE(answer([](const auto& request) { return request.has_list_demand(); },
                 [](proto::GcsReply* reply) { reply->mutable_demand(); }));
  const auto answers = node.Received<proto::StateAnswer>(tool, FrameKind::kStateAnswer);
  REQUIRE(answers.size() == 1);
  CHECK_THAT(answers[0].words(), Catch::Contains("READ-ONLY"));
}

SCENARIO("actors, tasks, objects, groups and workers of other nodes come from their raylets") {
  RayletNode node;
  node.AddNode(2, "CPU:1");
  node.AddNode(3, "CPU:1");
  const ProcessId tool = node.Attach(ProcessRole::kTool);
  proto::StateQuery query;
  query.set_what(proto::StateQuery::WORKERS);
  node.Send(tool, FrameKind::kStateQuery, query);
  const auto questions = [&](NodeNumber number) {
    return node.transport.Take<proto::StateQuery>(RayletOf(number), FrameKind::kStateQuery);
  };
  const auto sent = questions(2);
  REQUIRE(sent.size() == 1);
  REQUIRE(questions(3).size() == 1);
  const proto::StateQuery& asked = sent[0];
  CHECK(asked.this_node());
  CHECK(node.Received<proto::StateAnswer>(tool, FrameKind::kStateAnswer).empty());
  proto::StateAnswer answer;
  answer.set_request(asked.request());
  answer.add_workers()->set_process(ProcessId{2, 4}.packed());
  node.FromNode(2, FrameKind::kStateAnswer, answer);
  WHEN("the last one answers") {
    answer.mutable_workers(0)->set_process(ProcessId{3, 4}.packed());
    node.FromNode(3, FrameKind::kStateAnswer, answer);
    const auto answers = node.Received<proto::StateAnswer>(tool, FrameKind::kStateAnswer);
    REQUIRE(answers.size() == 1);
    CHECK(answers[0].workers_size() == 2);
    CHECK_FALSE(answers[0].truncated());
  }
  WHEN("the last one dies") {
    node.NodeBecomes(3, proto::NodeInfo::DEAD);
    const auto answers = node.Received<proto::StateAnswer>(tool, FrameKind::kStateAnswer);
    REQUIRE(answers.size() == 1);
    CHECK(answers[0].workers_size() == 1);
  }
  WHEN("the last one is silent") {
    node.Advance(1100 * kMillisecond);
    const auto answers = node.Received<proto::StateAnswer>(tool, FrameKind::kStateAnswer);
    REQUIRE(answers.size() == 1);
    CHECK(answers[0].workers_size() == 1);
    CHECK(answers[0].truncated());
  }
}

SCENARIO(
    "of many nodes 64 are asked at once, the others as answers come, and who is late is named") {
  RayletNode node;
  constexpr NodeNumber kNodes = 200;
  for (NodeNumber number = 2; number <= kNodes; ++number) node.AddNode(number, "CPU:1");
  const ProcessId tool = node.Attach(ProcessRole::kTool);
  proto::StateQuery query;
  query.set_what(proto::StateQuery::WORKERS);
  node.Send(tool, FrameKind::kStateQuery, query);
  const NodeNumber silent = GENERATE(0u, 7u);
  std::map<NodeNumber, uint64_t> asked;  // Under which number.
  size_t most_at_once = 0, answered = 0;
  const auto take_questions = [&] {
    for (NodeNumber number = 2; number <= kNodes; ++number) {
      for (const proto::StateQuery& question :
           node.transport.Take<proto::StateQuery>(RayletOf(number), FrameKind::kStateQuery))
        asked[number] = question.request();
    }
    most_at_once = std::max(most_at_once, asked.size());
  };
  for (take_questions(); !asked.empty(); take_questions()) {
    auto next = asked.begin();
    if (next->first == silent && ++next == asked.end()) break;
    proto::StateAnswer answer;
    answer.set_request(next->second);
    answer.add_workers()->set_process(ProcessId{next->first, 4}.packed());
    node.FromNode(next->first, FrameKind::kStateAnswer, answer);
    asked.erase(next);
    ++answered;
  }
  CHECK(most_at_once == 64);
  CHECK(answered == kNodes - (silent != 0 ? 2 : 1));
  node.Advance(1100 * kMillisecond);
  const auto answers = node.Received<proto::StateAnswer>(tool, FrameKind::kStateAnswer);
  REQUIRE(answers.size() == 1);
  CHECK(answers[0].workers_size() == static_cast<int>(answered));
  CHECK(answers[0].truncated() == (silent != 0));
  REQUIRE(answers[0].late_nodes_size() == (silent != 0 ? 1 : 0));
  if (silent != 0) CHECK(answers[0].late_nodes(0) == silent);
}

SCENARIO("demand is counted by shape over all nodes, and what waits for a group is the group's") {
  RayletNode node;
  node.AddNode(2, "CPU:1");
  const ProcessId driver = node.Driver();
  node.Demand(driver, 1, 7);  // Two of them fit here.
  node.WorkersReady();
  const ProcessId tool = node.Attach(ProcessRole::kTool);
  proto::StateQuery query;
  query.set_what(proto::StateQuery::DEMAND);
  node.AnswerGcs();
  node.Send(tool, FrameKind::kStateQuery, query);
  const auto sent = node.transport.Take<proto::StateQuery>(RayletOf(2), FrameKind::kStateQuery);
  REQUIRE(sent.size() == 1);
  proto::StateAnswer other;
  other.set_request(sent[0].request());
  proto::DemandRow& same = *other.add_demand();
  (*same.mutable_resources()->mutable_amounts())["CPU"] = 10'000;
  same.set_count(10);
  proto::DemandRow& gpu = *other.add_demand();
  (*gpu.mutable_resources()->mutable_amounts())["GPU"] = 10'000;
  gpu.set_count(1);
  gpu.set_infeasible(true);
  other.add_groups()->set_group_id("a");
  other.mutable_groups(0)->set_state("PENDING");
  other.add_groups()->set_group_id("b");
  other.mutable_groups(1)->set_state("CREATED");
  node.FromNode(2, FrameKind::kStateAnswer, other);
  node.Advance(1100 * kMillisecond);  // The GCS does not answer.
  const auto answers = node.Received<proto::StateAnswer>(tool, FrameKind::kStateAnswer);
  REQUIRE(answers.size() == 1);
  REQUIRE(answers[0].demand_size() == 2);
  const uint64_t elsewhere = 10;
  CHECK(answers[0].demand(0).count() > elsewhere);
  CHECK(answers[0].demand(0).count() <= elsewhere + 5);
  CHECK(answers[0].demand(1).infeasible());
  REQUIRE(answers[0].groups_size() == 1);
  CHECK(answers[0].groups(0).group_id() == "a");
}

SCENARIO("what waits at the GCS itself is demand, too, and is in the status") {
  RayletNode node;
  const ProcessId tool = node.Attach(ProcessRole::kTool);
  proto::StateQuery query;
  query.set_what(GENERATE(proto::StateQuery::DEMAND, proto::StateQuery::STATUS));
  node.AnswerGcs();
  node.Send(tool, FrameKind::kStateQuery, query);
  // Question by question, as each is asked when the one before is answered.
  bool told = false;
  for (int turn = 0; turn < 5 && !told; ++turn) {
    for (const proto::GcsRequest& request :
         node.transport.Take<proto::GcsRequest>(kGcs, FrameKind::kGcsRequest)) {
      proto::GcsReply reply;
      reply.set_client(request.client());
      reply.set_sequence(request.sequence());
      if (request.has_list_demand()) {
        proto::DemandRow& row = *reply.mutable_demand()->add_demand();
        (*row.mutable_resources()->mutable_amounts())["GPU"] = 30'000;
        row.set_count(2);
        row.set_infeasible(true);
        row.set_words("detached actor A: no node has 3 GPU");
        reply.mutable_demand()->set_more(true);
        told = true;
      }
      const std::string body = reply.SerializeAsString();
      node.raylet->OnGcsFrame({FrameKind::kGcsReply, body});
    }
  }
  CHECK(told);
  const auto answers = node.Received<proto::StateAnswer>(tool, FrameKind::kStateAnswer);
  REQUIRE(answers.size() == 1);
  REQUIRE(answers[0].demand_size() == 1);
  CHECK(answers[0].demand(0).count() == 2);
  CHECK(answers[0].demand(0).infeasible());
  CHECK(answers[0].demand(0).words() == "detached actor A: no node has 3 GPU");
  CHECK(answers[0].truncated());
}

SCENARIO("a group whose node is silent is listed as the GCS knows it") {
  RayletNode node;
  node.AddNode(2, "CPU:1");
  const auto id = PlacementGroupId::Make({2, 7}, 1);
  const ProcessId tool = node.Attach(ProcessRole::kTool);
  proto::StateQuery query;
  query.set_what(proto::StateQuery::GROUPS);
  node.AnswerGcs();
  node.Send(tool, FrameKind::kStateQuery, query);
  const auto sent = node.transport.Take<proto::StateQuery>(RayletOf(2), FrameKind::kStateQuery);
  REQUIRE(sent.size() == 1);
  for (const proto::GcsRequest& request :
       node.transport.Take<proto::GcsRequest>(kGcs, FrameKind::kGcsRequest)) {
    if (!request.has_list_groups()) continue;
    proto::GcsReply reply;
    reply.set_client(request.client());
    reply.set_sequence(request.sequence());
    proto::GroupInfo& info = *reply.mutable_groups()->add_groups();
    info.set_group_id(id.Binary());
    info.set_name("far");
    info.set_state(proto::GroupInfo::RESCHEDULING);
    info.set_placement(proto::GroupRequest::SPREAD);
    const std::string body = reply.SerializeAsString();
    node.raylet->OnGcsFrame({FrameKind::kGcsReply, body});
  }
  const bool silent = GENERATE(false, true);
  if (silent) {
    node.Advance(1100 * kMillisecond);
  } else {  // It knows better.
    proto::StateAnswer answer;
    answer.set_request(sent[0].request());
    answer.add_groups()->set_group_id(id.ToHex());
    answer.mutable_groups(0)->set_name("far");
    answer.mutable_groups(0)->set_state("CREATED");
    node.FromNode(2, FrameKind::kStateAnswer, answer);
  }
  const auto answers = node.Received<proto::StateAnswer>(tool, FrameKind::kStateAnswer);
  REQUIRE(answers.size() == 1);
  REQUIRE(answers[0].groups_size() == 1);
  CHECK(answers[0].groups(0).group_id() == id.ToHex());
  CHECK(answers[0].groups(0).name() == "far");
  CHECK(answers[0].groups(0).state() == (silent ? "RESCHEDULING" : "CREATED"));
  CHECK(answers[0].truncated() == silent);
}

SCENARIO("another raylet is told of this node alone, before its own askers lose patience") {
  RayletNode node;
  node.AddNode(2, "CPU:1");
  node.AddNode(3, "CPU:1");
  const ProcessId driver = node.Driver();
  proto::StateQuery query;
  query.set_request(77);
  query.set_what(proto::StateQuery::TASKS);
  node.FromNode(2, FrameKind::kStateQuery, query);
  REQUIRE(node.Received<proto::StateQuery>(driver, FrameKind::kStateQuery).size() == 1);
  CHECK(node.transport.Take(RayletOf(3)).empty());  // Nobody else is asked.
  node.Advance(600 * kMillisecond);
  const auto answers =
      node.transport.Take<proto::StateAnswer>(RayletOf(2), FrameKind::kStateAnswer);
  REQUIRE(answers.size() == 1);
  CHECK(answers[0].request() == 77);
  CHECK(answers[0].truncated());
}

SCENARIO("each node is asked for its digest with its own cursor, and one that is silent is named") {
  RayletNode node;
  node.AddNode(2, "CPU:1");
  node.AddNode(3, "CPU:1");
  const ProcessId tool = node.Attach(ProcessRole::kTool);
  node.Driver();
  proto::StateQuery query;
  query.set_request(7);
  query.set_what(proto::StateQuery::DIGEST);
  query.set_patience_ms(300);
  for (const NodeNumber of : {RayletNode::kNode, NodeNumber{2}}) {
    proto::DigestCursor& cursor = *query.add_cursors();
    cursor.set_node(of);
    cursor.set_ended(of * 100);
  }
  node.Send(tool, FrameKind::kStateQuery, query);
  const auto asked = node.Received<proto::StateQuery>(RayletOf(2), FrameKind::kStateQuery);
  REQUIRE(asked.size() == 1);
  REQUIRE(asked[0].cursors_size() == 1);
  CHECK(asked[0].cursors(0).ended() == 200);
  const auto other = node.Received<proto::StateQuery>(RayletOf(3), FrameKind::kStateQuery);
  REQUIRE(other.size() == 1);
  CHECK(other[0].cursors_size() == 0);

  proto::StateAnswer answer;
  answer.set_request(asked[0].request());
  answer.add_digests()->set_node(2);
  node.FromNode(2, FrameKind::kStateAnswer, answer);
  node.Advance(350 * kMillisecond);
  const auto answers = node.Received<proto::StateAnswer>(tool, FrameKind::kStateAnswer);
  REQUIRE(answers.size() == 1);
  REQUIRE(answers[0].digests_size() == 2);
  CHECK(answers[0].digests(0).node() == RayletNode::kNode);
  CHECK(answers[0].digests(0).processes() == 1);  // A tool is none.
  CHECK(answers[0].digests(1).node() == 2);
  REQUIRE(answers[0].late_nodes_size() == 1);
  CHECK(answers[0].late_nodes(0) == 3);
}

}  // namespace state_queries_test
}  // namespace sheaf
