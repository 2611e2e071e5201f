// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Which process a number means: numbers are used again, and mean nothing on another machine or in
// another container.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "base/unique_fd.h"

namespace sheaf {

struct ProcessIdentity {
  pid_t pid = 0;
  uint64_t start_time = 0;  // Clock ticks since boot.
  std::string machine;      // The boot's id and the namespace of process numbers.
};

ProcessIdentity OwnIdentity();

// A watch on `process`, which is on this machine. kNotFound: it is gone, or its number is another's
// by now.
class ProcessPresence {
 public:
  ProcessPresence() = default;
  static absl::StatusOr<ProcessPresence> Watch(const ProcessIdentity& process);
  bool Alive() const;
  bool Stopped() const;  // By a signal, or a debugger.
  pid_t pid() const { return process_.pid; }

 private:
  ProcessIdentity process_;
  UniqueFd pidfd_;  // Not valid: the kernel has none, /proc is asked.
};

// A descriptor of its own for what `process` has open as `fd`.
absl::StatusOr<UniqueFd> OpenDescriptorOf(const ProcessIdentity& process, int fd);

}  // namespace sheaf
