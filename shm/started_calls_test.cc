// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "shm/started_calls.h"

#include <catch2/catch.hpp>
#include <memory>

namespace sheaf {
namespace {

constexpr uint64_t kLease = 7;

SCENARIO("a page says of each caller what was started for it") {
  const auto page = std::make_unique<ProcessPage>();
  StartedCalls started(page.get());
  const auto add = [&](ProcessId caller, uint64_t push) {
    started.Add(kLease, caller, push, true);
  };

  GIVEN("two callers, one far ahead of the other") {
    add({1, 1}, 500);
    add({1, 2}, 3);
    CHECK(page->started_lease == kLease);
    CHECK(page->StartedOf({1, 1}) == 500);
    CHECK(page->StartedOf({1, 2}) == 3);
    CHECK(page->StartedOf({1, 3}) == 0);
    THEN("an older push that starts late, in a group of its own, takes nothing back") {
      add({1, 1}, 499);
      CHECK(page->StartedOf({1, 1}) == 500);
    }
    THEN("the place of a dead one serves another, which begins at 0") {
      started.Forget({1, 1});
      started.Forget({9, 9});
      CHECK(page->StartedOf({1, 1}) == 0);
      for (uint32_t i = 0; i + 1 < ProcessPage::kCallers; ++i) add({2, i + 1}, 1);
      CHECK(page->started_push == 0);
      CHECK(page->StartedOf({2, ProcessPage::kCallers - 1}) == 1);
      CHECK(page->StartedOf({1, 2}) == 3);
    }
  }
  GIVEN("more callers than there are places") {
    for (uint32_t i = 0; i < ProcessPage::kCallers; ++i) add({1, i + 1}, i + 1);
    add({2, 1}, 30);
    add({2, 2}, 20);
    THEN("those without one share a number, the largest") {
      CHECK(page->StartedOf({2, 1}) == 30);
      CHECK(page->StartedOf({2, 2}) == 30);
      CHECK(page->StartedOf({1, 5}) == 5);
    }
    THEN("who gets a place later loses nothing") {
      started.Forget({1, 5});
      add({2, 3}, 1);
      add({2, 2}, 21);
      CHECK(page->StartedOf({2, 3}) >= 1);
      CHECK(page->StartedOf({2, 2}) >= 21);
      CHECK(page->StartedOf({2, 1}) == 30);
    }
  }
}

SCENARIO("a lease of tasks has one caller, and begins at 0") {
  const auto page = std::make_unique<ProcessPage>();
  StartedCalls started(page.get());
  started.Add(1, {1, 1}, 9, false);
  CHECK(page->StartedOf({1, 1}) == 9);
  started.Add(2, {1, 2}, 1, false);
  CHECK(page->started_lease == 2);
  CHECK(page->StartedOf({1, 2}) == 1);
}

}  // namespace
}  // namespace sheaf
