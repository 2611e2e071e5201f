// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "raylet/host/spawn.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <memory>

#include "absl/strings/str_cat.h"

namespace sheaf {
namespace {

enum class Step : int { kNone, kDirectory, kOutput, kExec };

// What the child works with, prepared by the parent: between clone and exec the child shares the
// parent's memory, so it makes system calls only.
struct Plan {
  int executable_fd;
  char* const* argv;
  char* const* environ;
  const char* working_dir;
  int null_fd, stdout_fd, stderr_fd;
  const int* inherited_fds;
  size_t inherited;
  const char* oom_score_adj;
  size_t oom_score_bytes;
  rlimit open_files;  // All zeros: as it is.
  // Written by the child.
  int error = 0;
  Step failed = Step::kNone;
};

// Sanitizers keep books in the memory that the child shares, for the thread that waits: nothing
// here may enter them.
#if defined(__has_attribute) && __has_attribute(no_sanitize)
#define SHEAF_UNSANITIZED __attribute__((no_sanitize("thread"), no_sanitize("address")))
#else
#define SHEAF_UNSANITIZED
#endif

[[noreturn]] SHEAF_UNSANITIZED void Fail(Plan& plan, Step step) {
  plan.error = errno;
  plan.failed = step;
  while (true) syscall(SYS_exit_group, 127);
}

// As rt_sigaction(2) wants it.
struct KernelSigaction {
  void* handler;
  unsigned long flags;
  void* restorer;
  uint64_t mask;
};

// By syscall(2) alone: wrappers of the C library may be others' (sanitizers, profilers) and keep
// state.
SHEAF_UNSANITIZED int RunChild(void* argument) {
  Plan& plan = *static_cast<Plan*>(argument);
  constexpr size_t kMaskBytes = sizeof(uint64_t);
  syscall(SYS_setpgid, 0, 0);
  const KernelSigaction by_default{};
  for (int signal = 1; signal <= 64; ++signal)
    syscall(SYS_rt_sigaction, signal, &by_default, nullptr, kMaskBytes);
  if (*plan.working_dir != '\0' && syscall(SYS_chdir, plan.working_dir) != 0)
    Fail(plan, Step::kDirectory);
  const int standard[3] = {plan.null_fd, plan.stdout_fd, plan.stderr_fd};
  for (int fd = 0; fd < 3; ++fd) {
    const long done = standard[fd] == fd ? syscall(SYS_fcntl, fd, F_SETFD, 0)
                                         : syscall(SYS_dup3, standard[fd], fd, 0);
    if (done < 0) Fail(plan, Step::kOutput);
  }
#ifdef SYS_close_range
  syscall(SYS_close_range, 3u, ~0u, 4u /* CLOSE_RANGE_CLOEXEC */);
#endif
  for (size_t i = 0; i < plan.inherited; ++i) syscall(SYS_fcntl, plan.inherited_fds[i], F_SETFD, 0);
  const long score =
      syscall(SYS_openat, AT_FDCWD, "/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
  if (score >= 0) syscall(SYS_write, score, plan.oom_score_adj, plan.oom_score_bytes);
  if (plan.open_files.rlim_max != 0)
    syscall(SYS_prlimit64, 0, RLIMIT_NOFILE, &plan.open_files, nullptr);
  const uint64_t no_signals = 0;
  syscall(SYS_rt_sigprocmask, SIG_SETMASK, &no_signals, nullptr, kMaskBytes);
  syscall(SYS_execveat, plan.executable_fd, "", plan.argv, plan.environ, AT_EMPTY_PATH);
  Fail(plan, Step::kExec);
}

// The limit that the child is to have; all zeros: this process's.
rlimit OpenFiles(uint64_t soft) {
  rlimit limit{};
  if (soft == 0 || getrlimit(RLIMIT_NOFILE, &limit) != 0) return {};
  limit.rlim_cur = std::min<rlim_t>(soft, limit.rlim_max);
  return limit;
}

#ifdef SHEAF_TSAN
// ThreadSanitizer's own clone takes the child for a fork and forgets, in the memory of both, all
// other threads.
using CloneFunction = int (*)(int (*)(void*), void*, int, void*, ...);
const auto kClone = reinterpret_cast<CloneFunction>(dlsym(dlopen("libc.so.6", RTLD_LAZY), "clone"));
#else
constexpr auto kClone = &clone;
#endif

std::vector<char*> Pointers(const std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  pointers.reserve(texts.size() + 1);
  for (const std::string& text : texts) pointers.push_back(const_cast<char*>(text.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

// clone(2) with the parent stopped until the child has exec'd or ended: no page tables are copied,
// however large this process is. -1 and errno: no child.
pid_t CloneChild(Plan& plan, int* pidfd) {
  constexpr size_t kStackBytes = 64 * 1024;
  const auto stack = std::make_unique<std::byte[]>(kStackBytes);
  // Handlers of this process must not run in the child, which shares its memory.
  sigset_t all;
  sigset_t old;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  void* const top = stack.get() + kStackBytes;
  pid_t pid = kClone(RunChild, top, CLONE_VM | CLONE_VFORK | CLONE_PIDFD | SIGCHLD, &plan, pidfd);
  if (pid < 0 && errno == EINVAL) {  // A kernel without pidfds.
    pid = kClone(RunChild, top, CLONE_VM | CLONE_VFORK | SIGCHLD, &plan);
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
      return absl::NotFoundError(
          absl::StrCat("the working directory ", request.working_dir, ": ", why));
    case Step::kOutput:
      return absl::ResourceExhaustedError(absl::StrCat("cannot redirect output: ", why));
    case Step::kNone:
    case Step::kExec:
      break;
  }
  const std::string words = absl::StrCat(
      "cannot run ", request.argv.empty() ? "the executable" : request.argv[0], ": ", why);
  if (plan.error == ENOMEM || plan.error == EAGAIN) return absl::ResourceExhaustedError(words);
  return absl::InvalidArgumentError(words);
}

}  // namespace

absl::StatusOr<Spawned> Spawn(const SpawnRequest& request) {
  const std::vector<char*> argv = Pointers(request.argv);
  const std::vector<char*> environ = Pointers(request.environ);
  const std::string score = absl::StrCat(request.oom_score_adj);
  const UniqueFd null(open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (!null.valid())
    return absl::ResourceExhaustedError(absl::StrCat("/dev/null: ", std::strerror(errno)));
  Plan plan{request.executable_fd,
            argv.data(),
            environ.data(),
            request.working_dir.c_str(),
            null.get(),
            request.stdout_fd,
            request.stderr_fd,
            request.inherited_fds.data(),
            request.inherited_fds.size(),
            score.c_str(),
            score.size(),
            OpenFiles(request.open_files)};
  int pidfd = -1;
  const pid_t pid = CloneChild(plan, &pidfd);
  if (pid < 0)
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot start a process: ", std::strerror(errno)));
  Spawned result{pid, UniqueFd(pidfd)};
  if (plan.failed != Step::kNone) {
    waitpid(pid, nullptr, 0);
    return Describe(plan, request);
  }
  return result;
}

}  // namespace sheaf
