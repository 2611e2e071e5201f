// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "raylet/host/spawn.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>

#include <catch2/catch.hpp>

#include "base/clock.h"

namespace sheaf {
namespace spawn_test {

struct Pipe {
  Pipe() {
    int fds[2];
    REQUIRE(pipe2(fds, O_CLOEXEC) == 0);
    reading.Reset(fds[0]);
    writing.Reset(fds[1]);
  }
  // All that the child writes until it ends.
  std::string Rest() {
    writing.Reset();
    std::string text;
    char buffer[4096];
    for (ssize_t size; (size = read(reading.get(), buffer, sizeof(buffer))) > 0;) {
      text.append(buffer, static_cast<size_t>(size));
    }
    return text;
  }
  UniqueFd reading, writing;
};

// What `sh -c script` writes to its output.
std::string Shell(const std::string& script, SpawnRequest request = {}) {
  const UniqueFd shell(open("/bin/sh", O_RDONLY | O_CLOEXEC));
  Pipe out;
  request.executable_fd = shell.get();
  request.argv = {"sh", "-c", script};
  request.stdout_fd = out.writing.get();
  request.stderr_fd = out.writing.get();
  const absl::StatusOr<Spawned> child = Spawn(request);
  REQUIRE(child.ok());
  std::string text = out.Rest();
  REQUIRE(waitpid(child->pid, nullptr, 0) == child->pid);
  return text;
}

SCENARIO(
    "a spawned program gets its arguments, environment, directory and descriptors, and nothing "
    "else") {
  CHECK(Shell("echo $0 out; echo err >&2; read x || echo no input") == "sh out\nerr\nno input\n");
  CHECK(Shell("echo $A-$HOME", {.environ = {"A=1", "PATH=/bin:/usr/bin"}}) == "1-\n");
  CHECK(Shell("pwd", {.working_dir = "/usr"}) == "/usr\n");
  CHECK(Shell("cat /proc/self/oom_score_adj",
              {.environ = {"PATH=/bin:/usr/bin"}, .oom_score_adj = 700}) == "700\n");
  Pipe inherited;
  const int leaked =
      open("/dev/null", O_RDONLY);  // Not close-on-exec: must be closed all the same.
  const UniqueFd owner(leaked);
  const std::string kept = std::to_string(inherited.writing.get());
  CHECK(Shell("[ -e /proc/self/fd/" + std::to_string(leaked) + " ] || echo closed",
              {.inherited_fds = {inherited.writing.get()}}) == "closed\n");
  CHECK(Shell("echo kept >&" + kept, {.inherited_fds = {inherited.writing.get()}}) == "");
  CHECK(inherited.Rest() == "kept\n");
}

SCENARIO("a spawned program leads its process group, with default signals and an empty mask") {
  signal(SIGPIPE, SIG_IGN);
  const std::string path = "PATH=/bin:/usr/bin";
  CHECK(Shell("grep -E 'SigBlk|SigIgn' /proc/self/status | cut -f2", {.environ = {path}}) ==
        "0000000000000000\n0000000000000000\n");
  signal(SIGPIPE, SIG_DFL);
  const std::string groups = Shell("cut -d' ' -f1,5 /proc/$$/stat", {.environ = {path}});
  CHECK(groups.substr(0, groups.find(' ')) + "\n" == groups.substr(groups.find(' ') + 1));
}

SCENARIO("what cannot be started is a typed error, and leaves no child") {
  const UniqueFd shell(open("/bin/sh", O_RDONLY | O_CLOEXEC));
  const UniqueFd text(open("/proc/self/status", O_RDONLY | O_CLOEXEC));
  const UniqueFd null(open("/dev/null", O_WRONLY | O_CLOEXEC));
  SpawnRequest request{.executable_fd = shell.get(),
                       .argv = {"sh"},
                       .working_dir = "/nowhere",
                       .stdout_fd = null.get(),
                       .stderr_fd = null.get()};
  CHECK(Spawn(request).status().code() == absl::StatusCode::kNotFound);
  request.working_dir = "";
  request.executable_fd = text.get();
  CHECK(Spawn(request).status().code() == absl::StatusCode::kInvalidArgument);
  CHECK(waitpid(-1, nullptr, WNOHANG) == -1);
}

}  // namespace spawn_test
}  // namespace sheaf
