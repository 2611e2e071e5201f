// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Runs coroutines, one step at a time, on one thread: resumed when an object is ready, when a time
// has come, or when their call is cancelled.
#pragma once

#include <coroutine>
#include <deque>
#include <functional>
#include <map>
#include <memory>

#include "api/core.h"
#include "base/mutex.h"
#include "sheaf/internal/registry.h"

namespace sheaf::inline v1::internal {

class CoroutineLoop;

// One call (or BlockOn) whose coroutine runs or waits. Touched by its loop's thread only, but for
// `loop`.
struct CoroutineRoot {
  std::weak_ptr<CoroutineLoop> loop;         // Weak, as what the loop has to run holds roots.
  const FunctionRecord* function = nullptr;  // Whose time it takes.
  Execution* execution = nullptr;  // Of a call; outlives the coroutine's frame, not this struct.
  CallOrigin origin;
  bool cancelled = false;
  // Counts them: a resumption names the wait that it ends, late ones are dropped.
  uint64_t waits = 0;
  std::coroutine_handle<> waiting;
};

// Thread-safe but for Run.
class CoroutineLoop : public std::enable_shared_from_this<CoroutineLoop> {
 public:
  // Runs `work` on the loop's thread.
  void Post(std::function<void()> work);
  void PostAt(Nanos time, std::function<void()> work);
  // Begins a coroutine.
  void Start(std::shared_ptr<CoroutineRoot> root, std::coroutine_handle<> coroutine);
  // Ends what the root waits for with its being cancelled.
  void Cancel(std::shared_ptr<CoroutineRoot> root);
  // Runs work until done() says so, asked after each piece and at least each `patience`.
  void Run(const std::function<bool()>& done, Nanos patience);

  // On the loop's thread: suspends the running root; the function that it returns ends the wait,
  // from any thread.
  static std::function<void()> Suspend(std::coroutine_handle<> waiting);
  // The root that runs on this thread, or null.
  static const std::shared_ptr<CoroutineRoot>& Current();

 private:
  static void Resume(const std::shared_ptr<CoroutineRoot>& root, std::coroutine_handle<> coroutine);

  Mutex mutex_;
  CondVar changed_;
  std::deque<std::function<void()>> queue_ ABSL_GUARDED_BY(mutex_);
  std::multimap<Nanos, std::function<void()>> timers_ ABSL_GUARDED_BY(mutex_);
};

// The call that runs on this thread, or null. Coroutines' as well.
Execution*& CurrentExecution();

}  // namespace sheaf::inline v1::internal
