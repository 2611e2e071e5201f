// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The C++ side of a worker: finds the function of a call, gives it its arguments, and the call its
// results.
#pragma once

#include <atomic>
#include <memory>

#include "absl/container/flat_hash_map.h"
#include "api/core.h"
#include "api/coroutine_loop.h"
#include "api/sampling/call_sampler.h"
#include "base/executor.h"
#include "base/mutex.h"
#include "sheaf/internal/registry.h"

namespace sheaf::inline v1::internal {

// Thread-safe. One per worker process, from Init to its end.
class WorkerHandler final : public TaskHandler {
 public:
  WorkerHandler();
  ~WorkerHandler() override;
  static WorkerHandler* Current();  // nullptr: this process is no worker.

  void Execute(std::shared_ptr<Execution> execution) override;
  void Cancel(TaskId task) override;
  // Before the first call, with the bytes of the process's segment: notes where the time of calls
  // goes, `hz` times a second; 0: never.
  void SampleCalls(std::shared_ptr<std::byte> segment, int64_t hz);
  // Ends the thread of coroutines, then the actor. Before the runtime goes.
  void Stop();

  // For the bridge to compiled functions.
  void SetInstance(void* instance, void (*destroy)(void*));
  void StartCoroutine(const Call& call, std::coroutine_handle<> body);

 private:
  void Run(const FunctionRecord& function, std::shared_ptr<Execution> execution);
  void CheckClass(const FunctionRecord& function);
  std::shared_ptr<CoroutineLoop> Loop();

  std::atomic<void*> instance_{nullptr};
  void (*destroy_)(void*) = nullptr;
  std::atomic<const FunctionRecord*> class_{nullptr};  // The constructor that made the instance.
  std::atomic<bool> async_actor_{false};

  std::unique_ptr<CallSampler> sampler_;
  std::atomic<bool> stopping_{false};
  Mutex mutex_;
  std::shared_ptr<CoroutineLoop> loop_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<ThreadExecutor> thread_ ABSL_GUARDED_BY(mutex_);  // Of loop_.
  absl::flat_hash_map<TaskId, std::weak_ptr<CoroutineRoot>> roots_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sheaf::inline v1::internal
