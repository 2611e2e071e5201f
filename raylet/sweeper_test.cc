// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "raylet/sweeper.h"

#include <catch2/catch.hpp>
#include <map>

#include "base/fake_clock.h"

namespace sheaf {
namespace sweeper_test {

SCENARIO("each entry of each table is looked at once in a pass, a few at a time") {
  FakeClock clock;
  Sweeper sweeper(clock);
  std::map<int, int> looked_at;
  std::vector<int> keys;
  for (int i = 0; i < 1000; ++i) keys.push_back(i);
  sweeper.Add<int>(
      "numbers", [&] { return keys; },
      [&](int key) {
        ++looked_at[key];
        return false;
      });
  sweeper.Add<std::string>(
      "words", [] { return std::vector<std::string>{"a"}; },
      [&](std::string) {
        ++looked_at[-1];
        return false;
      });
  sweeper.Tick();
  for (int tick = 0; tick < 40; ++tick) {
    const size_t before = looked_at.size();
    clock.Advance(100 * kMillisecond);
    sweeper.Tick();
    CHECK(looked_at.size() - before <= 30);
  }
  CHECK(sweeper.passes() == 1);
  CHECK(looked_at.size() == 1001);
  for (const auto& [key, times] : looked_at) CHECK(times == 1);
  CHECK(sweeper.repaired() == 0);
}

SCENARIO("what is repaired is counted, with the name of its table") {
  FakeClock clock;
  Sweeper sweeper(clock);
  sweeper.Add<int>("good", [] { return std::vector<int>{1, 2}; }, [](int) { return false; });
  sweeper.Add<int>(
      "leaky", [] { return std::vector<int>{1, 2}; }, [](int key) { return key == 2; });
  sweeper.Tick();
  clock.Advance(5 * kSecond);
  sweeper.Tick();
  CHECK(sweeper.repaired() == 1);
  CHECK(sweeper.last_repaired() == "leaky");
}

SCENARIO("a long silence makes one pass, not many") {
  FakeClock clock;
  Sweeper sweeper(clock);
  int looked_at = 0;
  sweeper.Add<int>(
      "numbers", [] { return std::vector<int>{1, 2, 3}; },
      [&](int) {
        ++looked_at;
        return false;
      });
  sweeper.Tick();
  clock.Advance(3600 * kSecond);
  sweeper.Tick();
  CHECK(looked_at == 3);
}

}  // namespace sweeper_test
}  // namespace sheaf
