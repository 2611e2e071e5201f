// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What the kernel says that processes of this node do, as an interface: read from /proc on a thread
// that may wait; where time is virtual there is none.
#pragma once

#include <functional>
#include <vector>

#include "proto/raylet.pb.h"

namespace sheaf {

class ProcessStates {
 public:
  virtual ~ProcessStates() = default;
  // Fills the threads of `processes`, which have `os_pid`, and calls `done` with them, later, on the
  // raylet's thread.
  virtual void Describe(
      std::vector<proto::ProcessStacks> processes,
      std::function<void(const std::vector<proto::ProcessStacks>& described)> done) = 0;
};

}  // namespace sheaf
