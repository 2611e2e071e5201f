// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "telemetry/event_writer.h"

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "base/check.h"
#include "base/random.h"
#include "catch2/catch.hpp"
#include "telemetry/event_page_for_test.h"
#include "telemetry/event_words.h"

namespace sheaf::telemetry {
namespace {

struct Fixture {
  std::shared_ptr<Mapping> segment = SegmentForTest();
  EventPage& page = EventPageOf(segment->data());
  EventWriter writer{page};
  EventReader reader{page};
  std::vector<TaskEvent> events;
  std::vector<std::string> texts;

  uint64_t Drain() {
    events.clear();
    texts.clear();
    return reader.Drain([&](const TaskEvent& event, std::string_view text, const TraceContext&) {
      events.push_back(event);
      texts.emplace_back(text);
    });
  }
};

TEST_CASE("what is recorded is read once, as it was") {
  Fixture f;
  const uint16_t square = f.writer.FunctionOf("square", CallKind::kActorMethod);
  TaskEvent event = EventOf(7, square, 1000, 900'000);
  event.parent_sequence = 5ull << 48 | 3;
  event.created_ms = 0xFFFFFFFF;
  event.thread = 65535;
  event.weight = 64;
  event.attempt = 1234;
  f.writer.Record(event);
  CHECK(f.reader.HasNews());
  CHECK(f.Drain() == 0);
  REQUIRE(f.events.size() == 1);
  CHECK(f.events[0] == event);
  CHECK(!f.reader.HasNews());
  f.Drain();
  CHECK(f.events.empty());

  const FunctionFigures figures = f.reader.FiguresOf(square);
  CHECK(figures.name == "square");
  CHECK(figures.kind == CallKind::kActorMethod);
  CHECK(figures.ended[0] == 1);
  CHECK(figures.run_ns == 899'000);
  CHECK(figures.longest_ns == 899'000);
  CHECK(figures.run_time[RunTimeBucketOf(899'000)] == 1);
}

TEST_CASE("failures keep their first words, whole characters of them") {
  Fixture f;
  const uint16_t function = f.writer.FunctionOf("f", CallKind::kTask);
  std::string text(kErrorTextBytes - 1, 'x');
  text += "\u00e9 is cut";
  f.writer.RecordFailure(FailureOf(1, function, 5, ErrorKind::kTaskFailed), text);
  f.writer.RecordFailure(FailureOf(2, function, 6, ErrorKind::kTaskCancelled), "");
  f.Drain();
  REQUIRE(f.texts.size() == 2);
  CHECK(f.texts[0] == std::string(kErrorTextBytes - 1, 'x'));
  CHECK(f.texts[1].empty());
  const FunctionFigures figures = f.reader.FiguresOf(function);
  CHECK(figures.ended[0] == 0);
  CHECK(figures.ended[1] == 1);
  CHECK(figures.ended[2] == 1);
}

TEST_CASE("the last words of a text begin with a whole character") {
  CHECK(LastOf("abc", 3) == "abc");
  CHECK(LastOf("abc", 2) == "bc");
  CHECK(LastOf("a\u00e9c", 2) == "c");
  CHECK(LastOf("", 2).empty());
}

TEST_CASE("a flood of successes is counted as lost and washes no failure away") {
  Fixture f;
  const uint16_t function = f.writer.FunctionOf("f", CallKind::kTask);
  f.writer.RecordFailure(FailureOf(1, function, 5, ErrorKind::kTaskFailed), "why");
  for (uint64_t i = 0; i < kEndedCalls + 10; ++i) f.writer.Record(EventOf(2 + i, function, 0, 9));
  CHECK(f.Drain() == 10);
  REQUIRE(f.events.size() == kEndedCalls + 1);
  CHECK(f.events.front().task.sequence_bits == 12ull << 16);
  CHECK(f.texts.back() == "why");
}

TEST_CASE("quick functions are sampled, slow ones are not, and counts stay exact") {
  Fixture f;
  const auto weights_of = [&](const char* name, Nanos run, int calls) {
    const uint16_t function = f.writer.FunctionOf(name, CallKind::kTask);
    uint64_t recorded = 0, stood_for = 0;
    for (int i = 0; i < calls; ++i) {  // One every 100 us.
      const Nanos begin = i * 100 * kMicrosecond;
      TaskEvent event = EventOf(static_cast<uint64_t>(i), function, begin, begin + run);
      event.weight = f.writer.Begin(function);
      if (event.weight == 0) {
        f.writer.Count(function);
      } else {
        ++recorded;
        stood_for += event.weight;
        f.writer.Record(event);
      }
    }
    CHECK(f.reader.FiguresOf(function).ended[0] == static_cast<uint64_t>(calls));
    CHECK(f.reader.FiguresOf(function).timed == recorded);
    CHECK(stood_for >= static_cast<uint64_t>(calls) - EventWriter::kRareWeight);
    CHECK(stood_for <= static_cast<uint64_t>(calls) + EventWriter::kRareWeight);
    return recorded;
  };
  CHECK(weights_of("slow", 20 * kMicrosecond, 6400) == 6400);
  CHECK(weights_of("quick", 3 * kMicrosecond, 6400) <= 6400 / 16 + 2);
  CHECK(weights_of("rare", 300, 6400) <= 6400 / 64 + 2);
}

TEST_CASE("a function that becomes slow is recorded whole again") {
  Fixture f;
  const uint16_t function = f.writer.FunctionOf("f", CallKind::kTask);
  Nanos now = 0;
  const auto run = [&](Nanos took) {
    const uint16_t weight = f.writer.Begin(function);
    now += took;
    if (weight != 0) {
      TaskEvent event = EventOf(1, function, now - took, now);
      event.weight = weight;
      f.writer.Record(event);
    }
    return weight;
  };
  for (int i = 0; i < 1000; ++i) run(200);
  for (int i = 0; i < 1000; ++i) run(kMillisecond);
  CHECK(run(kMillisecond) == 1);
}

TEST_CASE("long calls of which there are many at a time are sampled, until they are fewer") {
  Fixture f;
  const uint16_t function = f.writer.FunctionOf("f", CallKind::kTask);
  Nanos now = kSecond;
  const auto records_of = [&](int calls, Nanos each) {
    int records = 0;
    for (int i = 0; i < calls; ++i, now += each) {
      const uint16_t weight = f.writer.Begin(function);
      if (weight == 0) continue;
      ++records;
      TaskEvent event = EventOf(1, function, now - 5 * kMillisecond, now);
      event.weight = weight;
      f.writer.Record(event);
    }
    return records;
  };
  records_of(10'000, 5 * kMicrosecond);
  CHECK(records_of(160'000, 5 * kMicrosecond) == 160'000 / 16);
  SECTION("somewhat") {
    records_of(2'000, kMillisecond);
    CHECK(records_of(1'000, kMillisecond) == 1'000);
  }
  SECTION("hardly any") {
    CHECK(records_of(20, 10 * kSecond) >= 4);
    CHECK(records_of(100, 10 * kSecond) == 100);
  }
}

TEST_CASE("functions beyond the table count as others; long names are cut") {
  Fixture f;
  const std::string lengthy(1000, 'n');
  CHECK(f.reader.FiguresOf(f.writer.FunctionOf(lengthy, CallKind::kTask)).name ==
        std::string(kFunctionNameBytes, 'n'));
  for (size_t i = 0; i < 2 * kFunctions; ++i)
    f.writer.FunctionOf("f" + std::to_string(i), CallKind::kTask);
  CHECK(f.reader.functions() == kFunctions);
  CHECK(f.writer.FunctionOf("one more", CallKind::kTask) == kOtherFunction);
  CHECK(f.writer.FunctionOf("f3", CallKind::kTask) != kOtherFunction);
  CHECK(f.writer.FunctionOf("f3", CallKind::kActorMethod) == kOtherFunction);
}

TEST_CASE("a reader beside the writer sees whole events or none") {
  Fixture f;
  const uint16_t function = f.writer.FunctionOf("f", CallKind::kTask);
  constexpr uint64_t kEvents = 200'000;
  std::atomic<bool> done{false};
  uint64_t seen = 0, lost = 0, torn = 0, last = 0;
  std::thread thread([&] {
    bool more = true;
    while (more) {
      more = !done.load();
      lost += f.reader.Drain([&](const TaskEvent& event, std::string_view, const TraceContext&) {
        const uint64_t number = event.task.sequence_bits >> 16;
        const auto expected = static_cast<Nanos>(number * 3);
        torn += event.begin != expected || event.end != expected + 7 || number <= last;
        last = number;
        ++seen;
      });
    }
  });
  for (uint64_t i = 1; i <= kEvents; ++i) {
    const auto begin = static_cast<Nanos>(i * 3);
    f.writer.Record(EventOf(i, function, begin, begin + 7));
  }
  done = true;
  thread.join();
  CHECK(torn == 0);
  CHECK(seen + lost == kEvents);
}

TEST_CASE("garbage in the page is bounded") {
  Fixture f;
  SeededRandom random(20261124);
  for (int round = 0; round < 50; ++round) {
    auto* words = reinterpret_cast<std::atomic<uint64_t>*>(&f.page);
    for (size_t i = 0; i < sizeof(EventPage) / 8; ++i)
      words[i].store(random.Next() >> (random.Next() % 64), std::memory_order_relaxed);
    f.Drain();
    CHECK(f.events.size() <= kEndedCalls + kFailures);
    CHECK(f.reader.functions() <= kFunctions);
    for (size_t i = 0; i < f.reader.functions(); ++i)
      CHECK(f.reader.FiguresOf(static_cast<uint16_t>(i)).name.size() <= kFunctionNameBytes);
  }
}

}  // namespace
}  // namespace sheaf::telemetry
