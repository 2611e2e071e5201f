// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "telemetry/node_digests.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "catch2/catch.hpp"
#include "telemetry/call_lanes.h"
#include "telemetry/event_page_for_test.h"

namespace sheaf::telemetry {
namespace {

constexpr ProcessId kWorker{1, 3};
constexpr Nanos kNow = 1000 * kSecond;

struct Bar {
  int64_t begin_us, length_us;
  uint16_t name;
  BarKind kind;
  uint8_t share;
};

std::vector<Bar> BarsOf(const proto::Lane& lane) {
  REQUIRE(lane.bars().size() % kBarBytes == 0);
  std::vector<Bar> bars;
  const auto* bytes = reinterpret_cast<const uint8_t*>(lane.bars().data());
  const auto word = [&](size_t at, size_t size) {
    uint64_t value = 0;
    for (size_t i = 0; i < size; ++i) value |= uint64_t{bytes[at + i]} << (8 * i);
    return value;
  };
  for (size_t at = 0; at < lane.bars().size(); at += kBarBytes) {
    bars.push_back({static_cast<int64_t>(word(at, 4)), static_cast<int64_t>(word(at + 4, 4)),
                    static_cast<uint16_t>(word(at + 8, 2)), static_cast<BarKind>(bytes[at + 10]),
                    bytes[at + 11]});
  }
  return bars;
}

struct Node {
  std::shared_ptr<Mapping> segment = SegmentForTest();
  EventWriter worker{EventPageOf(segment->data())};
  TaskHistory history{1 << 20};
  NodeDigests digests;
  uint16_t function;

  Node() {
    history.Add(kWorker, 4711, EventPageOf(segment->data()));
    worker.SetJob(3);
    function = worker.FunctionOf("square", CallKind::kTask);
  }
  // What an asker with that cursor is told.
  proto::NodeDigest Ask(Nanos now, const proto::DigestCursor& cursor = {}, uint32_t lanes = 32) {
    proto::StateQuery query;
    query.set_lanes(lanes);
    if (cursor.at_ns() != 0) *query.add_cursors() = cursor;
    proto::NodeDigest digest;
    history.Read();
    digests.Fill(query, history, HostSample{}, now, /*to_wall=*/0, digest);
    return digest;
  }
};

TEST_CASE("a digest shows each call once, whoever asks how often") {
  Node node;
  node.worker.Record(EventOf(1, node.function, kNow - 2 * kSecond, kNow - kSecond));
  const proto::NodeDigest first = node.Ask(kNow);
  REQUIRE(first.lanes_size() == 1);
  REQUIRE(BarsOf(first.lanes(0)).size() == 1);
  const Bar bar = BarsOf(first.lanes(0))[0];
  CHECK(first.base_unix_us() + bar.begin_us == (kNow - 2 * kSecond) / kMicrosecond);
  CHECK(bar.length_us == kSecond / kMicrosecond);
  CHECK(bar.kind == BarKind::kFinished);
  CHECK(first.names(bar.name) == "square");
  CHECK(first.finished() == 1);

  const proto::NodeDigest second = node.Ask(kNow + kSecond, first.next());
  CHECK(second.lanes_size() == 0);
  CHECK(second.finished() == 1);
  TaskEvent failed = FailureOf(2, node.function, kNow + kSecond, ErrorKind::kTaskFailed);
  failed.begin = kNow;
  node.worker.RecordFailure(failed, "ValueError");
  const proto::NodeDigest third = node.Ask(kNow + 2 * kSecond, second.next());
  REQUIRE(third.lanes_size() == 1);
  REQUIRE(BarsOf(third.lanes(0)).size() == 1);
  CHECK(BarsOf(third.lanes(0))[0].kind == BarKind::kFailed);
  CHECK(third.failed() == 1);
  // Another one, who asks for the first time, is told all.
  CHECK(BarsOf(node.Ask(kNow + 2 * kSecond).lanes(0)).size() == 2);
}

TEST_CASE("each bar has the name of its function, however many functions come between") {
  Node node;
  constexpr int kFunctions = 60;  // That come in an order of names which lets maps grow everywhere.
  const auto name_of = [](int i) {
    return absl::StrCat("function_with_a_name_of_its_own_", i * 37 % kFunctions);
  };
  for (int i = 0; i < kFunctions; ++i) {
    const Nanos begin = kNow - (kFunctions - i) * 10 * kMillisecond;
    const uint16_t function = node.worker.FunctionOf(name_of(i), CallKind::kTask);
    node.worker.Record(EventOf(i + 1, function, begin, begin + 5 * kMillisecond));
  }
  const proto::NodeDigest digest = node.Ask(kNow);
  REQUIRE(digest.lanes_size() == 1);
  std::vector<Bar> bars = BarsOf(digest.lanes(0));
  REQUIRE(bars.size() == kFunctions);
  std::sort(bars.begin(), bars.end(), [](auto& a, auto& b) { return a.begin_us < b.begin_us; });
  for (int i = 0; i < kFunctions; ++i) CHECK(digest.names(bars[i].name) == name_of(i));
}

TEST_CASE("who begins behind others is told what they were, and no more") {
  Node node;
  node.worker.Record(EventOf(1, node.function, kNow - 2 * kSecond, kNow - kSecond));
  proto::DigestCursor known = node.Ask(kNow).next();
  node.worker.Record(EventOf(2, node.function, kNow - kSecond, kNow));
  proto::DigestCursor from_the_start;
  from_the_start.set_at_ns(kNow - 30 * kSecond);
  from_the_start.set_until_ended(known.ended());
  from_the_start.set_until_failures(known.failures());
  CHECK(BarsOf(node.Ask(kNow, from_the_start).lanes(0)).size() == 1);
  CHECK(BarsOf(node.Ask(kNow, known).lanes(0)).size() == 1);
}

TEST_CASE("what runs is told while it runs, and counts as busy") {
  Node node;
  const RunningCall call{kNow - 10 * kSecond, node.function};
  node.worker.OnRunning(2, call);
  proto::NodeDigest digest = node.Ask(kNow);
  REQUIRE(digest.lanes_size() == 1);
  CHECK(digest.lanes(0).thread() == 2);
  REQUIRE(digest.lanes(0).running_size() == 1);
  CHECK(digest.names(static_cast<int>(digest.lanes(0).running(0).name())) == "square");
  CHECK(std::abs(digest.lanes(0).running(0).begin_unix_ms() - call.begin / kMillisecond) <= 1);
  CHECK(digest.lanes(0).busy() == Approx(10.0 / 60).epsilon(0.01));
  REQUIRE(digest.functions_size() == 1);
  CHECK(digest.functions(0).busy() == Approx(10.0 / 60).epsilon(0.01));
  // Of a shorter span it was busy all the time.
  digest = node.Ask(kNow + kSecond, digest.next());
  CHECK(digest.lanes(0).busy() == Approx(1).epsilon(0.01));

  WHEN("it ends") {
    node.worker.OnNotRunning(2, call);
    CHECK(node.Ask(kNow + 2 * kSecond, digest.next()).lanes_size() == 0);
  }
  WHEN("another one has begun in its thread before it ends, as coroutines do") {
    node.worker.OnRunning(2, {kNow, node.function});
    node.worker.OnNotRunning(2, call);
    CHECK(node.Ask(kNow + kSecond, digest.next()).lanes(0).running_size() == 1);
  }
}

TEST_CASE("short calls are columns, whose shares come to the time that they took") {
  Node node;
  // A second of calls of 100 us, one after the other, half of the time; each stands for two.
  proto::DigestCursor cursor;
  cursor.set_at_ns(kNow - kSecond);
  Nanos spent = 0;
  for (int i = 0; i < 2500; ++i) {
    TaskEvent event = EventOf(static_cast<uint64_t>(i + 1), node.function,
                              kNow - kSecond + i * 400 * kMicrosecond,
                              kNow - kSecond + i * 400 * kMicrosecond + 100 * kMicrosecond);
    event.weight = 2;
    spent += 2 * (event.end - event.begin);
    node.worker.Record(event);
  }
  const proto::NodeDigest digest = node.Ask(kNow, cursor);
  REQUIRE(digest.lanes_size() == 1);
  CHECK(digest.lanes(0).busy() == Approx(0.5).epsilon(0.01));
  CHECK(digest.functions(0).busy() == Approx(0.5).epsilon(0.01));
  double drawn = 0;
  const std::vector<Bar> bars = BarsOf(digest.lanes(0));
  CHECK(bars.size() <= kMostBars);
  for (const Bar& bar : bars) {
    CHECK(bar.kind == BarKind::kColumn);
    drawn += static_cast<double>(bar.length_us) * bar.share / 255;
  }
  CHECK(drawn == Approx(static_cast<double>(spent / kMicrosecond)).epsilon(0.03));
}

TEST_CASE("rates are those between digests, exact whatever was sampled") {
  Node node;
  CHECK(node.Ask(kNow).functions_size() == 0);
  for (int i = 0; i < 500; ++i) node.worker.Count(node.function);
  const proto::NodeDigest digest = node.Ask(kNow + kSecond / 2);
  REQUIRE(digest.functions_size() == 1);
  CHECK(digest.functions(0).per_second() == Approx(1000));
  // One who asks in the same moment is told the same.
  CHECK(node.Ask(kNow + kSecond / 2 + kMillisecond).functions(0).per_second() == Approx(1000));
  CHECK(node.Ask(kNow + 2 * kSecond).functions(0).per_second() == 0);
}

TEST_CASE("a digest is small, whatever there is to tell, and says what it leaves out") {
  const uint32_t seed = GENERATE(1U, 2U, 3U, 4U);
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  Node node;
  std::vector<uint16_t> functions;
  for (int i = 0; i < 100; ++i)
    functions.push_back(node.worker.FunctionOf("function " + std::to_string(i), CallKind::kTask));
  constexpr uint64_t kThreads = 40;
  for (uint64_t i = 1; i <= 4000; ++i) {
    TaskEvent event = EventOf(i, functions[random() % functions.size()], 0, 0);
    event.end = kNow - static_cast<Nanos>(random() % (30 * kSecond));
    event.begin = event.end - static_cast<Nanos>(random() % (uint64_t{1} << (10 + random() % 30)));
    event.thread = static_cast<uint16_t>(i % kThreads);
    event.weight = static_cast<uint16_t>(1 << random() % 7);
    node.worker.Record(event);
  }
  const uint32_t most = seed == 4 ? 100 : 8;
  const proto::NodeDigest digest = node.Ask(kNow, {}, most);
  const auto lanes = static_cast<uint32_t>(digest.lanes_size());
  CHECK(lanes == std::min<uint32_t>(most, kMostLanes));
  CHECK(lanes + digest.lanes_left_out() == kThreads);
  CHECK(digest.functions_size() == NodeDigests::kFunctionsShown);
  for (const proto::Lane& lane : digest.lanes()) {
    const std::vector<Bar> bars = BarsOf(lane);
    CHECK(bars.size() <= kMostBars);
    CHECK(lane.busy() <= 1);
    for (const Bar& bar : bars) {
      CHECK(bar.name < digest.names_size());
      CHECK(digest.base_unix_us() + bar.begin_us <= kNow / kMicrosecond);
    }
  }
  CHECK(digest.ByteSizeLong() < lanes * (kMostBars * kBarBytes + 64) + 8192);
  CHECK(node.Ask(kNow, {}, 0).lanes_size() == 0);
}

TEST_CASE("cursors that are of no use are taken for none, or for the last moment") {
  Node node;
  node.worker.Record(EventOf(1, node.function, kNow - 2 * kSecond, kNow - kSecond));
  proto::DigestCursor cursor;
  cursor.set_ended(UINT64_MAX);
  cursor.set_failures(UINT64_MAX);
  cursor.set_at_ns(GENERATE(INT64_MIN, INT64_MAX, Nanos{1}, kNow));
  const proto::NodeDigest digest = node.Ask(kNow, cursor);
  CHECK(digest.lanes_size() == 0);
  CHECK(digest.next().ended() == 1);
}

}  // namespace
}  // namespace sheaf::telemetry
