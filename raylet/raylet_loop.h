// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The thread that owns a raylet's state. It waits on its doorbell only: rings ring it, and so do
// those who post to it.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <vector>

#include "base/clock.h"
#include "base/executor.h"
#include "base/mutex.h"
#include "shm/mailbox.h"

namespace sheaf {

// What the loop drives. All called on it.
struct LoopClient {
  FrameHandler* frames = nullptr;
  std::function<void()> end_turn;    // After a batch of frames and posted work.
  std::function<void()> flush;       // After a turn, once nothing more is there or 0.1 ms is over.
  std::function<void()> tick;        // At least each 100 ms.
  std::function<Nanos()> next_tick;  // When the next would be of use; kForever: in its time.
};

class RayletLoop final : public Executor {
 public:
  // `mailbox` outlives the loop, and is used by nobody else while it runs.
  explicit RayletLoop(Mailbox& mailbox) : mailbox_(mailbox) {}
  ~RayletLoop() override { Stop(); }
  RayletLoop(const RayletLoop&) = delete;
  RayletLoop& operator=(const RayletLoop&) = delete;

  // Before it work is kept, not run.
  void Start(LoopClient client);
  // Any thread. After Stop work is destroyed without being run.
  void Post(std::function<void()> work) override;
  // Runs `work` on the loop and returns when it has run, or at once after Stop. Not on the loop.
  void Run(const std::function<void()>& work);
  // Runs what was posted so far, then ends the thread. Not on the loop.
  void Stop();
  // Batches so far, for tests that look whether an idle loop sleeps.
  uint64_t turns() const { return turns_.load(std::memory_order_relaxed); }

 private:
  void Loop();
  bool RunPosted();
  bool HasPosted() const { return has_posted_.load(std::memory_order_acquire); }
  void Sleep(Nanos until);

  Mailbox& mailbox_;
  LoopClient client_;
  Mutex mutex_;
  std::vector<std::function<void()>> posted_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::atomic<bool> has_posted_{false};
  std::atomic<bool> running_{true};
  std::atomic<uint64_t> turns_{0};
  std::unique_ptr<ThreadExecutor> thread_;  // Null before Start.
};

}  // namespace sheaf
