// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "base/failpoint.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <string>

#include "base/clock.h"

namespace sheaf {
namespace {

struct Disarm {
  ~Disarm() { ArmFailpoints("", 0).IgnoreError(); }
};

// How a child ends that passes `a` ten times; its wait status.
int EndOfChild(const std::string& text) {
  const pid_t child = fork();
  if (child == 0) {
    if (!ArmFailpoints(text, 0).ok()) _exit(3);
    for (int i = 0; i < 10; ++i) SHEAF_FAILPOINT("a");
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return status;
}

// At which of 200 passes `a` fails.
std::string Pattern(const std::string& text, uint64_t salt) {
  REQUIRE(ArmFailpoints(text, salt).ok());
  std::string result;
  for (int i = 0; i < 200; ++i) result += SHEAF_FAILPOINT_STATUS("a").ok() ? '.' : 'x';
  return result;
}

}  // namespace

SCENARIO("a failpoint acts at its n-th pass, once, and unset ones never") {
  const Disarm disarm;
  CHECK(SHEAF_FAILPOINT_STATUS("a").ok());
  REQUIRE(ArmFailpoints("a:error@2,b:error@1", 0).ok());
  CHECK(SHEAF_FAILPOINT_STATUS("a").ok());
  CHECK(SHEAF_FAILPOINT_STATUS("c").ok());
  CHECK(SHEAF_FAILPOINT_STATUS("a").code() == absl::StatusCode::kUnavailable);
  CHECK(SHEAF_FAILPOINT_STATUS("a").ok());
  CHECK_FALSE(SHEAF_FAILPOINT_STATUS("b").ok());
}

SCENARIO("a failpoint ends its process the way it was told") {
  const int killed = EndOfChild("a:kill@10");
  CHECK((WIFSIGNALED(killed) && WTERMSIG(killed) == SIGKILL));
  const int exited = EndOfChild("a:exit@1");
  CHECK((WIFEXITED(exited) && WEXITSTATUS(exited) == 77));
  CHECK(EndOfChild("a:kill@11") == 0);
  CHECK(EndOfChild("b:kill@1") == 0);
}

SCENARIO("a failpoint delays") {
  const Disarm disarm;
  REQUIRE(ArmFailpoints("a:sleep(20)@1", 0).ok());
  const Nanos start = MonotonicNow();
  SHEAF_FAILPOINT("a");
  CHECK(MonotonicNow() - start >= 20 * kMillisecond);
}

SCENARIO("chance is repeated by its seed and differs between processes") {
  const Disarm disarm;
  const std::string first = Pattern("a:error%0.5:7", 1);
  CHECK(first == Pattern("a:error%0.5:7", 1));
  CHECK(first != Pattern("a:error%0.5:7", 2));
  CHECK(first != Pattern("a:error%0.5:8", 1));
  CHECK(Pattern("a:error%0:7", 1) == std::string(200, '.'));
  CHECK(Pattern("a:error%1:7", 1) == std::string(200, 'x'));
}

SCENARIO("malformed text is refused and changes nothing") {
  const Disarm disarm;
  REQUIRE(ArmFailpoints("a:error@1", 0).ok());
  for (const char* text : {"a", "a:kill", ":kill@1", "a:kill@0", "a:kill@x", "a:burn@1",
                           "a:sleep(x)@1", "a:kill%2:1", "a:kill%0.5", "a:error@1,b"}) {
    CAPTURE(text);
    CHECK(ArmFailpoints(text, 0).code() == absl::StatusCode::kInvalidArgument);
  }
  CHECK_FALSE(SHEAF_FAILPOINT_STATUS("a").ok());
}

}  // namespace sheaf
