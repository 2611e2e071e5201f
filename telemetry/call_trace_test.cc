// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "telemetry/call_trace.h"

#include <catch2/catch.hpp>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/ids.h"
#include "proto/perfetto.pb.h"

namespace sheaf::telemetry {
namespace {

constexpr ProcessId kDriver{0, 1}, kWorker{0, 2}, kOther{1, 2};

proto::TaskRow Call(ProcessId owner, uint64_t sequence, ProcessId worker, int64_t begin_ns,
                    int64_t end_ns) {
  proto::TaskRow row;
  row.set_task_id(TaskId::Make(owner, sequence).ToHex());
  row.set_owner(owner.packed());
  row.set_worker(worker.packed());
  row.set_os_pid(static_cast<int32_t>(100 + worker.process));
  row.set_name("work");
  row.set_state("FINISHED");
  row.set_job(1);
  row.set_begin_unix_ns(begin_ns);
  row.set_end_unix_ns(end_ns);
  row.set_created_unix_ms(begin_ns / 1'000'000);
  return row;
}

// A cluster whose answers have `page` rows.
struct Cluster {
  std::vector<proto::TaskRow> calls;
  size_t page = 1000;
  int asked = 0;

  absl::StatusOr<proto::StateAnswer> Ask(const proto::StateQuery& query) {
    ++asked;
    REQUIRE(query.what() == proto::StateQuery::TASKS);
    std::vector<proto::TaskRow> found;
    for (const proto::TaskRow& call : calls) {
      const int64_t before = query.ended_before_ns();
      if (before == 0 || call.end_unix_ns() < before) found.push_back(call);
    }
    std::sort(found.begin(), found.end(), [](const auto& one, const auto& other) {
      return one.end_unix_ns() > other.end_unix_ns();
    });
    proto::StateAnswer answer;
    answer.set_events_lost(3);
    answer.set_truncated(found.size() > page);
    for (size_t i = 0; i < std::min(page, found.size()); ++i) *answer.add_tasks() = found[i];
    return answer;
  }
  CallTrace Collect(size_t most = 1000) {
    const auto trace =
        CollectCalls([this](const proto::StateQuery& query) { return Ask(query); }, most);
    REQUIRE(trace.ok());
    return *trace;
  }
};

proto::perfetto::Trace Read(const std::string& bytes) {
  proto::perfetto::Trace trace;
  REQUIRE(trace.ParseFromString(bytes));
  return trace;
}

TEST_CASE("calls are collected by pages, each once, by when they began", "[telemetry]") {
  Cluster cluster;
  cluster.page = 10;
  for (uint64_t i = 1; i <= 95; ++i) {
    const int64_t at = static_cast<int64_t>(i) * 5'000'000;
    cluster.calls.push_back(Call(kDriver, i, kWorker, at, at + 1000));
  }
  const CallTrace trace = cluster.Collect();
  CHECK(trace.calls.size() == 95);
  CHECK(cluster.asked >= 10);
  CHECK(trace.lost == 3);
  for (size_t i = 1; i < trace.calls.size(); ++i)
    CHECK(trace.calls[i - 1].begin_unix_ns < trace.calls[i].begin_unix_ns);
  CHECK(cluster.Collect(/*most=*/25).calls.size() == 25);
  CHECK(cluster.Collect(/*most=*/25).calls[0].begin_unix_ns == 71 * 5'000'000);  // The last ones.
}

TEST_CASE("a full page of calls that end at one time ends the search", "[telemetry]") {
  Cluster cluster;
  cluster.page = 10;
  for (uint64_t i = 1; i <= 50; ++i) cluster.calls.push_back(Call(kDriver, i, kWorker, 1, 2));
  CHECK(cluster.Collect().calls.size() >= 10);
  CHECK(cluster.asked <= 3);
}

TEST_CASE("what several tell of an attempt is one call, and who saw its end has the last word",
          "[telemetry]") {
  Cluster cluster;
  proto::TaskRow owners = Call(kDriver, 1, kWorker, 0, 9'000);
  owners.set_state("FAILED");
  owners.set_os_pid(0);
  proto::TaskRow workers = Call(kDriver, 1, kWorker, 5'000, 8'000);
  cluster.calls = {owners, workers};
  const CallTrace trace = cluster.Collect();
  REQUIRE(trace.calls.size() == 1);
  CHECK(trace.words[trace.calls[0].state] == "FAILED");
  CHECK(trace.calls[0].begin_unix_ns == 5'000);
  CHECK(trace.calls[0].end_unix_ns == 9'000);
  CHECK(trace.calls[0].os_pid == 102);
}

TEST_CASE("a Chrome trace names nodes and threads, and draws arrows", "[telemetry]") {
  Cluster cluster;
  cluster.calls = {Call(kDriver, 1, kWorker, 1'000'000, 9'000'500),
                   Call(kWorker, 7, kOther, 3'000'000, 4'000'000)};
  cluster.calls[0].set_name("a \"name\"\n");
  cluster.calls[1].set_parent_sequence(TaskId::Make(kDriver, 1).sequence_bits);
  cluster.calls[1].set_state("CANCELLED");
  cluster.calls[1].set_weight(16);
  cluster.calls.push_back(Call(kDriver, 9, kWorker, 1, 2));
  cluster.calls[2].set_task_id("no id");  // Of a node that errs.
  const std::string text = WriteTrace(cluster.Collect(), TraceFormat::kChrome);
  for (const char* part :
       {R"("name":"process_name","pid":0)", R"("name":"process_name","pid":1)",
        R"({"name":"worker 102"})", R"("name":"a \"name\"\n")", R"("ts":1000.000,"dur":8000.500)",
        R"("ph":"s")", R"("ph":"f")", R"("state":"FAILED")", R"("stands_for_calls":16)",
        R"("job_id":"00000001")"}) {
    INFO(part << " in " << text);
    CHECK(absl::StrContains(text, part));
  }
}

TEST_CASE("a trace of Perfetto has a begin and an end of each call on its track", "[telemetry]") {
  Cluster cluster;
  cluster.calls = {Call(kDriver, 1, kWorker, 1'000'000, 9'000'000),
                   Call(kWorker, 7, kOther, 3'000'000, 4'000'000)};
  cluster.calls[0].set_name(std::string("caf\xc3\xa9 \xff"));
  cluster.calls[1].set_parent_sequence(TaskId::Make(kDriver, 1).sequence_bits);
  const proto::perfetto::Trace read = Read(WriteTrace(cluster.Collect(), TraceFormat::kPerfetto));
  std::set<std::string> names;
  std::set<uint64_t> tracks, begun, ended, flows;
  for (const auto& packet : read.packet()) {
    for (const auto& name : packet.interned_data().event_names()) names.insert(name.name());
    if (packet.has_track_descriptor()) tracks.insert(packet.track_descriptor().uuid());
    const auto& event = packet.track_event();
    if (event.type() == proto::perfetto::TrackEvent::SLICE_BEGIN) begun.insert(packet.timestamp());
    if (event.type() == proto::perfetto::TrackEvent::SLICE_END) ended.insert(packet.timestamp());
    if (packet.has_track_event()) CHECK(tracks.contains(event.track_uuid()));
    for (const uint64_t flow : event.flow_ids()) flows.insert(flow);
  }
  CHECK(names.contains("caf\xc3\xa9 \xef\xbf\xbd"));
  CHECK(names.contains("work"));
  CHECK(tracks.size() == 2);
  CHECK(begun == std::set<uint64_t>{1'000'000, 3'000'000});
  CHECK(ended == std::set<uint64_t>{9'000'000, 4'000'000});
  CHECK(flows.size() == 1);
}

TEST_CASE("only two formats of traces are known", "[telemetry]") {
  CHECK(*ParseTraceFormat("perfetto") == TraceFormat::kPerfetto);
  CHECK(*ParseTraceFormat("json") == TraceFormat::kChrome);
  CHECK(absl::StrContains(ParseTraceFormat("svg").status().message(),
                          "'svg': want json or perfetto"));
}

}  // namespace
}  // namespace sheaf::telemetry
