// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "raylet/entrypoints/entrypoint_guard.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <future>
#include <memory>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/config.h"
#include "base/status_macros.h"
#include "base/unix_socket.h"
#include "raylet/host/event_loop.h"
#include "raylet/host/proc_files.h"
#include "raylet/host/process_watch.h"
#include "raylet/host/spawn.h"
#include "raylet/host/stray_hunter.h"

namespace sheaf {
namespace {

constexpr Nanos kLookPeriod = 20 * kMillisecond;
constexpr Nanos kReapPeriod = kSecond;
// What the kernel does not let die, in a system call that hangs, is left to it.
constexpr Nanos kKillTime = 10 * kSecond;
constexpr int kNotStarted = 127 << 8;  // As a shell says it.

class Guard {
 public:
  Guard(const EntrypointGuardFlags& flags, std::unique_ptr<EventLoop> loop)
      : flags_(flags),
        socket_(UniqueFd(flags.fd)),
        loop_(std::move(loop)),
        watch_(std::make_unique<ProcessWatch>(*loop_)) {}
  ~Guard() {
    loop_->Run([this] { watch_.reset(); });
    loop_->Stop();
  }

  void Run() {
    loop_->Run([this] {
      fcntl(socket_.fd(), F_SETFD, FD_CLOEXEC);
      const absl::Status watched =
          loop_->Watch(socket_.fd(), EPOLLIN, [this](uint32_t) { OnMessage(); });
      if (!watched.ok()) return Finish();
      loop_->After(kReapPeriod, [this] { Reap(); });
      Begin();
    });
    over_.get_future().get();
  }

 private:
  // What it writes goes where this process's own output goes.
  absl::Status Start(const char* program, std::vector<std::string> argv) {
    const UniqueFd executable(open(program, O_RDONLY | O_CLOEXEC));
    SpawnRequest request;
    request.executable_fd = executable.get();
    request.argv = std::move(argv);
    request.environ = OwnEnvironment();
    request.stdout_fd = STDOUT_FILENO;
    request.stderr_fd = STDERR_FILENO;
    SHEAF_ASSIGN_OR_RETURN(Spawned spawned, Spawn(request));
    main_ = spawned.pid;
    watch_->Watch(main_, std::move(spawned.pidfd), [this] {
      int status = 0;
      const pid_t pid = main_;
      waitpid(pid, &status, 0);
      const bool ran = running_ || flags_.python.empty() || access(flags_.mark.c_str(), F_OK) == 0;
      if (ran && !running_) BeginsToRun();  // It was quick.
      main_ = 0;
      End(status);
    });
    return absl::OkStatus();
  }

  void Begin() {
    std::vector<std::string> argv = {"sh", "-c", flags_.command};
    const char* program = "/bin/sh";
    if (!flags_.python.empty()) {
      program = "/usr/bin/env";
      argv = {"env",       flags_.python, "-m", "sheaf._worker.runtime_env_exec",
              flags_.mark, flags_.command};
    }
    const absl::Status started = Start(program, std::move(argv));
    if (!started.ok()) {
      std::fprintf(stderr, "sheaf: %s\n", started.ToString().c_str());
      return End(kNotStarted);
    }
    LookForMark();
  }

  // What prepares becomes the command, in the same process.
  void LookForMark() {
    if (running_ || main_ == 0) return;
    if (!flags_.python.empty() && access(flags_.mark.c_str(), F_OK) != 0) {
      loop_->After(kLookPeriod, [this] { LookForMark(); });
      return;
    }
    BeginsToRun();
  }
  void BeginsToRun() {
    running_ = true;
    if (!flags_.python.empty()) unlink(flags_.mark.c_str());
    Say(absl::StrCat("running ", main_));
  }

  void OnMessage() {
    const absl::StatusOr<SocketMessage> message = socket_.Receive(0);
    if (absl::IsDeadlineExceeded(message.status())) return;
    if (message.ok() && message->bytes == "stop") return Stop();
    if (message.ok()) return;
    loop_->Unwatch(socket_.fd());  // The node is gone.
    node_is_gone_ = true;
    KillAll();
  }

  void Stop() {
    if (stopping_) return;
    stopping_ = true;
    for (const pid_t pid : DescendantsOf(getpid())) kill(pid, flags_.stop_signal);
    kill_at_ = Deadline(MonotonicNow(), flags_.stop_wait);
    LookForRest();
  }

  void KillAll() {
    stopping_ = true;
    kill_at_ = MonotonicNow();
    LookForRest();
  }

  // The command has ended, or could not begin. What it left has its time to end only if it was
  // told to.
  void End(int status) {
    const bool prepares = !flags_.python.empty() && !running_ && !stopping_;
    last_words_ = absl::StrCat(prepares ? "setup " : "ended ", status);
    if (!stopping_) KillAll();
  }

  // Until nobody is left.
  void LookForRest() {
    if (looking_) return;
    looking_ = true;
    Look();
  }
  void Look() {
    ReapNow();
    const std::vector<pid_t> rest = DescendantsOf(getpid());
    const Nanos now = MonotonicNow();
    if (rest.empty() && main_ == 0) return Finish();
    if (now >= kill_at_) {
      for (const pid_t pid : rest) kill(pid, SIGKILL);
      if (now >= Deadline(kill_at_, kKillTime)) return Finish();
    }
    loop_->After(kLookPeriod, [this] { Look(); });
  }

  // Others than the command that have ended, and whose parents have.
  void Reap() {
    ReapNow();
    loop_->After(kReapPeriod, [this] { Reap(); });
  }
  void ReapNow() {
    for (const pid_t pid : ChildrenOfThisProcess()) {
      if (pid != main_) waitpid(pid, nullptr, WNOHANG);
    }
  }

  void Finish() {
    if (std::exchange(finished_, true)) return;
    if (!last_words_.empty()) Say(last_words_);
    over_.set_value();
  }
  void Say(const std::string& words) {
    if (!node_is_gone_) socket_.Send(words, {}, kSecond).IgnoreError();
  }

  const EntrypointGuardFlags& flags_;
  const UnixSocket socket_;
  std::unique_ptr<EventLoop> loop_;
  std::unique_ptr<ProcessWatch> watch_;
  pid_t main_ = 0;  // The command, or what prepares and becomes it; 0: it has ended.
  bool running_ = false;
  bool stopping_ = false;
  bool looking_ = false;
  bool node_is_gone_ = false;
  bool finished_ = false;
  Nanos kill_at_ = 0;
  std::string last_words_;
  std::promise<void> over_;
};

}  // namespace

std::vector<std::string> EntrypointGuardFlags::Arguments() const {
  return {"sheaf",
          "entrypoint-guard",
          absl::StrCat("fd=", fd),
          absl::StrCat("signal=", stop_signal),
          absl::StrCat("wait=", stop_wait),
          absl::StrCat("python=", python),
          absl::StrCat("mark=", mark),
          absl::StrCat("command=", command)};
}

int RunEntrypointGuard(const std::vector<std::string>& words) {
  EntrypointGuardFlags flags;
  for (const std::string& word : words) {
    const size_t sign = word.find('=');
    if (sign == std::string::npos) return 1;
    const std::string name = word.substr(0, sign);
    const std::string value = word.substr(sign + 1);
    if (name == "python") flags.python = value;
    if (name == "mark") flags.mark = value;
    if (name == "command") flags.command = value;
    bool is_number = true;
    if (name == "fd") is_number = absl::SimpleAtoi(value, &flags.fd);
    if (name == "signal") is_number = absl::SimpleAtoi(value, &flags.stop_signal);
    if (name == "wait") is_number = absl::SimpleAtoi(value, &flags.stop_wait);
    if (!is_number) return 1;
  }
  if (flags.fd < 0 || flags.command.empty()) return 1;
  signal(SIGTERM, SIG_IGN);  // Its node says when it is time; with the node's group it may be told.
  signal(SIGINT, SIG_IGN);
  signal(SIGHUP, SIG_IGN);
  BecomeSubreaper();
  absl::StatusOr<std::unique_ptr<EventLoop>> loop = EventLoop::Start("guard");
  if (!loop.ok()) return 1;
  Guard(flags, *std::move(loop)).Run();
  return 0;
}

}  // namespace sheaf
