// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "telemetry/task_history.h"

#include <algorithm>
#include <string>
#include <vector>

#include "base/check.h"
#include "catch2/catch.hpp"
#include "telemetry/event_page_for_test.h"

namespace sheaf::telemetry {
namespace {

constexpr ProcessId kDriver{1, 2}, kWorker{1, 3};

struct Node {
  std::shared_ptr<Mapping> worker_segment = SegmentForTest(), driver_segment = SegmentForTest();
  EventWriter worker{EventPageOf(worker_segment->data())};
  EventWriter driver{EventPageOf(driver_segment->data())};
  TaskHistory history;
  uint16_t function;

  explicit Node(size_t bytes = 1 << 20) : history(bytes) {
    history.Add(kWorker, 4711, EventPageOf(worker_segment->data()));
    history.Add(kDriver, 4710, EventPageOf(driver_segment->data()));
    worker.SetJob(3);
    driver.SetJob(3);
    function = worker.FunctionOf("square", CallKind::kTask);
  }
  proto::StateAnswer Ask(const proto::StateQuery& query = {}, uint32_t limit = 100,
                         Nanos to_wall = 0) {
    proto::StateAnswer answer;
    history.AddTasks(query, limit, to_wall, answer);
    return answer;
  }
};

proto::StateQuery Where(const std::string& key, const std::string& value, bool not_equal = false) {
  proto::StateQuery query;
  proto::StateFilter& filter = *query.add_filters();
  filter.set_key(key);
  filter.set_value(value);
  filter.set_not_equal(not_equal);
  return query;
}

TEST_CASE("ended calls are told with who ran them when, the last first") {
  Node node;
  TaskEvent event = EventOf(1, node.function, 10 * kSecond, 12 * kSecond);
  event.parent_sequence = 77;
  event.created_ms = 9'000;
  event.thread = 2;
  node.worker.Record(event);
  node.worker.Record(EventOf(2, node.function, 12 * kSecond, 13 * kSecond));
  node.history.Read();
  const proto::StateAnswer answer = node.Ask({}, 100, /*to_wall=*/0);
  REQUIRE(answer.tasks_size() == 2);
  const proto::TaskRow& row = answer.tasks(1);
  CHECK(row.task_id() == event.task.ToHex());
  CHECK(row.name() == "square");
  CHECK(row.type() == "NORMAL_TASK");
  CHECK(row.state() == "FINISHED");
  CHECK(row.job() == 3);
  CHECK(row.owner() == kDriver.packed());
  CHECK(row.worker() == kWorker.packed());
  CHECK(row.os_pid() == 4711);
  CHECK(row.thread() == 2);
  CHECK(row.created_unix_ms() == 9'000);
  CHECK(row.begin_unix_ns() == 10 * kSecond);
  CHECK(row.end_unix_ns() == 12 * kSecond);
  CHECK(row.parent_sequence() == 77);
}

TEST_CASE("when a call was made is the time next to its end, whatever 32 bits hold") {
  Node node;
  constexpr Nanos kWall = (int64_t{1} << 32) * kMillisecond;  // 32 bits begin anew just then.
  TaskEvent event = EventOf(1, node.function, kSecond, 2 * kSecond);
  event.created_ms = static_cast<uint32_t>(-1000);
  node.worker.Record(event);
  node.history.Read();
  CHECK(node.Ask({}, 1, kWall).tasks(0).created_unix_ms() == (int64_t{1} << 32) - 1000);
}

TEST_CASE("what an owner alone knows of has no worker") {
  Node node;
  const uint16_t function = node.driver.FunctionOf("lost", CallKind::kTask);
  node.driver.RecordFailure(FailureOf(5, function, kSecond, ErrorKind::kWorkerCrashed), "killed");
  node.history.Read();
  const proto::TaskRow row = node.Ask().tasks(0);
  CHECK(row.state() == "FAILED");
  CHECK(row.error_type() == "WORKER_DIED");
  CHECK(row.error() == "killed");
  CHECK(row.worker() == 0);
  CHECK(row.begin_unix_ns() == 0);
}

TEST_CASE("filters, ids, times and limits choose, and what was left out is said") {
  Node node;
  for (uint64_t i = 1; i <= 10; ++i) {
    const auto end = static_cast<Nanos>(i) * kSecond;
    if (i % 2 == 0) {
      node.worker.Record(EventOf(i, node.function, end - 1, end));
    } else {
      node.worker.RecordFailure(FailureOf(i, node.function, end, ErrorKind::kTaskFailed), "");
    }
  }
  node.history.Read();
  CHECK(node.Ask(Where("state", "failed")).tasks_size() == 5);
  CHECK(node.Ask(Where("state", "FAILED", true)).tasks_size() == 5);
  CHECK(node.Ask(Where("name", "square")).tasks_size() == 10);
  CHECK(node.Ask(Where("error_type", "TASK_EXECUTION_EXCEPTION")).tasks_size() == 5);
  CHECK(node.Ask(Where("job", "4")).tasks_size() == 0);
  proto::StateQuery by_id;
  by_id.set_id(EventOf(4, 0, 0, 0).task.ToHex());
  CHECK(node.Ask(by_id).tasks_size() == 1);
  proto::StateQuery before;
  before.set_ended_before_ns(4 * kSecond);
  CHECK(node.Ask(before).tasks_size() == 3);
  const proto::StateAnswer some = node.Ask({}, 3);
  REQUIRE(some.tasks_size() == 3);
  CHECK(some.truncated());
  CHECK(some.tasks(0).end_unix_ns() == 10 * kSecond);
  CHECK(some.tasks(2).end_unix_ns() == 8 * kSecond);
  CHECK(!node.Ask({}, 10).truncated());
}

TEST_CASE("pages of calls of several processes leave none out") {
  Node node;
  const uint16_t other = node.driver.FunctionOf("other", CallKind::kTask);
  for (uint64_t i = 1; i <= 10; ++i) {
    const Nanos end = static_cast<Nanos>(i) * kSecond;
    if (i % 2 == 0) {
      node.worker.Record(EventOf(i, node.function, end - 1, end));
    } else {
      node.driver.Record(EventOf(i, other, end - 1, end));
    }
  }
  node.history.Read();
  proto::StateQuery query;
  std::vector<Nanos> ends;
  for (int page = 0; page < 4; ++page) {
    const proto::StateAnswer answer = node.Ask(query, 3);
    for (const proto::TaskRow& row : answer.tasks()) ends.push_back(row.end_unix_ns());
    query.set_ended_before_ns(ends.back());
  }
  REQUIRE(ends.size() == 10);
  for (size_t i = 0; i < 10; ++i) CHECK(ends[i] == static_cast<Nanos>(10 - i) * kSecond);
}

TEST_CASE("times that no clock shows are bounded") {
  Node node;
  node.worker.Record(EventOf(1, node.function, INT64_MIN, INT64_MAX));
  node.worker.Record(EventOf(2, node.function, -1, -1));
  node.history.Read();
  constexpr Nanos kWall = int64_t{1} << 61;
  const proto::StateAnswer answer = node.Ask({}, 100, kWall);
  REQUIRE(answer.tasks_size() == 2);
  for (const proto::TaskRow& row : answer.tasks()) CHECK(row.end_unix_ns() >= kWall);
}

TEST_CASE("the oldest go when the room is used; failures stay beside many successes") {
  Node node(64 << 10);
  node.worker.RecordFailure(FailureOf(1, node.function, 1, ErrorKind::kTaskFailed), "kept");
  for (uint64_t i = 2; i < 20'000; ++i) {
    node.worker.Record(EventOf(i, node.function, 2, 3));
    if (i % 1'000 == 0) node.history.Read();
  }
  node.history.Read();
  CHECK(node.history.size() < 1'000);
  CHECK(node.history.size() > 300);
  CHECK(node.history.lost() == 0);
  CHECK(node.Ask(Where("state", "FAILED")).tasks_size() == 1);
}

TEST_CASE("counts are exact, of processes that are gone, too") {
  Node node;
  for (uint64_t i = 0; i < 3 * kEndedCalls; ++i)
    node.worker.Record(EventOf(i + 1, node.function, 0, 100));
  node.worker.RecordFailure(FailureOf(1, node.function, 1, ErrorKind::kTaskCancelled), "");
  node.history.Remove(kWorker);
  node.worker_segment.reset();
  auto second = SegmentForTest();
  EventWriter again(EventPageOf(second->data()));
  again.SetJob(3);
  again.Count(again.FunctionOf("square", CallKind::kTask));
  node.history.Add({1, 9}, 5000, EventPageOf(second->data()));
  proto::StateAnswer answer;
  node.history.AddFunctions(answer);
  REQUIRE(answer.functions_size() == 1);
  CHECK(answer.functions(0).name() == "square");
  CHECK(answer.functions(0).job() == 3);
  CHECK(answer.functions(0).finished() == 3 * kEndedCalls + 1);
  CHECK(answer.functions(0).cancelled() == 1);
  CHECK(answer.functions(0).timed() == 3 * kEndedCalls);
  CHECK(node.Ask().events_lost() == 2 * kEndedCalls);
}

TEST_CASE("of many functions of the gone those of the oldest jobs are counted together") {
  TaskHistory history(1 << 20);
  constexpr uint64_t kJobs = TaskHistory::kMostFunctionsOfTheGone + 10;
  for (uint64_t job = 1; job <= kJobs; job += 500) {
    auto segment = SegmentForTest();
    EventWriter writer(EventPageOf(segment->data()));
    writer.SetJob(static_cast<JobNumber>(job));
    for (uint64_t i = job; i < std::min(job + 500, kJobs + 1); ++i)
      writer.Count(writer.FunctionOf("f" + std::to_string(i), CallKind::kActorMethod));
    history.Add({1, static_cast<uint32_t>(job)}, 1, EventPageOf(segment->data()));
    history.Remove({1, static_cast<uint32_t>(job)});
  }
  proto::StateAnswer answer;
  history.AddFunctions(answer);
  CHECK(answer.functions_size() <= static_cast<int>(TaskHistory::kMostFunctionsOfTheGone));
  CHECK(answer.functions(0).name() == kOtherFunctionName);
  CHECK(answer.functions(0).job() == 0);
  CHECK(answer.functions(0).type() == "ACTOR_TASK");
  uint64_t finished = 0;
  for (const proto::FunctionRow& row : answer.functions()) finished += row.finished();
  CHECK(finished == kJobs);
}

TEST_CASE("an actor's call of itself tells where it ran") {
  Node node;
  node.worker.SetActor({kDriver.packed(), 9ull << 16});
  const uint16_t method = node.worker.FunctionOf("Counter.add", CallKind::kActorMethod);
  TaskEvent event = EventOf(10, method, 1, 2);
  event.task.maker_bits = kWorker.packed();
  node.worker.Record(event);
  node.history.Read();
  CHECK(node.Ask().tasks(0).worker() == kWorker.packed());
}

TEST_CASE("an actor's calls name it") {
  Node node;
  const ActorId actor{kDriver.packed(), 9ull << 16};
  node.worker.SetActor(actor);
  const uint16_t method = node.worker.FunctionOf("Counter.add", CallKind::kActorMethod);
  node.worker.Record(EventOf(10, method, 1, 2));
  node.history.Read();
  CHECK(node.Ask(Where("actor_id", actor.ToHex())).tasks_size() == 1);
}

}  // namespace
}  // namespace sheaf::telemetry
