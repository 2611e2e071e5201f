// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// `sheaf entrypoint-guard`: the parent of one submitted command. All that the command leaves behind
// becomes its child, so it knows whom to end, and who is left; it outlives the node long enough to
// do so when the node is killed.
//
// It says to its node, each as one message: "running PID", then "ended STATUS" (of waitpid) when
// nobody is left; or "setup STATUS" where the runtime environment could not be made. The node says
// "stop". The end of the socket is the end of the node: all are killed.
#pragma once

#include <string>
#include <vector>

#include "base/clock.h"

namespace sheaf {

struct EntrypointGuardFlags {
  int fd = -1;  // Its end of a UnixSocket::Pair.
  int stop_signal = 15;
  Nanos stop_wait = 3 * kSecond;  // Between the signal and the kill.
  // Not empty: `PYTHON -m sheaf._worker.runtime_env_exec MARK COMMAND` makes the runtime environment, then
  // the file `mark`, and becomes the command.
  std::string python;
  std::string mark;
  std::string command;

  // As arguments of `sheaf`: "entrypoint-guard" and words.
  std::vector<std::string> Arguments() const;
};

// Runs until nobody is left. The exit status means nothing.
int RunEntrypointGuard(const std::vector<std::string>& words);

}  // namespace sheaf
