// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "base/executor.h"

#include <signal.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <future>

namespace sheaf {

SCENARIO("a thread executor runs everything, in order, on its own thread") {
  std::vector<int> seen;
  ThreadExecutor executor("order");
  for (int i = 0; i < 1000; ++i) {
    executor.Post([&, i] {
      if (executor.IsCurrent()) seen.push_back(i);
    });
  }
  executor.Stop();
  REQUIRE(seen.size() == 1000);
  CHECK(std::is_sorted(seen.begin(), seen.end()));
  CHECK_FALSE(executor.IsCurrent());
  executor.Post([&] { seen.push_back(-1); });
  executor.Stop();
  CHECK(seen.back() == 999);
}

SCENARIO(
    "work that is posted by work runs before Stop returns if it was posted before Stop began") {
  ThreadExecutor executor("nested");
  std::promise<void> inner_ran;
  executor.Post([&] { executor.Post([&] { inner_ran.set_value(); }); });
  inner_ran.get_future().get();  // Hangs, and the test times out, if the second wake-up is lost.
  executor.Stop();
}

SCENARIO("who runs work and waits goes on when the work has run, or was dropped") {
  int runs = 0;
  ThreadExecutor executor("wait");
  RunAndWait(executor, [&] { ++runs; });
  CHECK(runs == 1);
  executor.Stop();
  RunAndWait(executor, [&] { ++runs; });
  CHECK(runs == 1);
  InlineExecutor here;
  RunAndWait(here, [&] { ++runs; });
  CHECK(runs == 2);
}

SCENARIO("the tick runs without work, and with more work than time") {
  std::promise<void> ticked;
  int ticks = 0;
  std::function<void()> again;  // Runs on the executor's thread until that has stopped.
  ThreadExecutor executor({.name = "tick", .tick_period = kMillisecond, .tick = [&] {
                             if (++ticks == 3) ticked.set_value();
                           }});
  WHEN("nothing is posted") { ticked.get_future().get(); }
  WHEN("work keeps posting itself") {
    again = [&] { executor.Post(again); };
    executor.Post(again);
    ticked.get_future().get();
  }
  executor.Stop();
  CHECK(ticks >= 3);
}

SCENARIO("the thread blocks all signals") {
  ThreadExecutor executor("signals");
  std::promise<bool> blocked;
  executor.Post([&] {
    sigset_t mask;
    pthread_sigmask(SIG_SETMASK, nullptr, &mask);
    blocked.set_value(sigismember(&mask, SIGINT) && sigismember(&mask, SIGTERM));
  });
  CHECK(blocked.get_future().get());
}

SCENARIO("the inline executor does not nest") {
  InlineExecutor executor;
  std::vector<int> seen;
  executor.Post([&] {
    executor.Post([&] { seen.push_back(2); });
    seen.push_back(1);
  });
  CHECK(seen == std::vector{1, 2});
}

SCENARIO("the manual executor waits for the test") {
  ManualExecutor executor;
  int runs = 0;
  executor.Post([&] { ++runs; });
  CHECK(runs == 0);
  CHECK(executor.RunOne());
  CHECK_FALSE(executor.RunOne());
  CHECK(runs == 1);
}

}  // namespace sheaf
