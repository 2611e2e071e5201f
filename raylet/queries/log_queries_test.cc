// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Who answers a question about logs, and what is said when nobody can.
#include "raylet/queries/log_queries.h"

#include <catch2/catch.hpp>

#include "raylet/raylet_node_for_test.h"

namespace sheaf {
namespace log_queries_test {

struct Fixture {
  RayletNode node;
  ProcessId tool = node.Attach(ProcessRole::kTool);

  static proto::StateQuery Question(NodeNumber of, uint64_t request = 42) {
    proto::StateQuery query;
    query.set_request(request);
    query.set_what(proto::StateQuery::LOG_READ);
    query.mutable_log()->set_node(of);
    query.mutable_log()->set_name("worker-1.7.out");
    return query;
  }
  void Ask(NodeNumber of, uint64_t request = 42) {
    node.Send(tool, FrameKind::kStateQuery, Question(of, request));
  }
  std::vector<proto::StateAnswer> Answers() {
    return node.Received<proto::StateAnswer>(tool, FrameKind::kStateAnswer);
  }
  ErrorKind OnlyError() {
    const auto answers = Answers();
    REQUIRE(answers.size() == 1);
    CHECK(answers[0].request() == 42);
    CHECK_FALSE(answers[0].error().empty());
    return static_cast<ErrorKind>(answers[0].error_kind());
  }
  static proto::StateAnswer Piece(const std::string& bytes) {
    proto::StateAnswer answer;
    answer.mutable_log()->set_bytes(bytes);
    return answer;
  }
};

SCENARIO("a node reads its own logs, and says whether their writer has ended") {
  Fixture fixture;
  fixture.Ask(GENERATE(0, 1));
  REQUIRE(fixture.node.logs.asked.size() == 1);
  CHECK(fixture.Answers().empty());
  fixture.node.logs.asked[0].second(Fixture::Piece("text"));
  const auto answers = fixture.Answers();
  REQUIRE(answers.size() == 1);
  CHECK(answers[0].request() == 42);
  CHECK(answers[0].log().bytes() == "text");
  CHECK(answers[0].log().ended());
  fixture.node.logs.asked[0].second(Fixture::Piece("a second time"));
  CHECK(fixture.Answers().empty());
}

SCENARIO("a worker that ends while its log is read had not ended: more may come") {
  Fixture fixture;
  const ProcessId driver = fixture.node.Driver();
  const ProcessId worker = ProcessId::Unpack(fixture.node.Lease(driver).worker());
  proto::StateQuery query = Fixture::Question(0);
  query.mutable_log()->set_name("worker-" + worker.ToString() + ".out");
  fixture.node.Send(fixture.tool, FrameKind::kStateQuery, query);
  fixture.node.Exit(worker);
  fixture.node.Send(fixture.tool, FrameKind::kStateQuery, query);
  for (auto& [asked, done] : fixture.node.logs.asked) done(Fixture::Piece(""));
  const auto answers = fixture.Answers();
  REQUIRE(answers.size() == 2);
  CHECK_FALSE(answers[0].log().ended());
  CHECK(answers[1].log().ended());
}

SCENARIO("logs of another node are asked of its raylet") {
  Fixture fixture;
  fixture.node.AddNode(2, "CPU:1");
  fixture.Ask(2);
  const auto asked =
      fixture.node.transport.Take<proto::StateQuery>(RayletOf(2), FrameKind::kStateQuery);
  REQUIRE(asked.size() == 1);
  CHECK(asked[0].log().name() == "worker-1.7.out");
  GIVEN("it answers, twice") {
    proto::StateAnswer answer = Fixture::Piece("from there");
    answer.set_request(asked[0].request());
    fixture.node.FromNode(3, FrameKind::kStateAnswer, answer);  // It was not asked.
    CHECK(fixture.Answers().empty());
    fixture.node.FromNode(2, FrameKind::kStateAnswer, answer);
    fixture.node.FromNode(2, FrameKind::kStateAnswer, answer);
    const auto answers = fixture.Answers();
    REQUIRE(answers.size() == 1);
    CHECK(answers[0].request() == 42);
    CHECK(answers[0].log().bytes() == "from there");
  }
  GIVEN("it dies") {
    fixture.node.NodeBecomes(2, proto::NodeInfo::DEAD);
    CHECK(fixture.OnlyError() == ErrorKind::kNodeDied);
    fixture.Ask(2);
    CHECK(fixture.OnlyError() == ErrorKind::kNodeDied);
  }
  GIVEN("it is silent") {
    fixture.node.Advance(6 * kSecond);
    CHECK(fixture.OnlyError() == ErrorKind::kTimeout);
  }
}

SCENARIO("a node that nobody knows has no logs, and no raylet passes questions of others on") {
  Fixture fixture;
  fixture.node.AddNode(2, "CPU:1");
  fixture.Ask(7);
  CHECK(fixture.OnlyError() == ErrorKind::kNotFound);
  fixture.node.FromNode(2, FrameKind::kStateQuery, Fixture::Question(7));
  const auto answers =
      fixture.node.transport.Take<proto::StateAnswer>(RayletOf(2), FrameKind::kStateAnswer);
  REQUIRE(answers.size() == 1);
  CHECK(static_cast<ErrorKind>(answers[0].error_kind()) == ErrorKind::kInvalidArgument);
}

SCENARIO("so many questions are open at once, and none of who does not read the answers") {
  Fixture fixture;
  for (uint64_t i = 0; i < kMaxOpenLogQueries; ++i) fixture.Ask(0, 100 + i);
  fixture.Ask(0);
  CHECK(fixture.OnlyError() == ErrorKind::kPendingCallsLimit);
  fixture.node.logs.asked[5].second(Fixture::Piece(""));
  CHECK(fixture.Answers().size() == 1);
  fixture.node.transport.queued[fixture.tool] = 64 << 20;
  fixture.Ask(0);
  CHECK(fixture.OnlyError() == ErrorKind::kPendingCallsLimit);
  fixture.node.transport.queued.clear();
  fixture.node.Exit(fixture.tool);  // What it asked is answered to nobody.
  for (auto& [asked, done] : fixture.node.logs.asked) done(Fixture::Piece(""));
  CHECK(fixture.Answers().empty());
}

}  // namespace log_queries_test
}  // namespace sheaf
