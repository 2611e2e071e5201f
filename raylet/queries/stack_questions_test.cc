// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What is asked about stacks is answered by the processes, and for those that are silent by the
// kernel.
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "raylet/raylet.h"
#include "raylet/raylet_node_for_test.h"

namespace sheaf {
namespace stack_questions_test {

struct StacksNode : RayletNode {
  ProcessId tool = Attach(ProcessRole::kTool);

  void Ask(uint64_t request, const std::string& id = "", NodeNumber of_node = 0) {
    proto::StateQuery query;
    query.set_request(request);
    query.set_what(proto::StateQuery::STACKS);
    query.set_id(id);
    query.set_node(of_node);
    Send(tool, FrameKind::kStateQuery, query);
  }
  // The questions that have come to `process`, by number.
  std::vector<uint64_t> AskedOf(ProcessId process) {
    std::vector<uint64_t> numbers;
    for (const auto& query : Received<proto::StateQuery>(process, FrameKind::kStateQuery)) {
      CHECK(query.what() == proto::StateQuery::STACKS);
      numbers.push_back(query.request());
    }
    return numbers;
  }
  void Tell(ProcessId process, uint64_t request, const std::string& function) {
    proto::StateAnswer answer;
    answer.set_request(request);
    proto::ProcessStacks& stacks = *answer.add_stacks();
    stacks.set_process(4711);  // Which it says of itself counts for nothing.
    if (function.empty()) {
      stacks.set_words("a C++ process");
    } else {
      stacks.add_threads()->add_frames()->set_function(function);
    }
    Send(process, FrameKind::kStateAnswer, answer);
  }
  std::vector<proto::StateAnswer> Answers() {
    return Received<proto::StateAnswer>(tool, FrameKind::kStateAnswer);
  }
};

SCENARIO("each process of a node tells its stacks; answers to two who ask are not mixed") {
  StacksNode node;
  const ProcessId one = node.Driver(), two = node.Driver();
  node.Ask(7);
  node.Ask(8, one.ToString());
  const auto of_one = node.AskedOf(one), of_two = node.AskedOf(two);
  REQUIRE(of_one.size() == 2);
  REQUIRE(of_two.size() == 1);
  node.Tell(one, of_one[1], "g");
  const auto first = node.Answers();
  REQUIRE(first.size() == 1);
  CHECK(first[0].request() == 8);
  REQUIRE(first[0].stacks_size() == 1);
  CHECK(first[0].stacks(0).process() == one.packed());
  CHECK(first[0].stacks(0).driver());
  CHECK(first[0].stacks(0).threads(0).frames(0).function() == "g");
  node.Tell(two, of_two[0], "h");
  node.Tell(one, of_one[0], "f");
  node.Tell(one, of_one[0], "late");
  const auto second = node.Answers();
  REQUIRE(second.size() == 1);
  CHECK(second[0].request() == 7);
  REQUIRE(second[0].stacks_size() == 2);
  CHECK(second[0].stacks(0).threads(0).frames(0).function() == "f");
  CHECK(second[0].stacks(1).threads(0).frames(0).function() == "h");
  CHECK(node.states.asked.empty());
}

SCENARIO("of a process that does not answer within a second the kernel tells what it does") {
  StacksNode node;
  const ProcessId speaks = node.Driver(), silent = node.Driver(), native = node.Driver();
  node.Ask(7);
  node.Tell(speaks, node.AskedOf(speaks).at(0), "f");
  node.Tell(native, node.AskedOf(native).at(0), "");
  node.Advance(900 * kMillisecond);
  CHECK(node.states.asked.empty());
  node.Advance(200 * kMillisecond);
  REQUIRE(node.states.asked.size() == 1);
  auto described = node.states.asked[0].processes;
  REQUIRE(described.size() == 2);
  CHECK(described[0].process() == silent.packed());
  CHECK(described[1].process() == native.packed());
  CHECK(node.Answers().empty());
  for (auto& process : described) process.add_threads()->set_words("waits");
  node.states.asked[0].done(described);
  node.states.asked[0].done(described);
  node.Tell(silent, node.AskedOf(silent).at(0), "late");
  const auto answers = node.Answers();
  REQUIRE(answers.size() == 1);
  CHECK_FALSE(answers[0].truncated());
  REQUIRE(answers[0].stacks_size() == 3);
  CHECK(answers[0].stacks(0).words().empty());
  CHECK(answers[0].stacks(1).words() == "it does not answer");
  CHECK(answers[0].stacks(1).threads(0).words() == "waits");
  CHECK(answers[0].stacks(2).words() == "a C++ process");
  CHECK(answers[0].stacks(2).threads(0).words() == "waits");
}

SCENARIO("a process that ends while it is asked has ended, and nobody waits for it") {
  StacksNode node;
  const ProcessId dying = node.Driver();
  node.Ask(7);
  node.Exit(dying);
  CHECK(node.states.asked.empty());
  const auto answers = node.Answers();
  REQUIRE(answers.size() == 1);
  REQUIRE(answers[0].stacks_size() == 1);
  CHECK(answers[0].stacks(0).words() == "it has ended meanwhile");
}

SCENARIO("a kernel that does not answer either is not waited for") {
  StacksNode node;
  node.Driver();
  node.Ask(7);
  node.Advance(1100 * kMillisecond);
  node.Advance(2000 * kMillisecond);
  const auto answers = node.Answers();
  REQUIRE(answers.size() == 1);
  CHECK(answers[0].truncated());
  CHECK(answers[0].stacks_size() == 1);
}

SCENARIO("what names no process or no node is said to be that") {
  StacksNode node;
  for (const char* bad : {"1", ".", "1.", ".1", "1.0", "0.1", "1.x", "1.1.1", "-1.1", " 1.1",
                          "1.4294967296", "raylet"}) {
    INFO(bad);
    node.Ask(7, bad);
    const auto answers = node.Answers();
    REQUIRE(answers.size() == 1);
    CHECK(answers[0].error().find("want NODE.PROCESS") != std::string::npos);
  }
  node.Ask(7, "", 99);
  const auto answers = node.Answers();
  REQUIRE(answers.size() == 1);
  CHECK(answers[0].error() == "there is no node 99 now");
  node.Ask(7, ProcessId{RayletNode::kNode, 999}.ToString());
  CHECK(node.Answers().at(0).stacks_size() == 0);
}

SCENARIO("of a process of another node that node is asked, and nobody else") {
  StacksNode node;
  node.AddNode(2, "CPU:1");
  node.AddNode(3, "CPU:1");
  node.Driver();
  const auto questions = [&](NodeNumber number) {
    return node.transport.Take<proto::StateQuery>(RayletOf(number), FrameKind::kStateQuery);
  };
  const bool by_name = GENERATE(true, false);
  by_name ? node.Ask(7, "2.4") : node.Ask(7, "", 2);
  const auto sent = questions(2);
  REQUIRE(sent.size() == 1);
  CHECK(questions(3).empty());
  proto::StateAnswer answer;
  answer.set_request(sent[0].request());
  answer.add_stacks()->set_process(ProcessId{2, 4}.packed());
  // What it has to wait for itself takes it more than a second.
  node.Advance(1500 * kMillisecond);
  CHECK(node.Answers().empty());
  node.FromNode(2, FrameKind::kStateAnswer, answer);
  const auto answers = node.Answers();
  REQUIRE(answers.size() == 1);
  REQUIRE(answers[0].stacks_size() == 1);
  CHECK(answers[0].stacks(0).process() == ProcessId{2, 4}.packed());
  CHECK_FALSE(answers[0].truncated());
}

SCENARIO("profiles of several nodes are one tree, whatever their parents are called") {
  StacksNode node;
  node.AddNode(2, "CPU:1");
  proto::StateQuery query;
  query.set_what(proto::StateQuery::PROFILE);
  node.Send(node.tool, FrameKind::kStateQuery, query);
  const auto add = [](proto::StateAnswer& answer, uint32_t parent, const char* function,
                      uint64_t self_us) {
    proto::ProfileNode& row = *answer.add_profile();
    row.set_parent(parent);
    row.set_function(function);
    row.set_self_us(self_us);
  };
  proto::StateAnswer here, there;
  add(here, 0, "f", 1);
  add(here, 1, "g", 2);
  node.events.asked.at(0)(here);
  there.set_request(
      node.transport.Take<proto::StateQuery>(RayletOf(2), FrameKind::kStateQuery).at(0).request());
  add(there, 0, "h", 10);
  add(there, 0, "f", 20);
  add(there, 2, "g", 30);
  add(there, 77, "mad", 40);
  node.FromNode(2, FrameKind::kStateAnswer, there);
  const auto answers = node.Answers();
  REQUIRE(answers.size() == 1);
  const auto& rows = answers[0].profile();
  REQUIRE(rows.size() == 4);
  CHECK((rows[0].function() == "f" && rows[0].self_us() == 21 && rows[0].parent() == 0));
  CHECK((rows[1].function() == "g" && rows[1].self_us() == 32 && rows[1].parent() == 1));
  CHECK((rows[2].function() == "h" && rows[2].self_us() == 10 && rows[2].parent() == 0));
  CHECK((rows[3].function() == "mad" && rows[3].self_us() == 40 && rows[3].parent() == 0));
}

}  // namespace stack_questions_test
}  // namespace sheaf
