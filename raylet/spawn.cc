// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "raylet/spawn.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <memory>

#include "absl/strings/str_cat.h"

namespace sheaf {
namespace {

enum class Step : int { kNone, kDirectory, kOutput, kExec };

// What the child works with, prepared by the parent: between clone and exec the child shares the parent's memory, so it
// makes system calls only.
struct Plan {
  int executable_fd;
  char* const* argv;
  char* const* environ;
  const char* working_dir;
  int null_fd, stdout_fd, stderr_fd, inherited_fd;
  const char* oom_score_adj;
  uint64_t open_files;
  // Written by the child.
  int error = 0;
  Step failed = Step::kNone;
};

[[noreturn]] void Fail(Plan& plan, Step step) {
  plan.error = errno;
  plan.failed = step;
  _exit(127);
}

int RunChild(void* argument) {
  Plan& plan = *static_cast<Plan*>(argument);
  setpgid(0, 0);
  struct sigaction by_default {};
  by_default.sa_handler = SIG_DFL;
  for (int signal = 1; signal < 65; ++signal) sigaction(signal, &by_default, nullptr);
  if (*plan.working_dir != '\0' && chdir(plan.working_dir) != 0) Fail(plan, Step::kDirectory);
  if (dup2(plan.null_fd, 0) < 0 || dup2(plan.stdout_fd, 1) < 0 || dup2(plan.stderr_fd, 2) < 0) {
    Fail(plan, Step::kOutput);
  }
#ifdef SYS_close_range
  syscall(SYS_close_range, 3u, ~0u, 4u /* CLOSE_RANGE_CLOEXEC */);
#endif
  if (plan.inherited_fd >= 0) fcntl(plan.inherited_fd, F_SETFD, 0);
  const int score = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
  if (score >= 0) {
    [[maybe_unused]] const ssize_t size = write(score, plan.oom_score_adj, std::strlen(plan.oom_score_adj));
  }
  rlimit files{};
  if (plan.open_files != 0 && getrlimit(RLIMIT_NOFILE, &files) == 0) {
    files.rlim_cur = plan.open_files;
    setrlimit(RLIMIT_NOFILE, &files);
  }
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  syscall(SYS_execveat, plan.executable_fd, "", plan.argv, plan.environ, AT_EMPTY_PATH);
  Fail(plan, Step::kExec);
}

std::vector<char*> Pointers(const std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  pointers.reserve(texts.size() + 1);
  for (const std::string& text : texts) pointers.push_back(const_cast<char*>(text.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

// clone(2) with the parent stopped until the child has exec'd or ended: no page tables are copied, however large this
// process is. -1 and errno: no child.
pid_t CloneChild(Plan& plan, int* pidfd) {
  constexpr size_t kStackBytes = 64 * 1024;
  const auto stack = std::make_unique<std::byte[]>(kStackBytes);
  // Handlers of this process must not run in the child, which shares its memory.
  sigset_t all;
  sigset_t old;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  void* const top = stack.get() + kStackBytes;
  pid_t pid = clone(RunChild, top, CLONE_VM | CLONE_VFORK | CLONE_PIDFD | SIGCHLD, &plan, pidfd);
  if (pid < 0 && errno == EINVAL) {  // A kernel without pidfds.
    pid = clone(RunChild, top, CLONE_VM | CLONE_VFORK | SIGCHLD, &plan);
  }
  const int error = errno;
  pthread_sigmask(SIG_SETMASK, &old, nullptr);
  errno = error;
  return pid;
}

absl::Status Describe(const Plan& plan, const SpawnRequest& request) {
  const char* const why = std::strerror(plan.error);
  switch (plan.failed) {
    case Step::kDirectory:
      return absl::NotFoundError(absl::StrCat("the working directory ", request.working_dir, ": ", why));
    case Step::kOutput:
      return absl::ResourceExhaustedError(absl::StrCat("cannot redirect output: ", why));
    case Step::kNone:
    case Step::kExec:
      break;
  }
  const std::string words =
      absl::StrCat("cannot run ", request.argv.empty() ? "the executable" : request.argv[0], ": ", why);
  if (plan.error == ENOMEM || plan.error == EAGAIN) return absl::ResourceExhaustedError(words);
  return absl::InvalidArgumentError(words);
}

}  // namespace

absl::StatusOr<Spawned> Spawn(const SpawnRequest& request) {
  const std::vector<char*> argv = Pointers(request.argv);
  const std::vector<char*> environ = Pointers(request.environ);
  const std::string score = absl::StrCat(request.oom_score_adj);
  const UniqueFd null(open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (!null.valid()) return absl::ResourceExhaustedError(absl::StrCat("/dev/null: ", std::strerror(errno)));
  Plan plan{request.executable_fd, argv.data(),      environ.data(),       request.working_dir.c_str(),
            null.get(),            request.stdout_fd, request.stderr_fd,   request.inherited_fd,
            score.c_str(),         request.open_files};
  int pidfd = -1;
  const pid_t pid = CloneChild(plan, &pidfd);
  if (pid < 0) return absl::ResourceExhaustedError(absl::StrCat("cannot start a process: ", std::strerror(errno)));
  Spawned result{pid, UniqueFd(pidfd)};
  if (plan.failed != Step::kNone) {
    waitpid(pid, nullptr, 0);
    return Describe(plan, request);
  }
  return result;
}

}  // namespace sheaf
