// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "telemetry/profile_history.h"

#include <catch2/catch.hpp>
#include <map>
#include <string>

#include "telemetry/event_page_for_test.h"
#include "telemetry/profile_writer.h"

namespace sheaf::telemetry {
namespace {

constexpr ProcessId kWorker{1, 7}, kOther{1, 8};

// A process with a profile.
struct Profiled {
  std::shared_ptr<Mapping> segment = SegmentForTest();
  ProfilePage& page = ProfilePageOf(segment->data());
  ProfileWriter writer{page};

  uint32_t Frame(const std::string& function) { return writer.FrameOf(function, "x.py", 3); }
  // The functions of `path`, divided by spaces, the outermost first, took so long at its end.
  void Spend(const std::string& path, uint64_t microseconds) {
    uint32_t node = ProfileWriter::kRoot;
    for (size_t at = 0; at < path.size();) {
      const size_t end = std::min(path.find(' ', at), path.size());
      node = writer.Below(node, Frame(path.substr(at, end - at)));
      at = end + 1;
    }
    writer.Add(node, microseconds);
  }
};

// "f g" -> what g took below f.
using Times = std::map<std::string, uint64_t>;
Times TimesOf(const proto::StateAnswer& answer) {
  Times times;
  std::vector<std::string> paths{""};
  for (const proto::ProfileNode& row : answer.profile()) {
    REQUIRE(row.parent() < paths.size());
    const std::string& above = paths[row.parent()];
    paths.push_back(above + (above.empty() ? "" : " ") + row.function());
    if (row.self_us() != 0) times[paths.back()] += row.self_us();
  }
  return times;
}

proto::StateAnswer Ask(const ProfileHistory& history, const proto::StateQuery& query = {},
                       uint32_t limit = 10'000) {
  proto::StateAnswer answer;
  history.AddProfile(query, limit, /*to_wall=*/0, answer);
  return answer;
}

auto OfJob(JobNumber job) {
  return [job] { return job; };
}

SCENARIO("the times of all processes are one tree, also of those that are gone") {
  ProfileHistory history;
  Profiled one, two;
  history.Add(kWorker, one.page, OfJob(1));
  history.Add(kOther, two.page, OfJob(1));
  CHECK_FALSE(history.Read(kSecond));
  one.Spend("f g", 30);
  one.Spend("f", 10);
  two.Spend("f g", 5);
  two.Spend("h", 1);
  CHECK(history.Read(kSecond));
  CHECK_FALSE(history.Read(kSecond));
  CHECK(TimesOf(Ask(history)) == Times{{"f", 10}, {"f g", 35}, {"h", 1}});
  one.Spend("f g", 100);
  history.Remove(kWorker, 2 * kSecond);
  history.Remove(kWorker, 2 * kSecond);
  CHECK(TimesOf(Ask(history)) == Times{{"f", 10}, {"f g", 135}, {"h", 1}});
  CHECK(Ask(history).profile(0).file() == "x.py");
  CHECK(Ask(history).profile(0).line() == 3);
}

SCENARIO("a question is about a function with what it calls, about a job, or about some time") {
  ProfileHistory history;
  Profiled one, two;
  history.Add(kWorker, one.page, OfJob(1));
  history.Add(kOther, two.page, OfJob(2));
  one.Spend("main Actor.step inner", 1);
  one.Spend("main other", 2);
  one.Spend("main Actor.step", 4);
  two.Spend("step", 8);
  history.Read(10 * kSecond);
  one.Spend("main other", 16);
  history.Read(20 * kSecond);
  proto::StateQuery query;
  query.set_function("step");
  CHECK(TimesOf(Ask(history, query)) ==
        Times{{"main Actor.step", 4}, {"main Actor.step inner", 1}, {"step", 8}});
  query.set_job(2);
  CHECK(TimesOf(Ask(history, query)) == Times{{"step", 8}});
  query.Clear();
  query.set_function("tep");
  CHECK(TimesOf(Ask(history, query)).empty());
  query.Clear();
  query.set_from_unix_ns(15 * kSecond);
  CHECK(TimesOf(Ask(history, query)) == Times{{"main other", 16}});
  query.Clear();
  query.set_to_unix_ns(15 * kSecond);
  query.set_job(1);
  CHECK(TimesOf(Ask(history, query)) ==
        Times{{"main Actor.step", 4}, {"main Actor.step inner", 1}, {"main other", 2}});
}

SCENARIO("windows grow long when they are old, and go after an hour; nothing is counted twice") {
  ProfileHistory history;
  Profiled one;
  history.Add(kWorker, one.page, OfJob(1));
  constexpr Nanos kStep = 10 * kSecond;
  for (int step = 1; step <= 500; ++step) {
    one.Spend("f", 1);
    history.Read(step * kStep);
    const uint64_t told = TimesOf(Ask(history)).at("f");
    // Of the last hour, or up to a long window more.
    const auto least = static_cast<uint64_t>(std::min(step, 360));
    CHECK(told >= least);
    CHECK(told <= least + 7);
  }
  history.Read(500 * kStep + ProfileHistory::kKeptFor + ProfileHistory::kLongWindow + kSecond);
  CHECK(TimesOf(Ask(history)).empty());
}

SCENARIO("an answer has those that took longest, with those that called them, and says it is cut") {
  ProfileHistory history;
  Profiled one;
  history.Add(kWorker, one.page, OfJob(1));
  for (int i = 0; i < 100; ++i) one.Spend("f g" + std::to_string(i), 1 + i);
  history.Read(kSecond);
  const proto::StateAnswer few = Ask(history, {}, 3);
  CHECK(few.truncated());
  CHECK(TimesOf(few) == Times{{"f g99", 100}, {"f g98", 99}});
  CHECK_FALSE(Ask(history, {}, 101).truncated());
}

SCENARIO("where a process has no room for another function its time is the caller's") {
  ProfileHistory history;
  Profiled one;
  history.Add(kWorker, one.page, OfJob(1));
  for (size_t i = 0; i < kProfileNodes + 10; ++i) one.Spend("f " + std::to_string(i % 5000), 1);
  for (size_t i = 0; i < kProfileFrames; ++i) one.Spend("f h" + std::to_string(i), 1);
  history.Read(kSecond);
  uint64_t sum = 0;
  for (const auto& [path, self_us] : TimesOf(Ask(history))) sum += self_us;
  CHECK(sum == kProfileNodes + 10 + kProfileFrames);
  CHECK(TimesOf(Ask(history)).at("f") > kProfileFrames);
}

SCENARIO("what no window has any more is dropped when there is too much") {
  ProfileHistory history;
  constexpr int kProcesses = 50;
  for (int i = 0; i < kProcesses; ++i) {
    Profiled one;
    const ProcessId process{1, static_cast<uint32_t>(100 + i)};
    history.Add(process, one.page, OfJob(1));
    const uint32_t frame = one.Frame("f" + std::to_string(i));
    uint32_t node = ProfileWriter::kRoot;
    for (size_t depth = 1; depth < kProfileNodes; ++depth) {
      node = one.writer.Below(node, frame);
      if (depth % 100 == 0) one.writer.Add(node, 1);
    }
    history.Remove(process, i * 100 * kSecond);
    history.Read(i * 100 * kSecond);
    CHECK(history.nodes() <= ProfileHistory::kMostNodes);
  }
  CHECK(Ask(history, {}, 200'000).profile_size() > 9'000);
}

SCENARIO("a process that writes nonsense into its profile makes its own numbers wrong") {
  ProfileHistory history;
  Profiled mad;
  history.Add(kWorker, mad.page, OfJob(1));
  mad.page.header.nodes = UINT64_MAX;
  mad.page.header.frames = UINT64_MAX;
  for (size_t i = 0; i < kProfileNodes; ++i) {
    mad.page.nodes[i].place = ~uint64_t{0} - i * 0x1'0000'0001;
    mad.page.nodes[i].self_us = i;
  }
  for (FrameSlot& slot : mad.page.frames) {
    for (auto& word : slot.function) word = ~uint64_t{0};
  }
  mad.page.header.samples = 1;
  CHECK(history.Read(kSecond));
  CHECK(Ask(history).profile_size() > 0);
  for (size_t i = 0; i < kProfileNodes; ++i) mad.page.nodes[i].self_us = 0;  // They never fall.
  mad.page.header.samples = 2;
  history.Read(kSecond);
  history.Remove(kWorker, kSecond);
}

}  // namespace
}  // namespace sheaf::telemetry
