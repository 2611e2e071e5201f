// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "worker/core/sequence_times.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <vector>

namespace sheaf {
namespace sequence_times_test {

constexpr Nanos kBegin = kSecond;

SCENARIO("a number was made before the first higher one was taken") {
  SequenceTimes times;
  CHECK(times.IsDue(kBegin));
  times.Note(1, kBegin);
  CHECK_FALSE(times.MadeBefore(2).has_value());
  CHECK_FALSE(times.IsDue(kBegin + SequenceTimes::kPeriod - 1));
  CHECK(times.IsDue(kBegin + SequenceTimes::kPeriod));
  times.Note(4, kBegin + SequenceTimes::kPeriod);
  CHECK(times.MadeBefore(0) == kBegin);
  CHECK(times.MadeBefore(3) == kBegin + SequenceTimes::kPeriod);
  CHECK_FALSE(times.MadeBefore(5).has_value());
}

SCENARIO("a month of numbers is known to an eighth, and takes a few hundred places") {
  SequenceTimes times;
  std::vector<Nanos> made;  // By number: one a second, with an hour of none each day.
  Nanos now = kBegin;
  constexpr int64_t kDay = 86'400;
  for (int64_t second = 0; second < 30 * kDay; ++second, now += kSecond) {
    if (second % kDay >= 3600) made.push_back(now);
    if (!times.IsDue(now)) continue;
    times.Note(made.size(), now);
    made.push_back(now);  // It is taken, too.
  }
  CHECK(times.size() < 300);
  for (size_t number = 0; number < made.size(); number += 997) {
    const std::optional<Nanos> before = times.MadeBefore(number);
    if (!before) continue;
    REQUIRE(*before >= made[number]);
    const Nanos age = now - made[number];
    REQUIRE(*before - made[number] <= std::max(SequenceTimes::kPeriod, age / 8));
  }
}

}  // namespace sequence_times_test
}  // namespace sheaf
