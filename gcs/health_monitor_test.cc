// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "gcs/health_monitor.h"

#include <catch2/catch.hpp>

#include "base/fake_clock.h"

namespace sheaf {
namespace health_monitor_test {

using Changes = std::vector<HealthMonitor::Change>;
constexpr Nanos kStep = 100 * kMillisecond;

SCENARIO("a silent node is suspect after one second and dead, once, after five") {
  FakeClock clock;
  HealthMonitor monitor({}, clock);
  monitor.Add(1);
  monitor.Add(2);
  Changes changes;
  std::vector<Nanos> times;
  for (int step = 1; step <= 70; ++step) {
    clock.Advance(kStep);
    monitor.OnHeard(1);
    for (const auto& change : monitor.Tick()) {
      changes.push_back(change);
      times.push_back(step * kStep);
    }
  }
  CHECK(changes == Changes{{2, Health::kSuspect}, {2, Health::kDead}});
  CHECK(times == std::vector<Nanos>{kSecond, 5 * kSecond});
  CHECK(monitor.IsHealthy(1));
  CHECK_FALSE(monitor.IsHealthy(2));
  CHECK_FALSE(monitor.OnHeard(2));
}

SCENARIO("a suspect node that is heard again is healthy, and no longer on its way to death") {
  FakeClock clock;
  HealthMonitor monitor({}, clock);
  monitor.Add(1);
  for (int step = 0; step < 30; ++step) {
    clock.Advance(kStep);
    monitor.Tick();
  }
  CHECK_FALSE(monitor.IsHealthy(1));
  CHECK(monitor.OnHeard(1));
  CHECK_FALSE(monitor.OnHeard(1));
  Changes changes;
  for (int step = 0; step < 49; ++step) {
    clock.Advance(kStep);
    for (const auto& change : monitor.Tick()) changes.push_back(change);
  }
  CHECK(changes == Changes{{1, Health::kSuspect}});
}

SCENARIO("a node that has yet to be heard has longer, and then as long as any") {
  FakeClock clock;
  HealthMonitor monitor({}, clock);
  monitor.Add(1, 15 * kSecond);
  monitor.Add(2, 15 * kSecond);
  Changes changes;
  std::vector<Nanos> times;
  for (int step = 1; step <= 200; ++step) {
    clock.Advance(kStep);
    if (step == 60) CHECK(monitor.OnHeard(1));
    for (const auto& change : monitor.Tick()) {
      changes.push_back(change);
      times.push_back(step * kStep);
    }
  }
  CHECK(changes == Changes{{1, Health::kSuspect},
                           {2, Health::kSuspect},
                           {1, Health::kSuspect},
                           {1, Health::kDead},
                           {2, Health::kDead}});
  CHECK(times == std::vector<Nanos>{kSecond, kSecond, 7 * kSecond, 11 * kSecond, 15 * kSecond});
}

SCENARIO("a pause of the GCS itself counts for nobody") {
  FakeClock clock;
  HealthMonitor monitor({}, clock);
  monitor.Add(1);
  clock.Advance(kStep);
  monitor.Tick();
  clock.Advance(15 * kSecond);
  CHECK(monitor.Tick().empty());
  for (int step = 0; step < 9; ++step) {
    clock.Advance(kStep);
    CHECK(monitor.Tick() == (step < 8 ? Changes{} : Changes{{1, Health::kSuspect}}));
  }
}

SCENARIO("a node that left is not missed") {
  FakeClock clock;
  HealthMonitor monitor({}, clock);
  monitor.Add(1);
  monitor.Remove(1);
  for (int step = 0; step < 60; ++step) {
    clock.Advance(kStep);
    CHECK(monitor.Tick().empty());
  }
}

}  // namespace health_monitor_test
}  // namespace sheaf
