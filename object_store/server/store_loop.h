// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The store's loop as seen from elsewhere. What runs on another executor, or is held by somebody
// else, comes back to the loop; it is dropped when the store is gone by then.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <utility>

#include "base/executor.h"
#include "object_store/server/loop_gate.h"

namespace sheaf {

// All calls are made on the loop's thread, but for the end of a hold.
class StoreLoop {
 public:
  // `loop` outlives this, and may run its work after Close.
  explicit StoreLoop(Executor& loop) : loop_(loop), gate_(std::make_shared<LoopGate>(loop)) {}
  ~StoreLoop() { Close(); }
  StoreLoop(const StoreLoop&) = delete;
  StoreLoop& operator=(const StoreLoop&) = delete;

  // From here on nothing comes back.
  void Close() {
    gate_->Close();
    alive_.reset();
  }

  // Runs `work` on the loop, maybe at once.
  void Post(std::function<void()> work) {
    loop_.Post([alive = std::weak_ptr<bool>(alive_), work = std::move(work)] {
      if (!alive.expired()) work();
    });
  }
  // Runs `work` on `where`, then `done` on the loop.
  void RunElsewhere(Executor& where, std::function<void()> work, std::function<void()> done) {
    where.Post([&loop = loop_, alive = std::weak_ptr<bool>(alive_), work = std::move(work),
                done = std::move(done)]() mutable {
      work();
      // `alive` ends on the loop's thread, so it is asked there.
      loop.Post([alive = std::move(alive), done = std::move(done)] {
        if (!alive.expired()) done();
      });
    });
  }
  // When the last copy of what this returns goes, on any thread, `release` runs on the loop.
  std::shared_ptr<const void> Hold(std::function<void()> release) {
    static constexpr char kHeld = 0;
    ++holds_;
    return std::shared_ptr<const void>(
        &kHeld, [this, gate = gate_, alive = std::weak_ptr<bool>(alive_),
                 release = std::move(release)](const void*) mutable {
          gate->Post([this, alive = std::move(alive), release = std::move(release)] {
            if (alive.expired()) return;
            --holds_;
            release();
          });
        });
  }
  size_t holds() const { return holds_; }  // That Hold returned and that have not ended.

 private:
  Executor& loop_;
  size_t holds_ = 0;
  const std::shared_ptr<LoopGate> gate_;  // For those who drop holds.
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace sheaf
