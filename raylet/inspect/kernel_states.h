// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What the kernel says that the threads of processes do: for those that do not say it themselves.
#pragma once

#include <functional>
#include <vector>

#include "base/executor.h"
#include "raylet/host/worker_observer.h"
#include "raylet/workers/process_states.h"

namespace sheaf {

// Fills the threads of `process` from /proc, and says in its words what is strange about it: that it
// is stopped, for one. At most kThreadsShown; the others are counted.
inline constexpr int kThreadsShown = 256;
void DescribeByKernel(proto::ProcessStacks& process);

// On the thread that looks after workers.
class KernelStates final : public ProcessStates {
 public:
  // `loop` runs the raylet; both outlive this.
  KernelStates(WorkerObserver& observer, Executor& loop) : observer_(observer), loop_(loop) {}
  void Describe(std::vector<proto::ProcessStacks> processes,
                std::function<void(const std::vector<proto::ProcessStacks>&)> done) override;

 private:
  WorkerObserver& observer_;
  Executor& loop_;
};

}  // namespace sheaf
