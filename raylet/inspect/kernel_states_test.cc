// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "raylet/inspect/kernel_states.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "base/testing/wait_until_for_test.h"
#include "raylet/host/proc_files.h"

namespace sheaf {
namespace kernel_states_test {

// A child that sleeps for ever, until the test is done with it.
class Sleeper {
 public:
  Sleeper() : pid_(fork()) {
    if (pid_ == 0) {
      while (true) pause();
    }
  }
  ~Sleeper() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  int pid() const { return pid_; }

 private:
  const int pid_;
};

proto::ProcessStacks Described(int pid) {
  proto::ProcessStacks process;
  process.set_os_pid(pid);
  DescribeByKernel(process);
  return process;
}

SCENARIO("the kernel says of each thread whether it waits, and of a process that it is stopped") {
  const Sleeper sleeper;
  const auto state_is = [&](char state) {
    return WaitUntil(20 * kSecond, [&] { return ReadProcStat(sleeper.pid())->state == state; });
  };
  REQUIRE(state_is('S'));
  const proto::ProcessStacks waits = Described(sleeper.pid());
  CHECK(waits.words().empty());
#ifdef SHEAF_TSAN  // Which has a thread in each process.
  REQUIRE(waits.threads_size() == 2);
#else
  REQUIRE(waits.threads_size() == 1);
#endif
  CHECK(waits.threads(0).os_thread() == sleeper.pid());
  CHECK(waits.threads(0).name() + "\n" == ReadKernelFile("/proc/self/comm"));
  CHECK(waits.threads(0).words().starts_with("waits"));
  kill(sleeper.pid(), SIGSTOP);
  REQUIRE(state_is('T'));
  CHECK(Described(sleeper.pid()).words() == "it is stopped by a signal");
}

SCENARIO("a process that is not there any more has ended") {
  int gone = 0;
  {
    const Sleeper sleeper;
    gone = sleeper.pid();
  }
  const proto::ProcessStacks ended = Described(gone);
  CHECK(ended.words() == "it has ended meanwhile");
  CHECK(ended.threads().empty());
}

}  // namespace kernel_states_test
}  // namespace sheaf
