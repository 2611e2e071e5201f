// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
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
constexpr Nanos kBlockedAfter = 2 * kMillisecond;
// So long other calls wait behind one whose arguments are on their way; then they go elsewhere, and
// the raylet may give its CPUs to others: to the task, perhaps, that makes an argument again.
constexpr Nanos kPatience = kSecond;
// A call that waits so long to hold its arguments lends its CPUs: what those wait for that hold
// theirs may need them.
constexpr Nanos kAdmissionPatience = 100 * kMillisecond;
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
  runtime_.FinishEnded();
  if (runtime_.owner_ && runtime_.owner_->references.CollectDropped()) [[unlikely]] {
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
  if (holding == this) {
    ended_.push_back(call);
    return;
  }
  Lock lock(*this);
  ended_.push_back(call);
}

void RuntimeImpl::FinishEnded() {
  if (ended_.empty()) return;
  for (size_t i = 0; i < ended_.size(); ++i) {  // By index: the end of one may end another.
    executor_->Ended(*ended_[i]);
    executor_->Recycle(ended_[i]);
  }
  ended_.clear();
  next_tick_ = std::min(next_tick_, executor_->argument_holds().NextTick());
  if (!group_threads_.empty() && executor_->queued() != 0) Recheck();  // Groups may run others.
}

bool RuntimeImpl::PollRings() {
  const size_t handled = mailbox_->Poll(*this, true);
  if (owner_->actors.holds_back()) [[unlikely]]
    owner_->actors.PushHeldBack();
  if (handled == 0) return false;
  owner_->references.CollectDropped();
  if (owner_->references.has_unpromoted()) [[unlikely]]
    PromoteLate();
  if (!actor_lookups_.empty()) [[unlikely]]
    TakeActorLookups();
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

void RuntimeImpl::FlushOutgoing() {
  owner_->references.Flush();
  store_->Flush();
}

// What found no room in the store when its reference left is tried again when there may be some.
void RuntimeImpl::PromoteLate() {
  const uint64_t version = store_->room_version();
  if (version == promoted_at_) return;
  if (owner_->references.PromoteAgain()) {
    promoted_at_ = version;
  } else if (!std::exchange(background_frees_, true)) {
    Knock(mailbox_->bell());
  }
}

// What can be done in slices; true: there is more.
bool RuntimeImpl::KeepHouse(size_t steps) {
  const bool more = owner_->references.CollectDropped(steps);
  if (!owner_->references.has_unpromoted()) return more;
  PromoteLate();
  return more || store_->room_version() != promoted_at_;
}

void RuntimeImpl::TickIfDue() {
  const Nanos now = clock_.Now();
  if (now >= next_tick_) {
    executor_->argument_holds().Tick();
    const Nanos next =
        std::min({owner_->Tick(), gcs_->Tick(), executor_->argument_holds().NextTick()});
    next_tick_ = std::clamp(next, now + kMillisecond, now + kRayletCheck);
  }
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
    executor_->ForEachRunning([this](const CallExecution& call) {
      if (call.cancelled()) OnRunningCancelled(call.task());
    });
  }
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
  if (leave_event_.valid()) eventfd_write(leave_event_.get(), 1);
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
  FlushOutgoing();
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
  const bool is_patient = waits_for == WaitsFor::kArguments || waits_for == WaitsFor::kAdmission;
  const Nanos blocked_after = is_patient ? kPatience : 0;
  const bool awaits_admission = waits_for == WaitsFor::kAdmission;
  // What this thread suspends, if it waits long enough.
  const bool loop_suspends =
      waits_for == WaitsFor::kCalls && executor_ != nullptr && executor_->argument_holds().any();
  const bool may_suspend =
      loop_suspends || (in_task && waits_for == WaitsFor::kOthers && Hold() != 0);
  bool suspended = false;
  const auto suspend = [&](bool now_suspended) {
    suspended = now_suspended;
    if (loop_suspends) {
      executor_->argument_holds().SetAllSuspended(suspended);
    } else {
      executor_->argument_holds().SetSuspended(Hold(), suspended);
    }
  };
  bool counted = false;  // Among blocked_threads_.
  const auto block = [&] {
    counted = true;
    ++blocked_threads_;
    executor_->SetBlocked(true);
  };
  if (in_task && blocked_after == 0) block();
  bool unadmitted = false;  // Counted among unadmitted_threads_.
  const Nanos tell_after = awaits_admission ? kAdmissionPatience : blocked_after + kBlockedAfter;
  // A thousand idle workers must cost next to nothing.
  const Nanos longest_slice = in_task || options_.driver ? kAskPeriod : kLongestSleep;
  const Nanos begun = clock_.Now();
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
    if (in_task && !counted && now - begun >= blocked_after) block();
    if (may_suspend && !suspended && now - begun >= kBlockedAfter) suspend(true);
    if (in_task && !told_blocked_ && now - begun >= tell_after) {
      told_blocked_ = true;
      unadmitted = awaits_admission;
      unadmitted_threads_ += unadmitted ? 1 : 0;
      proto::Blocked blocked;
      blocked.set_blocked(true);
      SendMessage(mailbox_->To(RayletOf(self_.node)), FrameKind::kBlocked, blocked);
    }
    Nanos slice = std::min(deadline, now + longest_slice);
    if (in_task && !told_blocked_) slice = std::min(slice, begun + tell_after);
    if (may_suspend && !suspended) slice = std::min(slice, begun + kBlockedAfter);
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
  if (suspended) suspend(false);
  unadmitted_threads_ -= unadmitted ? 1 : 0;
  if (counted && --blocked_threads_ == 0) executor_->SetBlocked(false);
  if (told_blocked_ && blocked_threads_ == 0 && unadmitted_threads_ == 0) {
    told_blocked_ = false;
    SendMessage(mailbox_->To(RayletOf(self_.node)), FrameKind::kBlocked, proto::Blocked());
  }
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
    background_frees_ = background_frees = KeepHouse(ReferenceTable::kIdleSlice);
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
    FlushOutgoing();
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
