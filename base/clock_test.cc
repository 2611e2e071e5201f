// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "base/clock.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <string_view>

namespace sheaf {
namespace {

#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME 0x80
#endif

enum Outcome { kSleepCounted, kSleepNotCounted, kNotAllowed };

// What a process reads whose machine has slept for `seconds` more than this one: in a time
// namespace of its own, as the kernel shows that sleep to CLOCK_BOOTTIME alone.
Outcome AfterSleepOf(int64_t seconds) {
  const Nanos before = MonotonicNow();
  const pid_t child = fork();
  if (child == 0) {
    const std::string_view offset = "boottime 1000 0\n";
    if (unshare(CLONE_NEWTIME) != 0) _exit(kNotAllowed);
    const int file = open("/proc/self/timens_offsets", O_WRONLY | O_CLOEXEC);
    if (file < 0 || write(file, offset.data(), offset.size()) < 0) _exit(kNotAllowed);
    const pid_t inside = fork();  // Only children are in the namespace.
    if (inside == 0)
      _exit(MonotonicNow() - before >= seconds * kSecond ? kSleepCounted : kSleepNotCounted);
    int status = 0;
    waitpid(inside, &status, 0);
    _exit(WEXITSTATUS(status));
  }
  int status = 0;
  waitpid(child, &status, 0);
  return static_cast<Outcome>(WEXITSTATUS(status));
}

}  // namespace

SCENARIO("the time that a machine sleeps counts, so that a lease ends in it") {
  const Outcome outcome = AfterSleepOf(1000);
  if (outcome == kNotAllowed) {
    WARN("not run: it takes a time namespace, so root and Linux 5.6");
    return;
  }
  CHECK(outcome == kSleepCounted);
}

SCENARIO("a deadline does not overflow") {
  CHECK(Deadline(5, kForever) == kForever);
  CHECK(Deadline(kForever - 1, 2) == kForever);
  CHECK(Deadline(5, 7) == 12);
}

}  // namespace sheaf
