// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "api/coroutine_loop.h"

#include <algorithm>
#include <utility>

#include "api/process.h"
#include "api/sampling/call_sampler.h"

namespace sheaf::inline v1::internal {
namespace {

thread_local std::shared_ptr<CoroutineRoot> current_root;

}  // namespace

Execution*& CurrentExecution() {
  static constinit thread_local Execution* execution = nullptr;
  return execution;
}

const std::shared_ptr<CoroutineRoot>& CoroutineLoop::Current() { return current_root; }

void CoroutineLoop::Post(std::function<void()> work) {
  {
    const MutexLock lock(mutex_);
    queue_.push_back(std::move(work));
  }
  changed_.NotifyOne();
}

void CoroutineLoop::PostAt(Nanos time, std::function<void()> work) {
  {
    const MutexLock lock(mutex_);
    timers_.emplace(time, std::move(work));
  }
  changed_.NotifyOne();
}

void CoroutineLoop::Start(std::shared_ptr<CoroutineRoot> root, std::coroutine_handle<> coroutine) {
  Post([root = std::move(root), coroutine] { Resume(root, coroutine); });
}

void CoroutineLoop::Cancel(std::shared_ptr<CoroutineRoot> root) {
  Post([root = std::move(root)] {
    root->cancelled = true;
    if (!root->waiting) return;
    ++root->waits;
    Resume(root, std::exchange(root->waiting, nullptr));
  });
}

std::function<void()> CoroutineLoop::Suspend(std::coroutine_handle<> waiting) {
  std::shared_ptr<CoroutineRoot> root = current_root;
  if (root == nullptr)
    throw SystemError(
        "co_await works in coroutines that Sheaf runs: as a task, or in sheaf::BlockOn");
  root->waiting = waiting;
  const uint64_t wait = ++root->waits;
  return [root = std::move(root), wait] {
    const std::shared_ptr<CoroutineLoop> loop = root->loop.lock();
    if (loop == nullptr) return;  // Its coroutines have all ended.
    loop->Post([root, wait] {
      if (root->waits == wait && root->waiting) Resume(root, std::exchange(root->waiting, nullptr));
    });
  };
}

void CoroutineLoop::Resume(const std::shared_ptr<CoroutineRoot>& root,
                           std::coroutine_handle<> coroutine) {
  const std::shared_ptr<CoroutineRoot> outer = std::exchange(current_root, root);
  Execution* const outer_execution = std::exchange(CurrentExecution(), root->execution);
  Runtime* const runtime = current_runtime.load(std::memory_order_acquire);
  CallOrigin outer_origin;
  if (runtime != nullptr) {
    outer_origin = runtime->current_origin();
    runtime->SetCurrentOrigin(root->origin);
  }
  {
    const SampledCall sampled(root->function);
    coroutine.resume();
  }
  if (runtime != nullptr) runtime->SetCurrentOrigin(outer_origin);
  CurrentExecution() = outer_execution;
  current_root = outer;
}

void CoroutineLoop::Run(const std::function<bool()>& done, Nanos patience) {
  while (!done()) {
    std::function<void()> work;
    {
      const MutexLock lock(mutex_);
      const Nanos now = MonotonicNow();
      while (!timers_.empty() && timers_.begin()->first <= now) {
        queue_.push_back(std::move(timers_.extract(timers_.begin()).mapped()));
      }
      if (queue_.empty()) {
        const Nanos next =
            timers_.empty() ? patience : std::min(patience, timers_.begin()->first - now);
        changed_.WaitFor(mutex_, next);
        continue;
      }
      work = std::move(queue_.front());
      queue_.pop_front();
    }
    work();
  }
}

}  // namespace sheaf::inline v1::internal
