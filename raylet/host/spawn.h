// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Starts one program as a child process. Thread-safe; takes as long as the kernel needs for an
// exec, so never on a loop that others wait for.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/unique_fd.h"

namespace sheaf {

struct SpawnRequest {
  int executable_fd = -1;
  std::vector<std::string> argv = {};     // argv[0] included.
  std::vector<std::string> environ = {};  // "NAME=value", whole.
  std::string working_dir = {};           // Empty: this process's.
  int stdout_fd = -1;
  int stderr_fd = -1;
  // Stay open in the child under their numbers. All others but 0, 1, 2 are closed.
  std::vector<int> inherited_fds = {};
  uint64_t open_files = 0;  // The child's limit of descriptors (soft). 0: this process's.
  // 0 to 1000: how much sooner than this process the kernel takes it when memory is out.
  int oom_score_adj = 0;
};

struct Spawned {
  pid_t pid = 0;
  UniqueFd pidfd;  // Invalid where the kernel has none.
};

// The child leads a process group of its own, has default signal handlers, an empty signal mask and
// /dev/null as input. kNotFound: the working directory is gone. kResourceExhausted: no more
// processes or memory. kInvalidArgument: the kernel does not run this file.
absl::StatusOr<Spawned> Spawn(const SpawnRequest& request);

}  // namespace sheaf
