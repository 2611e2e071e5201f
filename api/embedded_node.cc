// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "api/embedded_node.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/clock.h"
#include "base/config.h"
#include "base/status_macros.h"

extern char** environ;

namespace sheaf::inline v1::internal {
namespace {

namespace fs = std::filesystem;

constexpr Nanos kStartTimeout = 30 * kSecond;
constexpr Nanos kStopTimeout = 10 * kSecond;  // Then it is killed.
constexpr Nanos kAskInterrupted = 100 * kMillisecond;

struct Pipe {
  UniqueFd read;
  UniqueFd write;
};

absl::StatusOr<Pipe> MakePipe() {
  int fds[2];
  if (pipe2(fds, O_CLOEXEC) != 0) return absl::ErrnoToStatus(errno, "no pipe for the node");
  return Pipe{UniqueFd(fds[0]), UniqueFd(fds[1])};
}

bool IsProgram(const fs::path& path) {
  std::error_code error;
  return fs::is_regular_file(path, error) && access(path.c_str(), X_OK) == 0;
}

// The directory of the library (or program) that this code is in.
fs::path OwnDirectory() {
  Dl_info info{};
  static const char inside = 0;
  if (dladdr(&inside, &info) == 0 || info.dli_fname == nullptr) return {};
  std::error_code error;
  const fs::path own = fs::canonical(info.dli_fname, error);
  // A program names itself as it was called, perhaps relative to another directory.
  return (error ? fs::read_symlink("/proc/self/exe", error) : own).parent_path();
}

// The line that the node writes when it is ready: "ready", its session and its metrics URL, by
// tabs.
absl::StatusOr<std::string> ReadReadyLine(int fd, const std::function<bool()>& interrupted) {
  const Nanos deadline = MonotonicNow() + kStartTimeout;
  std::string line;
  while (line.find('\n') == std::string::npos) {
    const Nanos left = deadline - MonotonicNow();
    if (left <= 0) return absl::DeadlineExceededError("the node was not ready within 30 s");
    pollfd entry{fd, POLLIN, 0};
    const Nanos slice = interrupted ? std::min(left, kAskInterrupted) : left;
    if (poll(&entry, 1, static_cast<int>(slice / kMillisecond) + 1) <= 0) {
      if (interrupted && interrupted()) return absl::CancelledError("interrupted");
      continue;
    }
    char buffer[4096];
    const ssize_t n = read(fd, buffer, sizeof(buffer));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0 || line.size() > 64 * 1024) {
      return absl::AbortedError("the node ended before it was ready; why stands above, on stderr");
    }
    line.append(buffer, static_cast<size_t>(n));
  }
  const std::vector<std::string> parts = absl::StrSplit(line.substr(0, line.find('\n')), '\t');
  if (parts.size() < 2 || parts[0] != "ready") {
    return absl::AbortedError(
        absl::StrCat("the `sheaf` program is of another version: it said '", line, "'"));
  }
  return parts[1];
}

}  // namespace

absl::StatusOr<std::string> FindExecutable(const std::string& wanted) {
  if (!wanted.empty()) {
    if (IsProgram(wanted)) return wanted;
    return absl::NotFoundError(absl::StrCat("SHEAF_EXECUTABLE='", wanted, "' is no program"));
  }
  const fs::path own = OwnDirectory();
  // Installed: lib/libsheaf.so and bin/sheaf. Where it was built: api/libsheaf.so, examples/NAME
  // and cli/sheaf.
  for (const char* beside :
       {"../bin/sheaf", "../../bin/sheaf", "../cli/sheaf", "../../cli/sheaf", "sheaf"}) {
    const fs::path candidate = own / beside;
    if (!own.empty() && IsProgram(candidate)) return candidate.lexically_normal().string();
  }
  const char* const path = getenv("PATH");
  for (absl::string_view directory :
       absl::StrSplit(path == nullptr ? "" : path, ':', absl::SkipEmpty())) {
    const fs::path candidate = fs::path(std::string(directory)) / "sheaf";
    if (IsProgram(candidate)) return candidate.string();
  }
  return absl::NotFoundError(
      absl::StrCat("there is no `sheaf` program beside ", own.string(),
                   " or in PATH: set SHEAF_EXECUTABLE, or SHEAF_ADDRESS to join a running node"));
}

absl::StatusOr<std::unique_ptr<EmbeddedNode>> EmbeddedNode::Start(
    const std::string& executable, const std::vector<std::string>& flags,
    const std::function<bool()>& interrupted) {
  SHEAF_ASSIGN_OR_RETURN(const std::string program, FindExecutable(executable));
  SHEAF_ASSIGN_OR_RETURN(Pipe ready, MakePipe());
  SHEAF_ASSIGN_OR_RETURN(Pipe alive, MakePipe());
  std::vector<std::string> texts = {"sheaf", "node", absl::StrCat("--ready-fd=", ready.write.get()),
                                    absl::StrCat("--parent-fd=", alive.read.get())};
  texts.insert(texts.end(), flags.begin(), flags.end());
  std::vector<char*> arguments;
  for (std::string& text : texts) arguments.push_back(text.data());
  arguments.push_back(nullptr);

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  // Onto themselves: they stay open in the child.
  posix_spawn_file_actions_adddup2(&actions, ready.write.get(), ready.write.get());
  posix_spawn_file_actions_adddup2(&actions, alive.read.get(), alive.read.get());
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none;
  sigemptyset(&none);
  posix_spawnattr_setsigmask(&attributes, &none);
  // A session of its own: Ctrl-C is for this program, which then ends the node in order.
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK);
  std::unique_ptr<EmbeddedNode> node(new EmbeddedNode);
  const int failed =
      posix_spawn(&node->pid_, program.c_str(), &actions, &attributes, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  if (failed != 0) {
    node->pid_ = 0;
    return absl::ErrnoToStatus(failed, absl::StrCat("cannot start ", program));
  }
  node->alive_ = std::move(alive.write);
  ready.write.Reset();
  SHEAF_ASSIGN_OR_RETURN(node->session_, ReadReadyLine(ready.read.get(), interrupted));
  return node;
}

EmbeddedNode::~EmbeddedNode() {
  if (pid_ == 0) return;
  alive_.Reset();
  const Nanos deadline = MonotonicNow() + kStopTimeout;
  int status = 0;
  while (waitpid(pid_, &status, WNOHANG) == 0) {
    if (MonotonicNow() > deadline) {
      kill(pid_, SIGKILL);
      waitpid(pid_, &status, 0);
      return;
    }
    usleep(1000);
  }
}

}  // namespace sheaf::inline v1::internal
