// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "metrics/user_metrics.h"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <string>

#include "base/testing/scratch_directory_for_test.h"

namespace sheaf::metrics {
namespace {

UserFamilies Read(std::string_view content, bool with_gauges = true) {
  SeriesLimit limit;
  UserFamilies families;
  ReadUserMetrics(content, "7", with_gauges, limit, &families);
  return families;
}

SCENARIO("a file's families are read with their labels and the process's id") {
  const UserFamilies families = Read(
      "F\tcounter\tray_calls\tHow many\nS\t3\troute\t/a\nS\t4\troute\t/b\n"
      "F\tgauge\tray_load\t\nS\t0.5\n"
      "F\thistogram\tray_time\tSeconds\nH\t2.5\t1:1,2:2,inf:3\n");
  REQUIRE(families.size() == 3);
  const prometheus::MetricFamily& calls = families.at("ray_calls");
  CHECK(calls.help == "How many");
  REQUIRE(calls.metric.size() == 2);
  CHECK(calls.metric[1].counter.value == 4);
  CHECK(calls.metric[1].label[0].value == "/b");
  CHECK(calls.metric[1].label[1].name == "pid");
  CHECK(families.at("ray_load").metric[0].gauge.value == 0.5);
  CHECK(families.at("ray_time").metric[0].histogram.sample_count == 3);
  CHECK(families.at("ray_time").metric[0].histogram.bucket.size() == 3);
}

SCENARIO("the same family of several processes is one, of the kind that came first") {
  UserFamilies families = Read("F\tcounter\ta\t\nS\t1\n");
  SeriesLimit limit;
  ReadUserMetrics("F\tcounter\ta\t\nS\t2\nF\tgauge\ta\t\nS\t3\n", "8", true, limit, &families);
  REQUIRE(families.size() == 1);
  CHECK(families.at("a").metric.size() == 2);
}

SCENARIO("gauges of a process that has ended are left out, counters stay") {
  const UserFamilies families = Read("F\tcounter\ta\t\nS\t1\nF\tgauge\tb\t\nS\t1\n", false);
  CHECK(families.size() == 1);
}

SCENARIO("what does not parse is left out") {
  for (const char* bad :
       {"S\t1\n", "F\tcounter\t1a\t\nS\t1\n", "F\tsum\ta\t\nS\t1\n", "F\tcounter\ta\nS\t1\n",
        "F\tcounter\ta-b\t\nS\t1\n", "F", "\t\t\t", ""}) {
    CHECK(Read(bad).empty());
  }
  for (const char* bad : {"S\tone\n", "S\n", "S\t1\tk\n", "S\t1\tpid\t3\n", "S\t1\tle\t3\n",
                          "S\t1\t\t3\n", "H\t1\tinf:1\n"}) {
    CHECK(Read(std::string("F\tcounter\ta\t\n") + bad).at("a").metric.empty());
  }
  for (const char* bad : {"H\t1\t1:1\n", "H\t1\t2:1,1:2,inf:3\n", "H\t1\t1:2,inf:1\n", "H\t1\t\n",
                          "H\t1\t1:x,inf:2\n", "S\t1\n"}) {
    CHECK(Read(std::string("F\thistogram\ta\t\n") + bad).at("a").metric.empty());
  }
}

SCENARIO("a directory that is not there has no metrics") {
  CHECK(UserMetrics().Collect("/nonexistent/metrics").empty());
}

// A counter with series of the value 1 and the tags `first`, `first` + 1 and so on.
std::string Counter(const std::string& name, size_t first, size_t series) {
  std::string text = "F\tcounter\t" + name + "\t\n";
  for (size_t i = first; i < first + series; ++i) text += "S\t1\ttag\t" + std::to_string(i) + "\n";
  return text;
}

SCENARIO("beyond its limit a metric's series are served as one, and its sum stays right") {
  SeriesLimit limit;
  UserFamilies families;
  ReadUserMetrics(Counter("a", 0, kMaxSeriesOfMetric), "7", true, limit, &families);
  CHECK(!families.at("a").overflow);
  CHECK(limit.EndOfRound().empty());
  WHEN("another process has seven more") {
    families.clear();
    ReadUserMetrics(Counter("a", 0, 7), "8", true, limit, &families);
    ReadUserMetrics(Counter("a", 0, kMaxSeriesOfMetric), "7", true, limit, &families);
    THEN("those that came first stay as they are, whichever is read first") {
      CHECK(families.at("a").metric.size() == kMaxSeriesOfMetric);
      CHECK(families.at("a").metric.front().label.back().value == "7");
      REQUIRE(families.at("a").overflow);
      CHECK(families.at("a").overflow->counter.value == 7);
      CHECK(families.at("a").overflow->label.size() == 1);
      CHECK(limit.EndOfRound() == std::vector<std::string>{"a"});
      CHECK(limit.EndOfRound().empty());  // It is said once.
    }
    AND_WHEN("the first process is gone") {
      limit.EndOfRound();
      ReadUserMetrics(Counter("a", 0, 7), "8", true, limit, &families);
      limit.EndOfRound();
      families.clear();
      ReadUserMetrics(Counter("a", 0, 7) + "S\t1\ttag\tnew\n", "8", true, limit, &families);
      THEN("what was served with others stays so, and new series have room") {
        CHECK(families.at("a").metric.size() == 1);
        CHECK(families.at("a").overflow->counter.value == 7);
      }
    }
  }
}

SCENARIO("all metrics of a node have a limit together") {
  SeriesLimit limit;
  UserFamilies families;
  for (size_t i = 0; i < kMaxUserSeries / kMaxSeriesOfMetric; ++i) {
    ReadUserMetrics(Counter("a" + std::to_string(i), 0, kMaxSeriesOfMetric), "7", true, limit,
                    &families);
  }
  ReadUserMetrics(Counter("b", 0, 1), "7", true, limit, &families);
  CHECK(families.at("b").metric.empty());
  CHECK(families.at("b").overflow->counter.value == 1);
}

SCENARIO("histograms are added where their bounds are the same, and nothing is lost where not") {
  SeriesLimit limit;
  UserFamilies families;
  for (size_t i = 0; i < kMaxSeriesOfMetric; ++i) limit.Admit("t", i);
  ReadUserMetrics(
      "F\thistogram\tt\t\nH\t5\t1:1,2:2,inf:3\nH\t7\t1:1,2:1,inf:1\tk\tb\nH\t1\t9:4,inf:4\tk\tc\n",
      "7", true, limit, &families);
  REQUIRE(families.at("t").overflow);
  const auto& sum = families.at("t").overflow->histogram;
  CHECK(sum.sample_count == 8);
  CHECK(sum.sample_sum == 13);
  REQUIRE(sum.bucket.size() == 3);
  CHECK(sum.bucket[0].cumulative_count == 2);
  CHECK(sum.bucket[1].cumulative_count == 3);
  CHECK(sum.bucket[2].cumulative_count == 8);
}

SCENARIO("what a process counted is served for a while after its end, and its file goes then") {
  namespace fs = std::filesystem;
  const ScratchDirectory directory;
  const fs::path ended = fs::path(directory.path()) / "999999999";  // No process has this number.
  const std::string self = std::to_string(getpid());
  for (const fs::path& path : {ended, ended.parent_path() / self}) {
    std::ofstream(path) << "F\tcounter\ta\t\nS\t1\nF\tgauge\tb\t\nS\t1\n";
  }
  UserMetrics metrics;
  const auto series = [&] {
    size_t count = 0;
    for (const auto& family : metrics.Collect(directory.path())) count += family.metric.size();
    return count;
  };
  CHECK(series() == 3);
  for (const fs::path& path : {ended, ended.parent_path() / self}) {
    fs::last_write_time(path, fs::file_time_type::clock::now() - 2 * kServedAfterEnd);
  }
  CHECK(series() == 2);
  CHECK_FALSE(fs::exists(ended));
}

SCENARIO("what was served with others does not fall when a process's file goes") {
  const ScratchDirectory directory;
  const std::string file = directory / "999999999";
  std::ofstream(file) << Counter("a", 0, kMaxSeriesOfMetric + 5);
  UserMetrics metrics;
  const auto overflow = [&] {
    double value = -1;
    for (const auto& family : metrics.Collect(directory.path())) {
      for (const auto& metric : family.metric) {
        if (metric.label.at(0).name == "overflow") value = metric.counter.value;
      }
    }
    return value;
  };
  CHECK(overflow() == 5);
  std::filesystem::last_write_time(
      file, std::filesystem::file_time_type::clock::now() - 2 * kServedAfterEnd);
  CHECK(overflow() == 5);
  CHECK_FALSE(std::filesystem::exists(file));
  CHECK(overflow() == 5);
}

}  // namespace
}  // namespace sheaf::metrics
