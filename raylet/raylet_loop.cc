// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "raylet/raylet_loop.h"

#include <algorithm>
#include <memory>
#include <utility>

namespace sheaf {
namespace {

constexpr Nanos kTickPeriod = 100 * kMillisecond;
constexpr Nanos kRetryQueued = kMillisecond;  // Frames wait for room in a ring (shm/mailbox.h).
// Frames for other nodes travel together: a message costs far more than a frame in it.
constexpr Nanos kFlushDelay = kMillisecond / 10;
constexpr Nanos kShortestTick = kMillisecond / 4;

}  // namespace

void RayletLoop::Start(LoopClient client) {
  client_ = std::move(client);
  thread_ = std::make_unique<ThreadExecutor>("raylet");
  thread_->Post([this] { Loop(); });
}

void RayletLoop::Post(std::function<void()> work) {
  {
    const MutexLock lock(mutex_);
    if (stopping_) return;
    posted_.push_back(std::move(work));
    has_posted_.store(true, std::memory_order_release);
  }
  RingBell(mailbox_.bell(), Lane::kControl);
}

void RayletLoop::Run(const std::function<void()>& work) { RunAndWait(*this, work); }

void RayletLoop::Stop() {
  {
    const MutexLock lock(mutex_);
    if (!stopping_) posted_.push_back([this] { running_.store(false, std::memory_order_relaxed); });
    has_posted_.store(true, std::memory_order_release);
    stopping_ = true;
  }
  RingBell(mailbox_.bell(), Lane::kControl);
  if (thread_ != nullptr) {
    thread_->Stop();
  } else {
    std::vector<std::function<void()>> dropped;  // Destroyed without the mutex.
    const MutexLock lock(mutex_);
    dropped.swap(posted_);
  }
}

bool RayletLoop::RunPosted() {
  if (!HasPosted()) return false;
  std::vector<std::function<void()>> work;
  {
    const MutexLock lock(mutex_);
    work.swap(posted_);
    has_posted_.store(false, std::memory_order_relaxed);
  }
  for (std::function<void()>& each : work) {
    each();
    each = nullptr;
  }
  return !work.empty();
}

void RayletLoop::Sleep(Nanos until) {
  SetBell(mailbox_.bell(), BellState::kAsleep);
  if (!mailbox_.Pending(/*take_work=*/true) && !HasPosted()) {
    const Nanos wait = until - MonotonicNow();
    if (wait > 0) SleepOnBell(mailbox_.bell(), wait);
  }
  SetBell(mailbox_.bell(), BellState::kAwake);
}

void RayletLoop::Loop() {
  Nanos next_tick = MonotonicNow() + kTickPeriod;
  Nanos flush_at = kForever;  // Something waits to be flushed.
  while (running_.load(std::memory_order_relaxed)) {
    bool busy = RunPosted();
    busy |= mailbox_.Poll(*client_.frames, /*take_work=*/true) > 0;
    if (busy) client_.end_turn();
    const Nanos now = MonotonicNow();
    if (busy && flush_at == kForever) flush_at = now + kFlushDelay;
    if (now >= next_tick || now >= client_.next_tick()) {
      client_.tick();
      if (now >= next_tick) mailbox_.LookAtAll();
      next_tick = now + kTickPeriod;
      flush_at = std::min(flush_at, now);
    }
    if (flush_at != kForever && (!busy || now >= flush_at)) {
      client_.flush();
      flush_at = kForever;
    }
    turns_.fetch_add(1, std::memory_order_relaxed);
    if (busy) continue;
    Nanos until = std::min(next_tick, std::max(client_.next_tick(), now + kShortestTick));
    if (mailbox_.HasQueued()) until = std::min(until, now + kRetryQueued);
    Sleep(until);
  }
  if (flush_at != kForever) client_.flush();  // What the last turn has sent.
}

}  // namespace sheaf
