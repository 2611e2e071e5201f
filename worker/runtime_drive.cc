// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "metrics/mailbox_metrics.h"
#include "worker/core/state_rows.h"
#include "worker/runtime_impl.h"

namespace sheaf {
namespace {

constexpr Nanos kSpin = 20 * kMicrosecond;
constexpr int kSpinYieldEvery = 24;  // Steps. The answer to a short call comes before.
constexpr Nanos kBackgroundTick = kMillisecond;
// After so many without a frame the background thread waits for the bell.
constexpr int kQuietTicks = 5;
// After kSpinMisses (runtime_impl.h) vain spins the next waits sleep at once, but one in kSpinRetry
// tries again, and all do after a sleep so short that both ends could have spun instead.
constexpr int kSpinRetry = 64;
// After a spin that lost its core to others, none for so many times as long as it took.
constexpr int kSpinPause = 4;
constexpr Nanos kShortSleep = 100 * kMicrosecond;
constexpr Nanos kRayletCheck = 200 * kMillisecond;
// A worker without a raylet ends by itself so long, then at once.
constexpr Nanos kOrphanGrace = 500 * kMillisecond;
constexpr Nanos kAskPeriod = 100 * kMillisecond;  // Users' waits ask so often whether to give up.
constexpr Nanos kLongestIdle = kSecond;
// While frames come without a pause others that want the lock wait for so long.
constexpr Nanos kLongestHold = 200 * kMicrosecond;
constexpr int kYieldSteps = 1000;  // Of SpinStep: a few of them yield the core.

thread_local const RuntimeImpl* holding = nullptr;  // The runtime whose lock this thread holds.

}  // namespace

RuntimeImpl::Lock::Lock(const RuntimeImpl& runtime)
    : runtime_(const_cast<RuntimeImpl&>(runtime)), lock_(runtime.mutex_, std::defer_lock) {
  Relock();
  ++runtime_.inside_;
}

RuntimeImpl::Lock::~Lock() {
  if (!lock_.owns_lock()) Relock();
  --runtime_.inside_;
  Unlock();
}

void RuntimeImpl::Lock::Unlock() {
  if (runtime_.core_) runtime_.FinishEnded();
  if (runtime_.core_ && runtime_.core_->owner.references.CollectDropped()) [[unlikely]] {
    // The background thread goes on with it.
    if (!std::exchange(runtime_.background_frees_, true)) Knock(runtime_.mailbox_->bell());
  }
  std::vector<std::shared_ptr<Waiter>> woken;
  if (!runtime_.to_wake_.empty()) woken.swap(runtime_.to_wake_);
  holding = outer_;
  lock_.unlock();
  for (const std::shared_ptr<Waiter>& waiter : woken) waiter->Wake();
}

void RuntimeImpl::Lock::Relock() {
  if (!lock_.try_lock()) {
    runtime_.lock_seekers_.fetch_add(1, std::memory_order_relaxed);
    lock_.lock();
    runtime_.lock_seekers_.fetch_sub(1, std::memory_order_relaxed);
    runtime_.lock_handovers_.fetch_add(1, std::memory_order_relaxed);
  }
  outer_ = std::exchange(holding, &runtime_);
}

void RuntimeImpl::Ended(CallExecution* call) {
  if (holding == this) return core_->executor.NoteEnded(call);
  Lock lock(*this);
  core_->executor.NoteEnded(call);
}

void RuntimeImpl::FinishEnded() {
  if (!core_->executor.has_ended()) return;
  core_->executor.FinishEnded();
  next_tick_ = std::min(next_tick_, core_->executor.argument_holds().NextTick());
  if (!group_threads_.empty() && core_->executor.queued() != 0)
    Recheck();  // Groups may run others.
}

bool RuntimeImpl::PollRings() {
  const size_t handled = mailbox_->Poll(*this, true);
  if (core_->owner.actors.holds_back()) [[unlikely]]
    core_->owner.actors.PushHeldBack();
  if (handled == 0) return false;
  // The background thread goes on with what is left.
  if (!core_->AfterFrames() && !std::exchange(background_frees_, true)) [[unlikely]]
    Knock(mailbox_->bell());
  return true;
}

void RuntimeImpl::Waiter::Wake() {
  {
    const std::lock_guard lock(mutex);
    woken = true;
  }
  changed.notify_one();
}

void RuntimeImpl::Waiter::Sleep(Nanos timeout) {
  std::unique_lock lock(mutex);
  changed.wait_for(lock, std::chrono::nanoseconds(timeout), [this] { return woken; });
  woken = false;
}

// All look by themselves whether to go on.
void RuntimeImpl::WakeWaiters() {
  to_wake_.insert(to_wake_.end(), waiters_.begin(), waiters_.end());
}

// Wakes those whose wait has ended.
void RuntimeImpl::ServeWaiters() {
  std::erase_if(waiters_, [this](const std::shared_ptr<Waiter>& waiter) {
    waiter->finished = !waiter->drives && (*waiter->done)();
    if (waiter->finished) to_wake_.push_back(waiter);
    return waiter->finished;
  });
}

// Something other than a frame has changed: all who wait look again.
void RuntimeImpl::Recheck() {
  ServeWaiters();
  if (driving_) {
    look_again_ = true;
    RingBell(mailbox_->bell(), Lane::kControl);
  }
}

// The holder of the token leaves it to another that waits, or to nobody.
void RuntimeImpl::LeaveToken() {
  if (waiters_.empty()) {
    driving_ = false;
    LeaveBell();
    return;
  }
  waiters_.back()->drives = true;
  to_wake_.push_back(waiters_.back());
}

// Sleeps as a Waiter; true: `done` has said yes.
bool RuntimeImpl::WaitBeside(Lock& lock, absl::FunctionRef<bool()> done, Nanos timeout,
                             bool* drives) {
  const auto waiter = std::make_shared<Waiter>();
  waiter->done = &done;
  waiters_.push_back(waiter);
  lock.Unlock();
  waiter->Sleep(timeout);
  lock.Relock();
  *drives = waiter->drives;
  if (!waiter->finished) std::erase(waiters_, waiter);
  return waiter->finished || done();
}

void RuntimeImpl::TickIfDue() {
  const Nanos now = clock_.Now();
  if (now >= next_tick_)
    next_tick_ = std::clamp(core_->Tick(), now + kMillisecond, now + kRayletCheck);
  if (now - last_raylet_check_ >= kRayletCheck) {
    last_raylet_check_ = now;
    mailbox_->LookAtAll();
    CheckRaylet();
    TakeNewRings();
    PublishMetrics();
    callbacks_.Relieve();
    cancels_.Relieve();
    printer_.Relieve();
    // What interrupts a call may meet it just before the system call that shall end, and be lost.
    core_->executor.ForEachRunning([this](const CallExecution& call) {
      if (call.cancelled()) OnRunningCancelled(call.task());
    });
  }
}

// The pure state counts for itself; the page shows it, a fraction of a second late.
void RuntimeImpl::PublishMetrics() {
  metrics::Page& page = metrics::PageOf(segment_->data());
  PublishCounts(*core_, page);
  page.counter(metrics::CounterId::kDoorbellSleeps).store(sleeps_, std::memory_order_relaxed);
  metrics::PublishMailbox(mailbox_->counts(), page);
}

// Gives the lock to somebody who wants it: a mutex alone would let this thread have it again.
void RuntimeImpl::YieldLock(Lock& lock) {
  const uint32_t before = lock_handovers_.load(std::memory_order_relaxed);
  lock.Unlock();
  for (int step = 0; step < kYieldSteps; ++step) {
    if (lock_seekers_.load(std::memory_order_relaxed) == 0 ||
        lock_handovers_.load(std::memory_order_relaxed) != before)
      break;
    SpinStep(step);
  }
  lock.Relock();
}

// The raylet's death shows as the end of the socket; nothing else comes on it unasked.
void RuntimeImpl::CheckRaylet() {
  if (raylet_dead_) return;
  pollfd ready{attached_.socket.fd(), POLLRDHUP, 0};
  if (poll(&ready, 1, 0) > 0 && (ready.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0) {
    EndRaylet("the raylet of this node has ended");
  }
}

void RuntimeImpl::EndRaylet(const std::string& why) {
  if (raylet_dead_) return;
  raylet_dead_ = true;
  raylet_death_ = why;
  Leave();
}

// RunWorker returns.
void RuntimeImpl::Leave() {
  leaving_ = true;
  WakeWaiters();
  leaves_.notify_all();
  loop_watch_.Leave();
}

// Looks at the rings for a while from `begun` on, if frames come fast these days; true: some came,
// or Recheck was called.
bool RuntimeImpl::Spin(Lock& lock, Nanos begun, Nanos deadline) {
  const bool spin =
      begun >= no_spin_before_ && (spin_misses_ < kSpinMisses || spin_misses_ % kSpinRetry == 0);
  if (spin) {
    const Nanos end = std::min(begun + kSpin, deadline);
    for (int step = 0;; ++step) {
      // The lock is given up where a step yields, and for whoever wants it: taking it for each look
      // costs as much as the look.
      const bool yields = SpinStepYields(step, kSpinYieldEvery);
      if (yields || lock_seekers_.load(std::memory_order_relaxed) != 0) {
        lock.Unlock();
        SpinStep(step, kSpinYieldEvery);
        lock.Relock();
      } else {
        SpinStep(step, kSpinYieldEvery);
      }
      const Nanos now = yields ? clock_.Now() : begun;
      // Whoever yields to a busy thread waits for its whole time slice, where one that sleeps would
      // have been given the core as soon as it was woken.
      if (now - begun > 2 * kSpin) no_spin_before_ = now + kSpinPause * (now - begun);
      if (PollRings()) {
        spin_misses_ = 0;
        return true;
      }
      if (std::exchange(look_again_, false)) return true;
      if (yields && now >= end) break;
    }
  }
  ++spin_misses_;
  return std::exchange(look_again_, false);
}

// One step of waiting for the thread that holds the token: drain, or spin, or sleep on the bell.
// `now` is the time, as just read: a look at the clock costs a good part of a short wait. True: the
// sleep ended early and without a frame, by a signal perhaps.
bool RuntimeImpl::DriveOnce(Lock& lock, Nanos now, Nanos deadline) {
  if (PollRings()) {
    // While frames come without a pause nothing else lets others have the lock, or wakes those whose
    // wait has ended.
    if (lock_seekers_.load(std::memory_order_relaxed) != 0 || !to_wake_.empty()) {
      if (now - yielded_at_ >= kLongestHold) {
        yielded_at_ = now;
        YieldLock(lock);
      }
    }
    return false;
  }
  core_->Flush();
  if (Spin(lock, now, deadline)) return false;
  TickIfDue();
  bool roused = false;
  Bell& bell = mailbox_->bell();
  SetBell(bell, BellState::kAsleep);
  if (!mailbox_->Pending(true)) {
    Nanos timeout = std::min(deadline, next_tick_) - clock_.Now();
    if (mailbox_->HasQueued()) timeout = std::min(timeout, kMillisecond);
    if (timeout > 0) {
      ++sleeps_;
      lock.Unlock();
      const Nanos begun = clock_.Now();
      SleepOnBell(bell, timeout);
      const Nanos slept = clock_.Now() - begun;
      lock.Relock();
      roused = slept < timeout && !mailbox_->Pending(true);
      if (slept < kShortSleep && !roused) spin_misses_ = 0;
    }
  }
  SetBell(bell, BellState::kAwake);
  return roused;
}

absl::Status RuntimeImpl::DriveUntil(Lock& lock, Nanos deadline, absl::FunctionRef<bool()> done,
                                     WaitsFor waits_for) {
  if (done()) return absl::OkStatus();
  const bool in_task = RunsUserCode();
  const Nanos begun = clock_.Now();
  BlockedCalls::Wait wait(core_->blocked_calls, waits_for, in_task, Hold(), begun);
  // A thousand idle workers must cost next to nothing.
  const Nanos longest_slice = in_task || options_.driver ? kAskPeriod : kLongestSleep;
  absl::Status status;
  bool finished = false;
  bool drives = false;  // The token is this thread's.
  for (Nanos now = begun; !finished; now = clock_.Now()) {
    if (raylet_dead_) {
      status = absl::AbortedError(raylet_death_);
      break;
    }
    if (now >= deadline) {
      status = absl::DeadlineExceededError("the time limit has passed");
      break;
    }
    const Nanos slice = std::min({deadline, now + longest_slice, wait.Look(now)});
    if (drives || !driving_) {
      driving_ = true;
      SetBell(mailbox_->bell(), BellState::kAwake);
      while (true) {
        const bool roused = DriveOnce(lock, now, slice);
        finished = done();
        if (!waiters_.empty()) ServeWaiters();
        if (finished || roused || raylet_dead_ || (in_task && Cancelled())) break;
        now = clock_.Now();
        if (now >= slice) break;
      }
      drives = false;
      LeaveToken();
    } else {
      finished = WaitBeside(lock, done, slice - now, &drives);
      // The others need somebody who drives: what follows comes after that.
      if (drives && !finished) continue;
    }
    if (finished) break;
    if (in_task && Cancelled()) {
      status = absl::CancelledError("the call that waits was cancelled");
      break;
    }
    if (options_.interrupted) {  // User code may run in it: the token was left above.
      lock.Unlock();
      const bool give_up = options_.interrupted();
      lock.Relock();
      if (give_up) {
        status = absl::CancelledError("interrupted");
        break;
      }
    }
  }
  if (drives) LeaveToken();
  return status;
}

// No thread waits any more: from here on the background thread looks after the rings.
void RuntimeImpl::LeaveBell() {
  // It looks soon anyway; the bell stays kAwake.
  if (background_ticks_.load(std::memory_order_relaxed)) return;
  SetBell(mailbox_->bell(), BellState::kAway);
  if (mailbox_->Pending(true) || mailbox_->HasQueued()) Knock(mailbox_->bell());
}

void RuntimeImpl::BackgroundLoop() {
  pthread_setname_np(pthread_self(), "sheaf-runtime");
  Bell& bell = mailbox_->bell();
  int quiet = 0;
  Nanos orphan_since = 0;
  bool background_frees = false;
  Lock lock(*this);
  while (!stopping_) {
    const bool ticking = background_ticks_.load(std::memory_order_relaxed);
    const Nanos until_tick =
        std::clamp<Nanos>(next_tick_ - clock_.Now(), kMillisecond, kLongestIdle);
    lock.Unlock();
    if (background_frees) {
      for (int step = 0; step < kYieldSteps && lock_seekers_.load(std::memory_order_relaxed) != 0;
           ++step)
        SpinStep(step);
    } else {
      SleepOnKnock(bell, ticking ? kBackgroundTick : until_tick);
    }
    lock.Relock();
    if (stopping_) break;
    background_frees_ = background_frees = core_->KeepHouse(ReferenceTable::kIdleSlice);
    TickIfDue();
    if (raylet_dead_ && !options_.driver) {
      if (orphan_since == 0) orphan_since = clock_.Now();
      // User code that still runs works for nobody: its results have no way out, and the next
      // raylet knows nothing of it.
      if (clock_.Now() - orphan_since >= kOrphanGrace) _exit(1);
    }
    if (driving_) {
      // Its holder looks, and hands over when it leaves.
      background_ticks_.store(false, std::memory_order_relaxed);
      continue;
    }
    driving_ = true;
    SetBell(bell, BellState::kAwake);
    const bool any = PollRings();
    core_->Flush();
    ServeWaiters();
    if (!waiters_.empty()) {
      background_ticks_.store(false, std::memory_order_relaxed);
      LeaveToken();
      continue;
    }
    driving_ = false;
    quiet = any || mailbox_->HasQueued() ? 0 : quiet + 1;
    if (quiet < kQuietTicks) {
      background_ticks_.store(true, std::memory_order_relaxed);
    } else {
      background_ticks_.store(false, std::memory_order_relaxed);
      LeaveBell();
    }
  }
}

}  // namespace sheaf
