// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// For tests of the launcher, whose workers are the test program itself (process_launcher_test.cc).
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/testing/scratch_directory_for_test.h"
#include "base/testing/wait_until_for_test.h"
#include "raylet/host/proc_files.h"
#include "raylet/host/process_launcher.h"

namespace sheaf {

using ProgramFound = std::function<void(absl::StatusOr<UniqueFd>)>;

inline UniqueFd OwnProgram() { return UniqueFd(open("/proc/self/exe", O_RDONLY | O_CLOEXEC)); }

// A launcher with a log directory, and all that it reports.
class LauncherFixture {
 public:
  explicit LauncherFixture(bool templates, Nanos template_timeout = 10 * kSecond) {
    LauncherOptions options;
    options.socket_path = "/nowhere/raylet.sock";
    options.log_directory = directory_.path();
    options.spill_directory = directory_.path();
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
    events.kernel_oom_kills = [this] {  // Each start asks.
      ++held_up_;
      const std::lock_guard lock(starts_);
      --held_up_;
      return uint64_t{0};
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
  ~LauncherFixture() { launcher_.reset(); }

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
  // Starts a worker while the launcher does nothing else until `meanwhile` has returned.
  ProcessId StartSlowly(JobNumber job, const std::function<void()>& meanwhile) {
    const std::lock_guard lock(starts_);
    const ProcessId process = Start(job);
    REQUIRE(WaitUntil(10 * kSecond, [&] { return held_up_ != 0; }));
    meanwhile();
    return process;
  }
  proto::Death AwaitExit(ProcessId process) {
    std::unique_lock lock(mutex_);
    REQUIRE(changed_.wait_for(lock, std::chrono::seconds(10),
                              [&] { return exited_.contains(process); }));
    return exited_[process];
  }
  // What `worker` printed behind `word`, once it has.
  std::string AwaitOutput(const LaunchedWorker& worker, const std::string& word) {
    return AwaitLine(worker.stdout_path, word);
  }
  std::string AwaitOutput(ProcessId worker, const std::string& word) {  // It is not known to run.
    return AwaitLine(absl::StrCat(directory_.path(), "/worker-1.", worker.process, ".out"), word);
  }
  std::string AwaitLine(const std::string& path, const std::string& word) {
    const Nanos deadline = MonotonicNow() + 10 * kSecond;
    while (MonotonicNow() < deadline) {
      for (const std::string& line :
           static_cast<std::vector<std::string>>(absl::StrSplit(ReadKernelFile(path), '\n'))) {
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
    const Nanos deadline = MonotonicNow() + 2 * kSecond;
    while (MonotonicNow() < deadline) {
      if (CountMarked() == 0) return true;
      usleep(1000);
    }
    return false;
  }

 private:
  ScratchDirectory directory_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<ProcessId, LaunchedWorker> started_;
  std::map<ProcessId, proto::Death> exited_;
  std::deque<ProgramFound> fetches_;
  std::mutex starts_;
  std::atomic<int> held_up_{0};
  uint32_t last_ = 1;
  std::unique_ptr<ProcessLauncher> launcher_;
};

}  // namespace sheaf
