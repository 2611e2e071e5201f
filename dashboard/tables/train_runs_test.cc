// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "dashboard/tables/train_runs.h"

#include <catch2/catch.hpp>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/ids.h"
#include "http/json.h"
#include "proto/gcs.pb.h"

namespace sheaf::dashboard {
namespace train_runs_test {

// A GCS with some keys, a job whose driver is 1.5, and a worker 1.7.
struct Cluster {
  std::map<std::string, std::string> keys;
  bool complete = true;

  absl::StatusOr<proto::StateAnswer> Answer(const proto::StateQuery& query) const {
    proto::StateAnswer answer;
    if (query.what() == proto::StateQuery::JOBS) {
      proto::JobRow& job = *answer.add_jobs();
      job.set_driver(ProcessId{1, 5}.packed());
      job.set_state("RUNNING");
      proto::JobRow& over = *answer.add_jobs();
      over.set_driver(ProcessId{1, 6}.packed());
      over.set_state("FAILED");
      over.set_end_time_unix_s(1'700'000'000);
      proto::JobRow& left = *answer.add_jobs();
      left.set_driver(ProcessId{1, 4}.packed());
      left.set_state("FINISHED");
      left.set_end_time_unix_s(1'700'000'100);
    }
    if (query.what() == proto::StateQuery::WORKERS) {
      answer.add_workers()->set_process(ProcessId{1, 7}.packed());
      if (!complete) answer.add_late_nodes(2);
    }
    if (query.what() == proto::StateQuery::KEY_VALUE) {
      proto::GcsRequest request;
      REQUIRE(request.ParseFromString(query.key_value()));
      answer.set_key_value(Reply(request).SerializeAsString());
    }
    return answer;
  }
  proto::GcsReply Reply(const proto::GcsRequest& request) const {
    proto::GcsReply reply;
    if (request.has_kv_list()) reply.mutable_kv_listing();
    if (request.has_kv_get()) reply.mutable_kv_values();
    for (const auto& [key, value] : keys) {
      if (!request.has_kv_list() || !absl::StartsWith(key, request.kv_list().prefix())) continue;
      proto::KvListing::Entry& entry = *reply.mutable_kv_listing()->add_entries();
      entry.set_key(key);
      entry.set_bytes(value.size());
    }
    for (const std::string& key : request.kv_get().keys()) {
      const auto found = keys.find(key);
      if (found == keys.end()) continue;
      proto::KvEntry& entry = *reply.mutable_kv_values()->add_entries();
      entry.set_key(key);
      entry.set_value(found->second);
    }
    return reply;
  }
  AskNode ask() const {
    return [this](const proto::StateQuery& query, Nanos) { return Answer(query); };
  }
  void Add(const std::string& id, const std::string& driver, const std::string& state = "RUNNING") {
    keys["run/" + id] = absl::StrCat(
        R"({"name":"digits","state":")", state, R"(","driver":")", driver,
        R"(","job":3,"workers":4,"attempts":2,"steps":70,"start_ms":1500,"end_ms":null,)",
        R"("metrics":{"loss":0.25,"phase":"warm"},"checkpoint":"/out/checkpoint_000070"})");
  }
  // "ID STATE" each, as they are listed.
  std::vector<std::string> States() const {
    const absl::StatusOr<Listing> table = ListTrainRuns(ask(), kSecond);
    REQUIRE(table.ok());
    std::vector<std::string> states;
    for (const auto& row : table->rows) {
      REQUIRE(row.size() == table->columns.size());
      states.push_back(row[0].text + " " + row[2].text);
    }
    return states;
  }
};

using States = std::vector<std::string>;

SCENARIO("training runs are listed, the newest first, and those whose driver is gone are over") {
  Cluster cluster;
  CHECK(cluster.States().empty());
  cluster.Add("20261101-1", "1.6", "FINISHED");
  cluster.Add("20261102-1", "1.5");
  cluster.Add("20261103-1", "1.7");  // Within an actor.
  cluster.Add("20261104-1", "1.6");
  CHECK(cluster.States() == States{"20261104-1 ABORTED", "20261103-1 RUNNING", "20261102-1 RUNNING",
                                   "20261101-1 FINISHED"});
  absl::StatusOr<Listing> table = ListTrainRuns(cluster.ask(), kSecond);
  CHECK(absl::StrContains(table->Json(), R"("end_time_unix_s":1700000000)"));
  CHECK(
      absl::StrContains(table->Text(), "its driver died, and has not said how the run ended, at"));
  cluster.keys.erase("run/20261104-1");
  cluster.Add("20261104-2", "1.4");  // Its driver left in order.
  table = ListTrainRuns(cluster.ask(), kSecond);
  CHECK(absl::StrContains(table->Text(),
                          "its driver has ended, and has not said how the run ended, at"));
  CHECK(absl::StrContains(table->Json(), R"("end_time_unix_s":1700000100)"));
  CHECK_FALSE(absl::StrContains(table->Text(), "died"));
  cluster.keys.erase("run/20261104-2");
  cluster.Add("20261104-1", "1.6");
  cluster.Add("20261105-1", "1.9");  // A worker that is gone: nobody knows how, and when.
  table = ListTrainRuns(cluster.ask(), kSecond);
  CHECK(absl::StrContains(
      table->Text(),
      "its driver has ended, and has not said how the run ended; it was heard last at"));
  CHECK(absl::StrContains(table->Json(), R"("end_time_unix_s":1,)"));
  cluster.keys.erase("run/20261105-1");
  cluster.complete = false;  // A node that does not answer may have the driver.
  CHECK(cluster.States().front() == "20261104-1 RUNNING");
  table = ListTrainRuns(cluster.ask(), kSecond);
  CHECK(absl::StrContains(table->Text(), "loss 0.25, phase warm"));
  CHECK(absl::StrContains(table->Json(), R"("checkpoint":"/out/checkpoint_000070")"));
  CHECK(absl::StrContains(table->Json(), R"("end_time_unix_s":null)"));
}

SCENARIO("what is no record has a row that says so, and harms no other") {
  Cluster cluster;
  cluster.Add("1", "1.5");
  cluster.keys["run/2"] = "[1]";
  cluster.keys["run/3"] = std::string(1 << 20, 'x');
  cluster.keys["run/4"] = R"({"state":7,"workers":-3,"metrics":[],"name":"a\u0000\u001b[31m"})";
  CHECK(cluster.States() == States{"4 ", "3 UNKNOWN", "2 UNKNOWN", "1 RUNNING"});
  const absl::StatusOr<Listing> table = ListTrainRuns(cluster.ask(), kSecond);
  CHECK(absl::StrContains(table->Text(), "its record cannot be read"));
  CHECK_FALSE(absl::StrContains(table->Text(), "\x1b"));
}

SCENARIO("one run is told with its ranks and what happened to it") {
  Cluster cluster;
  cluster.Add("1", "1.5");
  cluster.keys["group/1"] = R"({"ranks":[{"rank":0,"process":"1.7"}]})";
  cluster.keys["history/1"] = "no JSON";
  const absl::StatusOr<std::string> told = TrainRunJson(cluster.ask(), "1", kSecond);
  REQUIRE(told.ok());
  const auto parsed = http::ParseJson(*told);
  REQUIRE(parsed.ok());
  CHECK(parsed->at("rows").at(0).at("state").as_string() == "RUNNING");
  CHECK(parsed->at("group").at("ranks").at(0).at("process").as_string() == "1.7");
  CHECK(parsed->at("history").as_object().empty());
  CHECK(absl::IsNotFound(TrainRunJson(cluster.ask(), "2", kSecond).status()));
}

}  // namespace train_runs_test
}  // namespace sheaf::dashboard
