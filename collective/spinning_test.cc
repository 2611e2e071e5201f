// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "collective/spinning.h"

#include <sched.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <thread>

namespace sheaf {
namespace {

constexpr Nanos kLongest = 200 * kMicrosecond;

TEST_CASE("a thread looks until it is so, or for as long as that pays") {
  Spinning spinning(kLongest);
  int looks = 0;
  // Whether somebody else had the core meanwhile, nobody can say here.
  const bool found = spinning.Until([&] { return ++looks == 3; });
  CHECK((found || spinning.SharesCore()));
  CHECK_FALSE(spinning.Until([] { return false; }));
}

TEST_CASE("a thread that shares its core with one that computes does not look any more") {
  cpu_set_t before;
  REQUIRE(sched_getaffinity(0, sizeof before, &before) == 0);
  int core = 0;
  while (!CPU_ISSET(core, &before)) ++core;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(core, &one);
  REQUIRE(sched_setaffinity(0, sizeof one, &one) == 0);
  std::atomic<bool> over{false};
  std::thread busy([&] {
    while (!over.load(std::memory_order_relaxed)) {
    }
  });
  Spinning spinning(kLongest);
  int looks = 1;
  const Nanos deadline = MonotonicNow() + 20 * kSecond;
  while (looks != 0 && MonotonicNow() < deadline) {
    const bool shares = spinning.SharesCore();
    int looked = 0;
    CHECK_FALSE(spinning.Until([&] { return ++looked < 0; }));
    if (shares) looks = looked;
  }
  CHECK(looks == 0);
  over.store(true);
  busy.join();
  sched_setaffinity(0, sizeof before, &before);
}

}  // namespace
}  // namespace sheaf
