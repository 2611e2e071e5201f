// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "base/worker_template.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/frame.h"
#include "base/unix_socket.h"

namespace sheaf {
namespace {

constexpr Nanos kReportTimeout = 5 * kSecond;

bool HasOpenGpu() {
  DIR* directory = opendir("/proc/self/fd");
  if (directory == nullptr) return false;
  bool found = false;
  while (const dirent* entry = readdir(directory)) {
    char target[64] = {};
    if (readlinkat(dirfd(directory), entry->d_name, target, sizeof(target) - 1) > 0 &&
        absl::StartsWith(target, "/dev/nvidia")) {
      found = true;
    }
  }
  closedir(directory);
  return found;
}

int CountThreads() {
  DIR* directory = opendir("/proc/self/task");
  if (directory == nullptr) return 1;
  int count = 0;
  while (const dirent* entry = readdir(directory)) count += entry->d_name[0] != '.';
  closedir(directory);
  return count;
}

// The template while it serves. What it changes of the process's signals is undone in the workers.
class Server {
 public:
  Server(UnixSocket commands, const ForkFunction& fork_function)
      : commands_(std::move(commands)), fork_function_(fork_function) {
    struct sigaction by_default{};
    by_default.sa_handler = SIG_DFL;
    sigaction(SIGCHLD, &by_default, &old_action_);
    sigset_t children;
    sigemptyset(&children);
    sigaddset(&children, SIGCHLD);
    sigprocmask(SIG_BLOCK, &children, &old_mask_);
    child_events_ = UniqueFd(signalfd(-1, &children, SFD_CLOEXEC | SFD_NONBLOCK));
  }

  // The token of the worker in which it returns.
  std::string Serve() {
    if (absl::Status forkable = CheckForkable(); !forkable.ok())
      Retire(std::string(forkable.message()));
    Report(TemplateReport::kReady, 0, 0, 0);
    while (true) {
      pollfd waiting[2] = {{commands_.fd(), POLLIN, 0}, {child_events_.get(), POLLIN, 0}};
      if (poll(waiting, 2, -1) < 0 && errno != EINTR) _exit(1);
      if (waiting[1].revents != 0) Reap();
      if (waiting[0].revents == 0) continue;
      absl::StatusOr<SocketMessage> message = commands_.Receive(0);
      if (absl::IsUnavailable(message.status())) _exit(0);
      if (!message.ok()) continue;
      if (std::optional<std::string> token = Fork(*message)) return *std::move(token);
    }
  }

 private:
  void Report(TemplateReport::Kind kind, uint64_t process, pid_t pid, int value,
              std::string_view text = {}, int fd = -1) {
    TemplateReport report{};
    report.magic = kTemplateMagic;
    report.kind = kind;
    report.process = process;
    report.pid = pid;
    report.value = value;
    text.copy(report.text.data(), report.text.size() - 1);
    const int fds[] = {fd};
    const absl::Status sent =
        commands_.Send(AsBytes(report), absl::MakeConstSpan(fds, fd >= 0 ? 1 : 0), kReportTimeout);
    if (!sent.ok()) _exit(0);  // The raylet is gone or hangs; either way nobody uses this template.
  }

  [[noreturn]] void Retire(const std::string& why) {
    Report(TemplateReport::kRetired, 0, 0, 0, why);
    _exit(0);
  }

  void Reap() {
    signalfd_siginfo ignored[8];
    while (read(child_events_.get(), ignored, sizeof(ignored)) > 0) {
    }
    while (true) {
      siginfo_t info{};
      if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0) return;
      // Before its number can be used again: what it left in its process group goes with it.
      kill(-info.si_pid, SIGKILL);
      int status = 0;
      if (waitpid(info.si_pid, &status, 0) != info.si_pid) return;
      const auto found = children_.find(info.si_pid);
      if (found == children_.end()) continue;
      Report(TemplateReport::kExited, found->second, info.si_pid, status);
      children_.erase(found);
    }
  }

  // In the worker: its token. In the template: nullopt.
  std::optional<std::string> Fork(const SocketMessage& message) {
    const ForkRequest* request = FrameHead<ForkRequest>(message.bytes);
    if (request == nullptr || request->magic != kTemplateMagic || message.fds.size() != 2 ||
        message.bytes.size() != sizeof(ForkRequest) + request->variable_bytes) {
      return std::nullopt;
    }
    const pid_t pid = fork_function_();
    if (pid == 0) {
      BecomeWorker(message);
      return std::string(request->token.data(),
                         strnlen(request->token.data(), request->token.size()));
    }
    if (pid < 0) {
      Report(TemplateReport::kForkFailed, request->process, 0, errno);
      return std::nullopt;
    }
    setpgid(pid, pid);  // Both do it: neither can come too late.
    children_[pid] = request->process;
    const UniqueFd pidfd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
    Report(TemplateReport::kForked, request->process, pid, 0, {}, pidfd.get());
    return std::nullopt;
  }

  void BecomeWorker(const SocketMessage& message) {
    setpgid(0, 0);
    dup2(message.fds[0].get(), STDOUT_FILENO);
    dup2(message.fds[1].get(), STDERR_FILENO);
    commands_.Close();
    child_events_.Reset();
    sigaction(SIGCHLD, &old_action_, nullptr);
    sigprocmask(SIG_SETMASK, &old_mask_, nullptr);
    const absl::string_view variables(message.bytes.data() + sizeof(ForkRequest),
                                      message.bytes.size() - sizeof(ForkRequest));
    for (absl::string_view variable : absl::StrSplit(variables, '\0', absl::SkipEmpty())) {
      const size_t equals = variable.find('=');
      if (equals == absl::string_view::npos) continue;
      SetVariable(std::string(variable.substr(0, equals)),
                  std::string(variable.substr(equals + 1)));
    }
  }

  UnixSocket commands_;
  const ForkFunction& fork_function_;
  UniqueFd child_events_;
  struct sigaction old_action_{};
  sigset_t old_mask_{};
  absl::flat_hash_map<pid_t, uint64_t> children_;  // pid -> packed ProcessId.
};

}  // namespace

absl::Status CheckForkable() {
  if (const int threads = CountThreads(); threads > 1) {
    return absl::FailedPreconditionError(absl::StrCat("it has ", threads, " threads"));
  }
  if (HasOpenGpu()) return absl::FailedPreconditionError("it has opened a GPU");
  return absl::OkStatus();
}

WorkerStart RunWorkerTemplate(WorkerStart start, const ForkFunction& fork_function) {
  fcntl(start.template_fd, F_SETFD, FD_CLOEXEC);
  std::fflush(nullptr);  // Buffered output would else appear once per worker.
  Server server(UnixSocket(UniqueFd(std::exchange(start.template_fd, -1))), fork_function);
  start.token = server.Serve();
  return start;
}

std::optional<WorkerStart> EnterAsWorker(const ForkFunction& fork_function) {
  std::optional<WorkerStart> start = TakeWorkerStart();
  if (start && start->template_fd >= 0) start = RunWorkerTemplate(*std::move(start), fork_function);
  return start;
}

}  // namespace sheaf
