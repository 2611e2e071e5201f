// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Workers forked from a template, and what happens when that ends.
#include <signal.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <string>
#include <thread>

#include "raylet/host/proc_files.h"
#include "raylet/host/process_launcher_for_test.h"

namespace sheaf {

SCENARIO("a template that cannot serve is replaced by plain exec") {
  WHEN("main has started a thread") {
    LauncherFixture fixture(true);
    fixture.AddJob(1, "thread");
    const LaunchedWorker worker = fixture.AwaitStart(fixture.Start(1));
    CHECK(fixture.AwaitOutput(worker, "parent") == std::to_string(getpid()));
  }
  WHEN("main ends before Init") {
    LauncherFixture fixture(true);
    fixture.AddJob(1, "die in main");
    const proto::Death death = fixture.AwaitExit(fixture.Start(1));
    CHECK(death.cause() == proto::Death::START_FAILED);
    CHECK(death.code() == 9);
  }
  WHEN("main does not reach Init") {
    LauncherFixture fixture(true, 50 * kMillisecond);
    fixture.AddJob(1, "hang in main");
    const ProcessId process = fixture.Start(1);
    fixture.AwaitStart(process);
    fixture.launcher().Kill(process, "too slow");
    CHECK(fixture.AwaitExit(process).cause() == proto::Death::KILLED);
  }
  WHEN("the template is killed between two workers") {
    LauncherFixture fixture(true);
    fixture.AddJob(1, "wait");
    const ProcessId first = fixture.Start(1);
    const pid_t template_pid = std::stoi(fixture.AwaitOutput(fixture.AwaitStart(first), "parent"));
    kill(template_pid, SIGKILL);
    THEN("the first lives on, its death is still known, and others are exec'd") {
      while (StartTicks(template_pid) != 0) std::this_thread::yield();
      ProcessId second = fixture.Start(1);
      if (fixture.launcher().Claim("none").ok()) FAIL();
      const LaunchedWorker worker = fixture.AwaitStart(second);
      CHECK(fixture.AwaitOutput(worker, "parent") == std::to_string(getpid()));
      fixture.launcher().Kill(first, "over");
      CHECK(fixture.AwaitExit(first).cause() == proto::Death::KILLED);
    }
  }
}

SCENARIO("a worker that its template has not forked when the job ends is reported as ended") {
  LauncherFixture fixture(/*templates=*/true);
  fixture.AddJob(1, "wait");
  const pid_t template_pid =
      std::stoi(fixture.AwaitOutput(fixture.AwaitStart(fixture.Start(1)), "parent"));
  REQUIRE(kill(template_pid, SIGSTOP) == 0);
  const ProcessId asked_for = fixture.Start(1);
  const bool killed = GENERATE(false, true);
  if (killed) fixture.launcher().Kill(asked_for, "its driver left");
  WHEN("the job ends") {
    fixture.launcher().RemoveJob(1);
    const proto::Death death = fixture.AwaitExit(asked_for);
    CHECK(death.cause() == (killed ? proto::Death::KILLED : proto::Death::START_FAILED));
    CHECK(death.message() == (killed ? "its driver left" : "its job ended"));
    fixture.End();
    CHECK(fixture.AwaitNoneMarked());
  }
  WHEN("the launcher ends") {
    fixture.End();
    fixture.AwaitExit(asked_for);
  }
}

SCENARIO("a worker whose template dies just after the fork runs on") {
  LauncherFixture fixture(/*templates=*/true);
  fixture.AddJob(1, "wait");
  const pid_t template_pid =
      std::stoi(fixture.AwaitOutput(fixture.AwaitStart(fixture.Start(1)), "parent"));
  REQUIRE(kill(template_pid, SIGSTOP) == 0);
  const ProcessId forked = fixture.Start(1);
  fixture.launcher().Workers();                        // The template has been asked.
  const ProcessId next = fixture.StartSlowly(1, [&] {  // The template's report lies unread.
    REQUIRE(kill(template_pid, SIGCONT) == 0);
    fixture.AwaitOutput(forked, "parent");
    // It has sent its report, and waits for the next request.
    REQUIRE(WaitUntil(10 * kSecond, [&] { return ReadProcStat(template_pid)->state == 'S'; }));
    REQUIRE(kill(template_pid, SIGKILL) == 0);
    REQUIRE(WaitUntil(10 * kSecond, [&] { return StartTicks(template_pid) == 0; }));
  });
  CHECK(fixture.AwaitOutput(fixture.AwaitStart(next), "parent") == std::to_string(getpid()));
  CHECK(fixture.AwaitStart(forked).process == forked);
  fixture.launcher().Kill(forked, "over");
  CHECK(fixture.AwaitExit(forked).cause() == proto::Death::KILLED);
}

}  // namespace sheaf
