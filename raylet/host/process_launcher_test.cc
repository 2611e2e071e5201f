// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "raylet/host/process_launcher.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <catch2/catch.hpp>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <map>
#include <thread>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "base/environment.h"
#include "base/testing/scratch_directory_for_test.h"
#include "base/testing/wait_until_for_test.h"
#include "raylet/host/proc_files.h"

namespace sheaf {
namespace {

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

using ProgramFound = std::function<void(absl::StatusOr<UniqueFd>)>;

UniqueFd OwnProgram() { return UniqueFd(open("/proc/self/exe", O_RDONLY | O_CLOEXEC)); }

// A launcher with a log directory, and all that it reports.
class Fixture {
 public:
  explicit Fixture(bool templates, Nanos template_timeout = 10 * kSecond) {
    LauncherOptions options;
    options.socket_path = "/nowhere/raylet.sock";
    options.log_directory = directory_.path();
    options.session = directory_.path();
    options.use_templates = templates;
    options.template_timeout = template_timeout;
    LauncherEvents events;
    events.on_started = [this](const LaunchedWorker& worker) {
      const std::lock_guard lock(mutex_);
      started_[worker.process] = worker;
      changed_.notify_all();
    };
    events.on_exited = [this](ProcessId process, const proto::Death& death) {
      const std::lock_guard lock(mutex_);
      exited_[process] = death;
      changed_.notify_all();
    };
    LauncherPrograms programs;
    programs.of_driver = [](ProcessId) { return OwnProgram(); };
    programs.fetch = [this](ProcessId, std::string, ProgramFound done) {
      const std::lock_guard lock(mutex_);
      fetches_.push_back(std::move(done));
      changed_.notify_all();
    };
    launcher_ = *ProcessLauncher::Make(options, events, std::move(programs));
  }
  ~Fixture() { launcher_.reset(); }

  void AddJob(JobNumber job, const std::string& script) {
    proto::JobStart start;
    start.add_argv("raylet_test");
    start.add_environ("TEST_WORKER=" + script);
    start.add_environ("SHEAF_WORKER=of the driver, not to be passed on");
    launcher_->AddJob(job, {1, 1}, start);
  }
  // Of a driver on another node, whose program has to be fetched.
  void AddRemoteJob(JobNumber job, const std::string& script,
                    proto::JobStart::Language language = proto::JobStart::CPP) {
    proto::JobStart start;
    start.add_argv("raylet_test");
    start.add_environ("TEST_WORKER=" + script);
    start.set_language(language);
    proto::Program program;
    program.set_path("/nowhere/program");
    launcher_->AddRemoteJob(job, {2, 1}, start, program);
  }
  // The next program that is asked for.
  ProgramFound AwaitFetch() {
    std::unique_lock lock(mutex_);
    REQUIRE(changed_.wait_for(lock, std::chrono::seconds(10), [&] { return !fetches_.empty(); }));
    ProgramFound found = std::move(fetches_.front());
    fetches_.pop_front();
    return found;
  }
  size_t fetches() {
    const std::lock_guard lock(mutex_);
    return fetches_.size();
  }
  WorkerSpec Spec(JobNumber job) { return {{1, ++last_}, job, "", {}}; }
  ProcessId Start(JobNumber job) {
    const WorkerSpec spec = Spec(job);
    REQUIRE(launcher_->Start(spec).ok());
    return spec.process;
  }
  LaunchedWorker AwaitStart(ProcessId process) {
    std::unique_lock lock(mutex_);
    REQUIRE(changed_.wait_for(lock, std::chrono::seconds(10),
                              [&] { return started_.contains(process); }));
    return started_[process];
  }
  proto::Death AwaitExit(ProcessId process) {
    std::unique_lock lock(mutex_);
    REQUIRE(changed_.wait_for(lock, std::chrono::seconds(10),
                              [&] { return exited_.contains(process); }));
    return exited_[process];
  }
  // What `worker` printed behind `word`, once it has.
  std::string AwaitOutput(const LaunchedWorker& worker, const std::string& word) {
    const Nanos deadline = MonotonicNow() + 10 * kSecond;
    while (MonotonicNow() < deadline) {
      for (const std::string& line : static_cast<std::vector<std::string>>(
               absl::StrSplit(ReadKernelFile(worker.stdout_path), '\n'))) {
        if (line.starts_with(word + " ")) return line.substr(word.size() + 1);
      }
      std::this_thread::yield();
    }
    FAIL("no output");
    return "";
  }
  ProcessLauncher& launcher() { return *launcher_; }
  void End() { launcher_.reset(); }
  const std::string& directory() const { return directory_.path(); }
  // Processes of this launcher's jobs that live, wherever they are.
  int CountMarked() {
    int count = 0;
    for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
      pid_t pid = 0;
      if (!absl::SimpleAtoi(entry.path().filename().string(), &pid)) continue;
      const std::optional<std::string> mark = ReadProcVariable(pid, "SHEAF_JOB");
      count += mark && mark->starts_with(directory_.path()) && StartTicks(pid) != 0;
    }
    return count;
  }
  bool AwaitNoneMarked() {
    return WaitUntil(2 * kSecond, [this] { return CountMarked() == 0; });
  }

 private:
  ScratchDirectory directory_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<ProcessId, LaunchedWorker> started_;
  std::map<ProcessId, proto::Death> exited_;
  std::deque<ProgramFound> fetches_;
  uint32_t last_ = 1;
  std::unique_ptr<ProcessLauncher> launcher_;
};

}  // namespace

SCENARIO(
    "a worker runs the driver's executable and learns who it is, exec'd or forked from a "
    "template") {
  const bool templates = GENERATE(false, true);
  CAPTURE(templates);
  Fixture fixture(templates);
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
  Fixture fixture(templates);
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
  Fixture fixture(/*templates=*/true);
  fixture.AddRemoteJob(1, "wait", proto::JobStart::PYTHON);
  const proto::Death death = fixture.AwaitExit(fixture.Start(1));
  CHECK(death.cause() == proto::Death::START_FAILED);
  CHECK(death.message().find("/nowhere/program") != std::string::npos);
  CHECK(fixture.fetches() == 0);
}

SCENARIO("variables of an environment are there before main, instead of the driver's") {
  Fixture fixture(true);
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
  Fixture fixture(templates);
  fixture.AddJob(1, "exit 3");
  const proto::Death death = fixture.AwaitExit(fixture.Start(1));
  CHECK(death.cause() == proto::Death::START_FAILED);
  CHECK(death.code() == 3);
  REQUIRE(death.last_lines_size() == 1);
  CHECK(death.last_lines(0) == "something went wrong");
  CHECK(fixture.launcher().Start(fixture.Spec(2)).code() == absl::StatusCode::kNotFound);
}

SCENARIO("a template that cannot serve is replaced by plain exec") {
  WHEN("main has started a thread") {
    Fixture fixture(true);
    fixture.AddJob(1, "thread");
    const LaunchedWorker worker = fixture.AwaitStart(fixture.Start(1));
    CHECK(fixture.AwaitOutput(worker, "parent") == std::to_string(getpid()));
  }
  WHEN("main ends before Init") {
    Fixture fixture(true);
    fixture.AddJob(1, "die in main");
    const proto::Death death = fixture.AwaitExit(fixture.Start(1));
    CHECK(death.cause() == proto::Death::START_FAILED);
    CHECK(death.code() == 9);
  }
  WHEN("main does not reach Init") {
    Fixture fixture(true, 50 * kMillisecond);
    fixture.AddJob(1, "hang in main");
    const ProcessId process = fixture.Start(1);
    fixture.AwaitStart(process);
    fixture.launcher().Kill(process, "too slow");
    CHECK(fixture.AwaitExit(process).cause() == proto::Death::KILLED);
  }
  WHEN("the template is killed between two workers") {
    Fixture fixture(true);
    fixture.AddJob(1, "wait");
    const ProcessId first = fixture.Start(1);
    const pid_t template_pid = std::stoi(fixture.AwaitOutput(fixture.AwaitStart(first), "parent"));
    kill(template_pid, SIGKILL);
    THEN("the first lives on, its death is still known, and others are exec'd") {
      REQUIRE(WaitUntil(30 * kSecond, [&] { return StartTicks(template_pid) == 0; }));
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
  Fixture fixture(/*templates=*/true);
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

SCENARIO("nothing of a job outlives it, also what fled its process group") {
  const bool templates = GENERATE(false, true);
  CAPTURE(templates);
  Fixture fixture(templates);
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

SCENARIO("of a job that lives on in one worker, what the others left behind is killed") {
  const bool templates = GENERATE(false, true);
  CAPTURE(templates);
  Fixture fixture(templates);
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
  Fixture fixture(templates);
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
    Fixture fixture(templates);
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

}  // namespace sheaf
