// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "raylet/host/process_launcher.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <catch2/catch.hpp>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "base/environment.h"
#include "raylet/host/proc_files.h"
#include "raylet/host/process_launcher_for_test.h"

namespace sheaf {
namespace process_launcher_test {

// This test program is its own driver and worker: started by a launcher, it ends up here, before
// main. What it does is told by TEST_WORKER.
void RunAsWorker() {
  const char* const script = std::getenv("TEST_WORKER");
  if (script == nullptr ||
      (std::getenv("SHEAF_WORKER") == nullptr && std::getenv("SHEAF_WORKER_TEMPLATE") == nullptr)) {
    return;
  }
  const std::string text = script;
  if (text == "thread") {
    static std::thread other([] { pause(); });
  }
  if (text == "die in main") _exit(9);
  if (text == "hang in main") pause();
  const std::optional<WorkerStart> start = EnterAsWorker(fork);
  if (!start) _exit(99);
  std::printf("token %s\nsocket %s\nmarked %d\n", start->token.c_str(), start->socket_path.c_str(),
              std::getenv("SHEAF_WORKER") != nullptr);
  const char* const gpus = std::getenv("CUDA_VISIBLE_DEVICES");
  std::printf("gpus %s\nparent %d\n", gpus != nullptr ? gpus : "none", getppid());
  std::fflush(stdout);
  if (text == "exit 3") {
    std::fprintf(stderr, "something went wrong\n");
    std::fflush(stderr);
    _exit(3);
  }
  if (text == "strays") {
    // A child in the group, and one that fled it and has a child itself.
    if (fork() == 0) pause();
    if (fork() == 0) {
      setsid();
      if (fork() == 0) setsid();
      while (true) pause();
    }
  }
  while (true) pause();
}
[[maybe_unused]] const int as_worker = (RunAsWorker(), 0);

SCENARIO(
    "a worker runs the driver's executable and learns who it is, exec'd or forked from a "
    "template") {
  const bool templates = GENERATE(false, true);
  CAPTURE(templates);
  LauncherFixture fixture(templates);
  fixture.AddJob(1, "wait");
  WorkerSpec spec = fixture.Spec(1);
  spec.gpu_ids = {0, 3};
  REQUIRE(fixture.launcher().Start(spec).ok());
  const LaunchedWorker worker = fixture.AwaitStart(spec.process);
  CHECK(worker.driver == ProcessId{1, 1});
  CHECK(fixture.AwaitOutput(worker, "socket") == "/nowhere/raylet.sock");
  CHECK(fixture.AwaitOutput(worker, "marked") == "0");
  CHECK(fixture.AwaitOutput(worker, "gpus") == "0,3");
  CHECK((fixture.AwaitOutput(worker, "parent") == std::to_string(getpid())) == !templates);
  CHECK(ReadProcStat(worker.os_pid)->group == worker.os_pid);
  THEN("its token is good once, for it alone") {
    const std::string token = fixture.AwaitOutput(worker, "token");
    CHECK(token.size() == 32);
    CHECK_FALSE(fixture.launcher().Claim("0123").ok());
    CHECK(fixture.launcher().Claim(token)->process == spec.process);
    CHECK_FALSE(fixture.launcher().Claim(token).ok());
  }
  THEN("killed, it is gone, and the reason is reported") {
    fixture.launcher().Kill(spec.process, "no longer wanted");
    const proto::Death death = fixture.AwaitExit(spec.process);
    CHECK(death.cause() == proto::Death::KILLED);
    CHECK(death.message() == "no longer wanted");
    CHECK(fixture.launcher().Workers().empty());
  }
  THEN("crashed, its signal is reported at once") {
    CHECK(fixture.launcher().Claim(fixture.AwaitOutput(worker, "token")).ok());
    kill(worker.os_pid, SIGABRT);  // Sanitizers keep SIGSEGV for themselves.
    const Nanos begin = MonotonicNow();
    const proto::Death death = fixture.AwaitExit(spec.process);
    CHECK(MonotonicNow() - begin < kSecond);
    CHECK(death.cause() == proto::Death::SIGNALLED);
    CHECK(death.code() == SIGABRT);
  }
}

SCENARIO("workers of a driver on another node wait for its program") {
  const bool templates = GENERATE(false, true);
  CAPTURE(templates);
  LauncherFixture fixture(templates);
  fixture.AddRemoteJob(1, "wait");
  const ProcessId first = fixture.Start(1), second = fixture.Start(1);
  ProgramFound found = fixture.AwaitFetch();
  THEN("they start when it is there, and so do later ones without another fetch") {
    found(OwnProgram());
    const ProcessId third = fixture.Start(1);
    for (const ProcessId process : {first, second, third})
      CHECK(fixture.AwaitStart(process).driver == ProcessId{2, 1});
    CHECK(fixture.fetches() == 0);
  }
  THEN("they fail in its words when it does not come, and the next start asks again") {
    found(absl::NotFoundError("it is nowhere"));
    for (const ProcessId process : {first, second}) {
      const proto::Death death = fixture.AwaitExit(process);
      CHECK(death.cause() == proto::Death::START_FAILED);
      CHECK(death.message() == "it is nowhere");
    }
    const ProcessId third = fixture.Start(1);
    fixture.AwaitFetch()(OwnProgram());
    fixture.AwaitStart(third);
  }
  THEN("one that is killed meanwhile is not started") {
    fixture.launcher().Kill(first, "no longer wanted");
    CHECK(fixture.AwaitExit(first).cause() == proto::Death::KILLED);
    found(OwnProgram());
    fixture.AwaitStart(second);
    CHECK(fixture.launcher().Workers().size() == 1);
  }
  THEN("they end with their job") {
    fixture.launcher().RemoveJob(1);
    for (const ProcessId process : {first, second})
      CHECK(fixture.AwaitExit(process).cause() == proto::Death::KILLED);
    found(OwnProgram());
    CHECK(fixture.launcher().Workers().empty());
  }
}

SCENARIO("an interpreter is not fetched: without it the worker fails at once") {
  LauncherFixture fixture(/*templates=*/true);
  fixture.AddRemoteJob(1, "wait", proto::JobStart::PYTHON);
  const proto::Death death = fixture.AwaitExit(fixture.Start(1));
  CHECK(death.cause() == proto::Death::START_FAILED);
  CHECK(death.message().find("/nowhere/program") != std::string::npos);
  CHECK(fixture.fetches() == 0);
}

SCENARIO("variables of an environment are there before main, instead of the driver's") {
  LauncherFixture fixture(true);
  fixture.AddJob(1, "die in main");
  WorkerSpec spec = fixture.Spec(1);
  spec.environment = *EncodeEnvironment({{{"TEST_WORKER", "exit 3"}}, {}});
  REQUIRE(fixture.launcher().Start(spec).ok());
  CHECK(fixture.AwaitExit(spec.process).code() == 3);
  spec = fixture.Spec(1);
  spec.environment = "nonsense";
  REQUIRE(fixture.launcher().Start(spec).ok());
  CHECK(fixture.AwaitExit(spec.process).cause() == proto::Death::START_FAILED);
}

SCENARIO("a worker that ends before it attaches is a failed start, with its last words") {
  const bool templates = GENERATE(false, true);
  LauncherFixture fixture(templates);
  fixture.AddJob(1, "exit 3");
  const proto::Death death = fixture.AwaitExit(fixture.Start(1));
  CHECK(death.cause() == proto::Death::START_FAILED);
  CHECK(death.code() == 3);
  REQUIRE(death.last_lines_size() == 1);
  CHECK(death.last_lines(0) == "something went wrong");
  CHECK(fixture.launcher().Start(fixture.Spec(2)).code() == absl::StatusCode::kNotFound);
}

SCENARIO("nothing of a job outlives it, also what fled its process group") {
  const bool templates = GENERATE(false, true);
  CAPTURE(templates);
  LauncherFixture fixture(templates);
  fixture.AddJob(1, "strays");
  fixture.AddJob(2, "wait");
  const ProcessId worker = fixture.Start(1);
  const ProcessId other = fixture.Start(2);
  fixture.AwaitOutput(fixture.AwaitStart(worker), "token");
  fixture.AwaitOutput(fixture.AwaitStart(other), "token");
  const int of_other_job = templates ? 2 : 1;
  REQUIRE(WaitUntil(30 * kSecond,
                    [&] { return fixture.CountMarked() >= of_other_job + (templates ? 5 : 4); }));
  WHEN("the worker is killed and then its job ends") {
    fixture.launcher().Kill(worker, "its job ended");
    fixture.launcher().RemoveJob(1);
    fixture.AwaitExit(worker);
    THEN("soon the other job's processes are left, untouched") {
      CHECK(WaitUntil(2 * kSecond, [&] { return fixture.CountMarked() == of_other_job; }));
    }
  }
  WHEN("the launcher ends") {
    fixture.End();
    THEN("nothing is left") { CHECK(fixture.AwaitNoneMarked()); }
  }
}

SCENARIO("what workers left in the directory of their job goes with it") {
  LauncherFixture fixture(/*templates=*/false);
  fixture.AddJob(1, "wait");
  fixture.AddJob(2, "wait");
  for (const char* job : {"/job-1", "/job-2"}) {
    std::filesystem::create_directories(fixture.directory() + job + "/deep");
    std::ofstream(fixture.directory() + job + "/deep/file") << "of a worker";
  }
  fixture.launcher().RemoveJob(1);
  CHECK(WaitUntil(10 * kSecond,
                  [&] { return !std::filesystem::exists(fixture.directory() + "/job-1"); }));
  CHECK(std::filesystem::exists(fixture.directory() + "/job-2/deep/file"));
}

SCENARIO("of a job that lives on in one worker, what the others left behind is killed") {
  const bool templates = GENERATE(false, true);
  CAPTURE(templates);
  LauncherFixture fixture(templates);
  fixture.AddJob(1, "strays");
  const ProcessId stays = fixture.Start(1);
  const ProcessId ends = fixture.Start(1);
  fixture.AwaitOutput(fixture.AwaitStart(stays), "token");
  fixture.AwaitOutput(fixture.AwaitStart(ends), "token");
  const int own = templates ? 1 : 0;
  REQUIRE(WaitUntil(30 * kSecond, [&] { return fixture.CountMarked() >= 2 * 4 + own; }));
  fixture.launcher().Kill(ends, "its job ended");
  fixture.launcher().EndStrays(1);
  fixture.AwaitExit(ends);
  CHECK(WaitUntil(2 * kSecond, [&] { return fixture.CountMarked() == 4 + own; }));
}

SCENARIO("a worker that takes too much memory ends with its children, wherever they are") {
  const bool templates = GENERATE(false, true);
  CAPTURE(templates);
  LauncherFixture fixture(templates);
  fixture.AddJob(1, "strays");
  const ProcessId worker = fixture.Start(1);
  const LaunchedWorker started = fixture.AwaitStart(worker);
  fixture.AwaitOutput(started, "token");
  const int own = templates ? 1 : 0;
  REQUIRE(WaitUntil(30 * kSecond, [&] { return fixture.CountMarked() >= 4 + own; }));
  CHECK(DescendantsOf(started.os_pid).size() == 3);
  proto::Death death;
  death.set_cause(proto::Death::OUT_OF_MEMORY);
  death.set_message("out of memory: evidence");
  fixture.launcher().KillWith(worker, death);
  CHECK(fixture.AwaitExit(worker).message() == "out of memory: evidence");
  CHECK(WaitUntil(30 * kSecond, [&] { return fixture.CountMarked() == own; }));
}

TEST_CASE("how fast workers start", "[.measure]") {
  for (const bool templates : {false, true}) {
    LauncherFixture fixture(templates);
    fixture.AddJob(1, "wait");
    const Nanos begin = MonotonicNow();
    const LaunchedWorker first = fixture.AwaitStart(fixture.Start(1));
    fixture.AwaitOutput(first, "parent");
    const Nanos after_first = MonotonicNow();
    constexpr int kCount = 200;
    std::vector<ProcessId> processes;
    for (int i = 0; i < kCount; ++i) processes.push_back(fixture.Start(1));
    for (ProcessId process : processes) fixture.AwaitOutput(fixture.AwaitStart(process), "parent");
    const Nanos after_all = MonotonicNow();
    WARN((templates ? "template" : "exec")
         << ": first worker in Init after " << (after_first - begin) / 1e6 << " ms, then "
         << kCount * 1e9 / (after_all - after_first) << "/s");
  }
}

}  // namespace process_launcher_test
}  // namespace sheaf
