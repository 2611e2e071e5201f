// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Rows of many who answer as those of one answer.
#include <catch2/catch.hpp>

#include "raylet/queries/merge_rows.h"
#include "raylet/raylet.h"
#include "raylet/raylet_node_for_test.h"

namespace sheaf {
namespace merge_rows_test {

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

SCENARIO("an actor that is started anew has what ended it before, whoever lists it") {
  StateAsked asked;
  asked.limit = 10;
  const auto append = [&](const std::string& id, const std::string& state,
                          const std::string& death) {
    google::protobuf::RepeatedPtrField<proto::ActorRow> rows;
    proto::ActorRow& row = *rows.Add();
    row.set_actor_id(id);
    row.set_state(state);
    row.set_death(death);
    AppendNewActors(&rows, asked);
  };
  append("starts", "PENDING", "");  // As the raylet that starts it knows it.
  append("runs", "ALIVE", "");
  append("starts", "STARTING", "no worker could be started");
  append("runs", "RESTARTING", "it was killed");  // Older than what its raylet says.
  REQUIRE(asked.answer.actors_size() == 2);
  CHECK(asked.answer.actors(0).state() == "PENDING");
  CHECK(asked.answer.actors(0).death() == "no worker could be started");
  CHECK(asked.answer.actors(1).death().empty());
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

}  // namespace merge_rows_test
}  // namespace sheaf
