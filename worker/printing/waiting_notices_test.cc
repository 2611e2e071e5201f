// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "worker/printing/waiting_notices.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace sheaf {
namespace waiting_notices_test {

struct Fixture {
  std::vector<std::string> lines;
  WaitingNotices notices{[this](std::string words) { lines.push_back(std::move(words)); }};
  Nanos now = kSecond;
  void Add(const std::string& kind) { notices.Add(kind, kind + ": no node has it", now); }
  void Wait(Nanos time) {
    for (const Nanos end = now + time; now < end;) notices.Tick(now += kSecond);
  }
};

TEST_CASE("of 10,000 requests of a kind the first is told at once, and the others' number") {
  Fixture f;
  for (int i = 0; i < 10'000; ++i) f.Add("A");
  CHECK(f.lines == std::vector<std::string>{"A: no node has it"});
  f.Wait(WaitingNotices::kFirstPause);
  REQUIRE(f.lines.size() == 2);
  CHECK(f.lines[1] == "A: no node has it (9999 more wait)");
  for (int second = 0; second < 120; ++second) {
    f.Add("A");
    f.Wait(kSecond);
  }
  CHECK(f.lines.size() <= 6);
}

TEST_CASE("a kind that has not waited for long is told of at once again") {
  Fixture f;
  f.Add("A");
  f.Wait(240 * kSecond);
  CHECK(f.lines.size() == 1);
  f.Add("A");
  CHECK(f.lines.size() == 2);
}

TEST_CASE("many kinds are told of by their number") {
  Fixture f;
  for (size_t i = 0; i < 10'000; ++i) f.Add(absl::StrCat(i));
  CHECK(f.lines.size() == WaitingNotices::kMostKinds);
  f.Wait(WaitingNotices::kFirstPause);
  REQUIRE(f.lines.size() == WaitingNotices::kMostKinds + 1);
  CHECK(f.lines.back().starts_with(
      absl::StrCat(10'000 - WaitingNotices::kMostKinds, " more requests")));
  const size_t before = f.lines.size();
  for (int second = 0; second < 120; ++second) {
    for (size_t i = 0; i < 10'000; ++i) f.Add(absl::StrCat(i));
    f.Wait(kSecond);
  }
  const auto of_others = [](const std::string& line) {
    return line.find(" more requests") != std::string::npos;
  };
  CHECK(std::count_if(f.lines.begin() + static_cast<ptrdiff_t>(before), f.lines.end(), of_others) <=
        4);
}

}  // namespace waiting_notices_test
}  // namespace sheaf
