// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "metrics/user_metrics.h"

#include <catch2/catch.hpp>

namespace sheaf::metrics {
namespace {

UserFamilies Read(std::string_view content, bool with_gauges = true) {
  UserFamilies families;
  ReadUserMetrics(content, "7", with_gauges, &families);
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
  ReadUserMetrics("F\tcounter\ta\t\nS\t2\nF\tgauge\ta\t\nS\t3\n", "8", true, &families);
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
  CHECK(CollectUserMetrics("/nonexistent/metrics").empty());
}

}  // namespace
}  // namespace sheaf::metrics
