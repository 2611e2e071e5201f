// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Rows of many who answer as those of one answer.
#include <catch2/catch.hpp>

#include "raylet/raylet.h"
#include "raylet/raylet_node_for_test.h"

namespace sheaf {
namespace {

SCENARIO("counts of a function are one row, whichever nodes ran it") {
  RayletNode node;
  const ProcessId tool = node.Attach(ProcessRole::kTool);
  proto::StateQuery query;
  query.set_what(proto::StateQuery::FUNCTIONS);
  node.Send(tool, FrameKind::kStateQuery, query);
  proto::StateAnswer remembered;
  for (const char* name : {"f", "f", "g"}) {
    proto::FunctionRow& row = *remembered.add_functions();
    row.set_name(name);
    row.set_finished(2);
    row.set_longest_ns(name[0]);
    row.add_run_time(1);
  }
  node.events.asked.at(0)(remembered);
  const auto answers = node.Received<proto::StateAnswer>(tool, FrameKind::kStateAnswer);
  REQUIRE(answers.size() == 1);
  REQUIRE(answers[0].functions_size() == 2);
  CHECK(answers[0].functions(0).finished() == 4);
  CHECK(answers[0].functions(0).run_time(0) == 2);
  CHECK(answers[0].functions(1).finished() == 2);
}

SCENARIO("rows that are not wanted take no room in an answer") {
  RayletNode node;
  const ProcessId tool = node.Attach(ProcessRole::kTool);
  const ProcessId worker = ProcessId::Unpack(node.Lease(node.Driver()).worker());
  proto::StateQuery query;
  query.set_what(proto::StateQuery::WORKERS);
  query.set_limit(1);
  proto::StateFilter& wanted = *query.add_filters();
  wanted.set_key("process");
  const auto rows = [&](const std::string& process) {
    wanted.set_value(process);
    node.Send(tool, FrameKind::kStateQuery, query);
    const auto answers = node.Received<proto::StateAnswer>(tool, FrameKind::kStateAnswer);
    REQUIRE(answers.size() == 1);
    CHECK_FALSE(answers[0].truncated());
    return answers[0].workers_size();
  };
  CHECK(rows(worker.ToString()) == 1);
  CHECK(rows("9.9") == 0);
}

}  // namespace
}  // namespace sheaf
