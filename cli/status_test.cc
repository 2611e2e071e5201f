// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "cli/status.h"

#include <catch2/catch.hpp>

#include "base/ids.h"
#include "dashboard/tables/listing.h"

namespace sheaf::cli {
namespace {

using Catch::Contains;

proto::StateAnswer OneNode() {
  proto::StateAnswer answer;
  proto::NodeRow& node = *answer.add_nodes();
  node.set_node(1);
  node.set_state("ALIVE");
  node.set_host_name("box");
  (*node.mutable_total()->mutable_amounts())["CPU"] = 40'000;
  (*node.mutable_available()->mutable_amounts())["CPU"] = 15'000;
  answer.mutable_store()->set_capacity_bytes(1 << 30);
  answer.mutable_store()->set_used_bytes(1 << 20);
  answer.mutable_store()->set_objects(2);
  answer.set_metrics_url("http://127.0.0.1:9/metrics");
  answer.add_features("pidfd: yes");
  return answer;
}

TEST_CASE("the status says what is used, what waits, and where the metrics are") {
  proto::StateAnswer answer = OneNode();
  const std::string text = StatusText(answer);
  CHECK_THAT(text, Contains("NODE  STATE  HOST\n"));
  CHECK_THAT(text, Contains("CPU        2.5      4\n"));
  CHECK_THAT(text, Contains("1.0 MiB of 1.0 GiB used by 2 objects\n"));
  CHECK_THAT(text, Contains("nothing waits"));
  CHECK_THAT(text, Contains("http://127.0.0.1:9/metrics\n"));
  CHECK_THAT(text, Contains("pidfd: yes"));

  proto::DemandRow& demand = *answer.add_demand();
  demand.set_count(12'000);
  (*demand.mutable_resources()->mutable_amounts())["GPU"] = 10'000;
  demand.set_words("no node has a GPU");
  CHECK_THAT(StatusText(answer), Contains("12,000  1 GPU  no node has a GPU"));
}

TEST_CASE("dead nodes do not count among the resources") {
  proto::StateAnswer answer = OneNode();
  *answer.add_nodes() = answer.nodes(0);
  answer.mutable_nodes(1)->set_state("DEAD");
  CHECK_THAT(StatusText(answer), Contains("CPU        2.5      4\n"));
}

TEST_CASE("the status as JSON") {
  CHECK(
      StatusJson(OneNode()) ==
      R"({"nodes":[{"node":1,"state":"ALIVE","host_name":"box","address":"","available":{"CPU":1.5},"total":{"CPU":4},)"
      R"("labels":{},"start_time_unix_s":null,"version":""}],"resources":[{"resource":"CPU","used":2.5,"total":4}],)"
      R"("demand":[],"store":{"capacity_bytes":1073741824,"used_bytes":1048576,"pinned_bytes":0,"spilled_bytes":0,)"
      R"("populated_bytes":0,"objects":2},"head":null,"metrics_url":"http://127.0.0.1:9/metrics","features":["pidfd: yes"]})");
}

TEST_CASE("memory sums all objects by owner and shows the first rows") {
  proto::StateAnswer answer = OneNode();
  for (uint32_t i = 0; i < 3; ++i) {
    proto::ObjectRow& row = *answer.add_objects();
    row.set_object_id(std::string("id") + std::to_string(i));
    row.set_size_bytes(1024);
    row.set_owner(ProcessId{1, i == 0 ? 5u : 6u}.packed());
    row.set_where("store");
  }
  const std::string text = MemoryText(answer, 2);
  CHECK_THAT(text, Contains("1.6          2  2.0 KiB"));
  CHECK_THAT(text, Contains("1.5          1  1.0 KiB"));
  CHECK_THAT(text, Contains("id1"));
  CHECK_THAT(text, !Contains("id2"));
  CHECK_THAT(text, Contains("(the largest 2 of 3; more with --limit)"));
}

TEST_CASE("of what is all lent there is 0") {
  proto::StateAnswer answer = OneNode();
  answer.mutable_nodes(0)->clear_available();
  CHECK_THAT(ListingOf("nodes", answer).Json(),
             Contains(R"("available":{"CPU":0},"total":{"CPU":4})"));
}

TEST_CASE("a task that its owner and its worker report has one row, and runs") {
  proto::StateAnswer answer;
  for (const char* state : {"RUNNING", "PUSHED"}) {
    proto::TaskRow& row = *answer.add_tasks();
    row.set_task_id("t1");
    row.set_name("Hold");
    row.set_state(state);
  }
  answer.mutable_tasks(1)->set_job(3);
  answer.mutable_tasks(1)->set_words("runs, or is next on its worker");
  answer.add_tasks()->set_task_id("t2");
  const Listing table = ListingOf("tasks", answer);
  REQUIRE(table.rows.size() == 2);
  CHECK_THAT(table.Json(), Contains(R"("task_id":"t1","name":"Hold","state":"RUNNING")"));
  CHECK_THAT(table.Json(), Contains(R"("job":3,"actor_id":"",)"));
}

TEST_CASE("an ended call has one row, whoever still speaks of it, and says what it took") {
  proto::StateAnswer answer;
  for (const char* state : {"PUSHED", "FAILED"}) {
    proto::TaskRow& row = *answer.add_tasks();
    row.set_task_id("t1");
    row.set_state(state);
    row.set_words(state);
  }
  answer.mutable_tasks(1)->set_begin_unix_ns(1'000'000'000);
  answer.mutable_tasks(1)->set_end_unix_ns(3'500'000'000);
  answer.mutable_tasks(1)->set_error_type("WorkerCrashed");
  answer.mutable_tasks(1)->set_weight(1);
  const Listing table = ListingOf("tasks", answer);
  REQUIRE(table.rows.size() == 1);
  CHECK_THAT(table.Json(), Contains(R"("state":"FAILED")"));
  CHECK_THAT(table.Json(), Contains(R"("run_ns":2500000000,)"));
  CHECK_THAT(table.Json(), Contains(R"("error_type":"WorkerCrashed","words":"")"));
  CHECK_THAT(table.Text(), Contains("2.5 s"));
}

TEST_CASE("durations are told in the unit that fits") {
  CHECK(FormatDuration(850) == "850 ns");
  CHECK(FormatDuration(12'340) == "12.3 us");
  CHECK(FormatDuration(4'000'000) == "4.0 ms");
  CHECK(FormatDuration(61'500'000'000) == "61.5 s");
}

TEST_CASE("each kind of list has a table, and its rows fit its columns") {
  proto::StateAnswer answer = OneNode();
  answer.add_actors()->set_actor_id("a1");
  answer.add_tasks()->set_task_id("t1");
  answer.add_objects()->set_object_id("o1");
  answer.add_jobs()->set_job(7);
  answer.add_groups()->set_group_id("g1");
  answer.mutable_groups(0)->add_bundles();
  answer.mutable_groups(0)->add_bundle_nodes(1);
  answer.add_workers()->set_process(ProcessId{1, 2}.packed());
  answer.add_functions()->set_name("f");
  answer.add_events()->set_message("a node joined");
  for (const char* kind : kListKinds) {
    INFO(kind);
    const Listing table = ListingOf(kind, answer);
    REQUIRE(table.rows.size() == 1);
    CHECK(table.rows[0].size() == table.columns.size());
  }
  CHECK(
      ListingOf("groups", answer).Json() ==
      R"([{"group_id":"g1","name":"","state":"","placement":"","bundles":[{}],"bundle_nodes":[1],"detached":false}])");
}

}  // namespace
}  // namespace sheaf::cli
