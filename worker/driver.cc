// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "worker/driver.h"

#include <pthread.h>

#include <algorithm>
#include <utility>

#include "shm/usable_cores.h"
#include "worker/current_call.h"

namespace sheaf {
namespace {

constexpr Nanos kSpin = 20 * kMicrosecond;
constexpr int kSpinYieldEvery = 24;  // Steps. The answer to a short call comes before.
constexpr Nanos kBackgroundTick = kMillisecond;
// After so many without a frame the background thread waits for the bell.
constexpr int kQuietTicks = 5;
// After kSpinMisses (driver.h) vain spins the next waits sleep at once, but one in kSpinRetry
// tries again, and all do after a sleep so short that both ends could have spun instead.
constexpr int kSpinRetry = 64;
// After a spin that lost its core to others, none for so many times as long as it took.
constexpr int kSpinPause = 4;
constexpr Nanos kShortSleep = 100 * kMicrosecond;
constexpr Nanos kHostTick = 200 * kMillisecond;
constexpr Nanos kAskPeriod = 100 * kMillisecond;  // Users' waits ask so often whether to give up.
constexpr Nanos kLongestIdle = kSecond;
// After so many vain calls of DriveBriefly in a row one in kBriefRetry tries again.
constexpr int kBriefMisses = 4;
constexpr int kBriefRetry = 64;
// While frames come without a pause others that want the lock wait for so long.
constexpr Nanos kLongestHold = 200 * kMicrosecond;
// Who waits for receivers that have yet to be woken sleeps for so long (and the kernel's slack of
// 50 us) while others look: a few of them in turn.
constexpr Nanos kNap = 100 * kMicrosecond;
constexpr int kYieldSteps = 1000;  // Of SpinStep: a few of them yield the core.

thread_local const Driver* holding = nullptr;  // The driver whose lock this thread holds.

thread_local bool never_interrupted = false;  // WithoutInterrupts.

}  // namespace

Driver::WithoutInterrupts::WithoutInterrupts() : outer_(std::exchange(never_interrupted, true)) {}
Driver::WithoutInterrupts::~WithoutInterrupts() { never_interrupted = outer_; }

Driver::Driver(Deps deps)
    : mailbox_(deps.mailbox),
      core_(deps.core),
      frames_(deps.frames),
      host_(deps.host),
      of_user_(deps.of_user),
      interrupted_(std::move(deps.interrupted)) {
  mailbox_.PutBellsOff(clock_, static_cast<size_t>(std::max(UsableCores(), 2)));
}

Driver::Lock::Lock(Driver& driver) : driver_(driver), lock_(driver.mutex_, std::defer_lock) {
  Relock();
  ++driver_.inside_;
}

Driver::Lock::~Lock() {
  if (!lock_.owns_lock()) Relock();
  --driver_.inside_;
  Unlock();
}

void Driver::Lock::Unlock() {
  driver_.FinishEnded();
  if (driver_.core_.owner.references.CollectDropped()) [[unlikely]]
    driver_.FreeInBackground();
  if (driver_.mailbox_.HasPutOff()) [[unlikely]]
    driver_.RingInBackground();
  std::vector<std::shared_ptr<Waiter>> woken;
  if (!driver_.to_wake_.empty()) woken.swap(driver_.to_wake_);
  holding = outer_;
  lock_.unlock();
  for (const std::shared_ptr<Waiter>& waiter : woken) waiter->Wake();
}

void Driver::Lock::Relock() {
  if (!lock_.try_lock()) {
    driver_.lock_seekers_.fetch_add(1, std::memory_order_relaxed);
    lock_.lock();
    driver_.lock_seekers_.fetch_sub(1, std::memory_order_relaxed);
    driver_.lock_handovers_.fetch_add(1, std::memory_order_relaxed);
  }
  outer_ = std::exchange(holding, &driver_);
}

bool Driver::holds_lock() const { return holding == this; }

// The background thread goes on with what this turn has begun.
void Driver::FreeInBackground() {
  if (!std::exchange(background_frees_, true)) Knock(mailbox_.bell());
}

// Its caller may send no more.
void Driver::RingInBackground() {
  if (!std::exchange(background_rings_, true)) Knock(mailbox_.bell());
}

// The background thread: all bells that were put off are rung after a tick in which nobody has sent
// anything or polled. Else its poll, right after this, rings as many as there is room for.
void Driver::RingLate() {
  if (!background_rings_ || driving_) return;
  background_rings_ = mailbox_.HasPutOff();
  const uint64_t sent = mailbox_.counts().work_frames + mailbox_.counts().wakes;
  if (std::exchange(sent_, sent) == sent) mailbox_.RingAllPutOff();
}

void Driver::FinishEnded() {
  if (!core_.executor.has_ended()) return;
  core_.executor.FinishEnded();
  next_tick_ = std::min(next_tick_, core_.executor.argument_holds().NextTick());
  if (core_.executor.queued() != 0 && !core_.executor.is_serial())
    Recheck();  // Threads of its groups may run others.
}

bool Driver::PollRings() {
  bool handled = mailbox_.Poll(frames_, true) != 0;
  if (core_.has_own_frames()) [[unlikely]] {
    core_.HandleOwnFrames();
    handled = true;
  }
  if (core_.owner.actors.holds_back()) [[unlikely]]
    core_.owner.actors.PushHeldBack();
  if (!handled) return false;
  if (!core_.AfterFrames()) [[unlikely]]
    FreeInBackground();
  return true;
}

void Driver::Waiter::Wake() {
  {
    const std::lock_guard lock(mutex);
    woken = true;
  }
  changed.notify_one();
}

void Driver::Waiter::Sleep(Nanos timeout) {
  std::unique_lock lock(mutex);
  changed.wait_for(lock, std::chrono::nanoseconds(timeout), [this] { return woken; });
  woken = false;
}

// All look by themselves whether to go on.
void Driver::WakeWaiters() { to_wake_.insert(to_wake_.end(), waiters_.begin(), waiters_.end()); }

// Wakes those whose wait has ended.
void Driver::ServeWaiters() {
  std::erase_if(waiters_, [this](const std::shared_ptr<Waiter>& waiter) {
    waiter->finished = !waiter->drives && (*waiter->done)();
    if (waiter->finished) to_wake_.push_back(waiter);
    return waiter->finished;
  });
}

void Driver::Recheck() {
  ServeWaiters();
  CallDriver();
}

void Driver::CallDriver() {
  if (!driving_) return;
  look_again_ = true;
  RingBell(mailbox_.bell(), Lane::kControl);
}

void Driver::TakeToken() {
  driving_ = true;
  SetBell(mailbox_.bell(), BellState::kAwake);
}

// The holder of the token leaves it to another that waits, or to nobody.
void Driver::ReleaseToken() {
  if (waiters_.empty()) {
    driving_ = false;
    HandBellOver();
    return;
  }
  waiters_.back()->drives = true;
  to_wake_.push_back(waiters_.back());
}

// Sleeps as a Waiter; true: `done` has said yes.
bool Driver::WaitBeside(Lock& lock, absl::FunctionRef<bool()> done, Nanos timeout, bool* drives) {
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

void Driver::TickIfDue() {
  const Nanos now = clock_.Now();
  if (core_.owner.submitter.TakeBegan())
    next_tick_ = std::min(next_tick_, now + TaskSubmitter::kLongTask);
  if (core_.owner.actors.TakeAsked())
    next_tick_ = std::min(next_tick_, now + ActorSubmitter::kFirstAskAgain);
  if (now >= next_tick_) next_tick_ = std::clamp(core_.Tick(), now + kMillisecond, now + kHostTick);
  if (now - last_host_tick_ < kHostTick) return;
  last_host_tick_ = now;
  mailbox_.LookAtAll();
  host_.OnTick();
}

// Gives the lock to somebody who wants it: a mutex alone would let this thread have it again.
void Driver::YieldLock(Lock& lock) {
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

void Driver::End(const std::string& why) {
  mailbox_.RingAllPutOff();
  if (!std::exchange(ended_, true)) why_ended_ = why;
  WakeWaiters();
}

// Whoever yields to a busy thread waits for its whole time slice, where one that sleeps would have
// been given the core as soon as it was woken.
void Driver::NoteYield(Nanos begun, Nanos now) {
  if (now - begun > 2 * kSpin) no_spin_before_ = now + kSpinPause * (now - begun);
}

// Looks at the rings for a while from `begun` on, if frames come fast these days; true: some came,
// or Recheck was called.
bool Driver::Spin(Lock& lock, Nanos begun, Nanos deadline) {
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
      NoteYield(begun, now);
      if (PollRings()) {
        spin_misses_ = 0;
        brief_misses_ = 0;  // It would have been in time.
        return true;
      }
      if (std::exchange(look_again_, false)) return true;
      if (yields && now >= end) break;
    }
  }
  ++spin_misses_;
  return std::exchange(look_again_, false);
}

// Rings what was put off, as far as others have looked; true: some had to be left, and a nap has
// passed. The bell stays kAwake meanwhile: one reply is no reason to wake, several come.
bool Driver::RingAndNap(Lock& lock, Nanos deadline) {
  mailbox_.RingPutOff();
  if (!mailbox_.HasPutOff()) return false;
  const Nanos timeout = std::min(kNap, deadline - clock_.Now());
  if (timeout <= 0) return true;
  ++sleeps_;
  lock.Unlock();
  SleepWhile(mailbox_.bell(), BellState::kAwake, timeout);
  lock.Relock();
  return true;
}

// One step of waiting for the thread that holds the token: drain, or spin, or sleep on the bell.
// `now` is the time, as just read: a look at the clock costs a good part of a short wait. True: the
// sleep ended early and without a frame, by a signal perhaps.
bool Driver::Step(Lock& lock, Nanos now, Nanos deadline) {
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
  core_.Flush();
  if (Spin(lock, now, deadline)) return false;
  TickIfDue();
  if (mailbox_.HasPutOff() && RingAndNap(lock, deadline)) [[unlikely]]
    return false;
  bool roused = false;
  Bell& bell = mailbox_.bell();
  SetBell(bell, BellState::kAsleep);
  if (!HasFrames()) {
    Nanos timeout = std::min(deadline, next_tick_) - clock_.Now();
    if (mailbox_.HasQueued()) timeout = std::min(timeout, kMillisecond);
    if (timeout > 0) {
      ++sleeps_;
      lock.Unlock();
      const Nanos begun = clock_.Now();
      SleepOnBell(bell, timeout);
      const Nanos slept = clock_.Now() - begun;
      lock.Relock();
      roused = slept < timeout && !HasFrames();
      if (slept < kShortSleep && !roused) spin_misses_ = 0;
    }
  }
  SetBell(bell, BellState::kAwake);
  return roused;
}

absl::Status Driver::DriveUntil(Lock& lock, Nanos deadline, absl::FunctionRef<bool()> done,
                                WaitsFor waits_for) {
  if (done()) return absl::OkStatus();
  const bool in_task =
      !of_user_ && (waits_for == WaitsFor::kEnd || !current_call.origin.task.is_nil());
  const Nanos begun = clock_.Now();
  BlockedCalls::Wait wait(core_.blocked_calls, waits_for, in_task, current_call.hold, begun);
  // A thousand idle workers must cost next to nothing.
  const Nanos longest_slice = in_task || of_user_ ? kAskPeriod : kLongestSleep;
  absl::Status status;
  bool finished = false;
  bool drives = false;  // The token is this thread's.
  for (Nanos now = begun; !finished; now = clock_.Now()) {
    if (ended_) {
      status = end();
      break;
    }
    if (now >= deadline) {
      status = absl::DeadlineExceededError("the time limit has passed");
      break;
    }
    const Nanos slice = std::min({deadline, now + longest_slice, wait.Look(now)});
    if (drives || !driving_) {
      TakeToken();
      while (true) {
        const bool roused = Step(lock, now, slice);
        finished = done();
        if (!waiters_.empty()) ServeWaiters();
        if (finished || roused || ended_ || (in_task && current_call.is_cancelled())) break;
        now = clock_.Now();
        if (now >= slice) break;
      }
      drives = false;
      ReleaseToken();
    } else {
      finished = WaitBeside(lock, done, slice - now, &drives);
      // The others need somebody who drives: what follows comes after that.
      if (drives && !finished) continue;
    }
    if (finished) break;
    if (in_task && current_call.is_cancelled()) {
      status = absl::CancelledError("the call that waits was cancelled");
      break;
    }
    if (interrupted_ && !never_interrupted) {  // User code may run in it: the token was left above.
      lock.Unlock();
      const bool give_up = interrupted_();
      lock.Relock();
      if (give_up) {
        status = absl::CancelledError("interrupted");
        break;
      }
    }
  }
  if (drives) ReleaseToken();
  return status;
}

bool Driver::DriveBriefly(Lock& lock, absl::FunctionRef<bool()> done) {
  if (done()) return true;
  if (brief_misses_ >= kBriefMisses && ++brief_misses_ % kBriefRetry != 0) return false;
  const bool takes_token = !driving_;
  if (takes_token) TakeToken();
  bool finished = false;
  Nanos end = 0;
  for (int step = 0; !finished; ++step) {
    if (SpinStepYields(step, kSpinYieldEvery)) {
      const Nanos now = clock_.Now();
      if (end == 0) end = now + kSpin;
      if (now >= end || now < no_spin_before_ || ended_) break;
      lock.Unlock();
      SpinStep(step, kSpinYieldEvery);
      lock.Relock();
      NoteYield(now, clock_.Now());
    } else {
      SpinStep(step, kSpinYieldEvery);
    }
    if (PollRings()) {
      finished = done();
      if (!waiters_.empty()) ServeWaiters();
      if (!takes_token) CallDriver();  // It may wait for what has come just now.
    }
  }
  brief_misses_ = finished ? 0 : brief_misses_ + 1;
  if (takes_token) ReleaseToken();
  return finished;
}

void Driver::DriveOnce() {
  if (driving_) return;
  TakeToken();
  PollRings();
  ServeWaiters();
  ReleaseToken();
}

// No thread waits any more: from here on the background thread looks after the rings.
void Driver::HandBellOver() {
  // It looks soon anyway; the bell stays kAwake.
  if (background_ticks_.load(std::memory_order_relaxed)) return;
  SetBell(mailbox_.bell(), BellState::kAway);
  if (HasFrames() || mailbox_.HasQueued()) Knock(mailbox_.bell());
}

void Driver::RunBackground() {
  pthread_setname_np(pthread_self(), "sheaf-runtime");
  Bell& bell = mailbox_.bell();
  int quiet = 0;
  bool background_frees = false;
  Lock lock(*this);
  while (!stopping_) {
    const bool ticking = background_ticks_.load(std::memory_order_relaxed) || background_rings_;
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
    RingLate();
    background_frees_ = background_frees = core_.KeepHouse(ReferenceTable::kIdleSlice);
    TickIfDue();
    if (driving_) {
      // Its holder looks, and hands over when it leaves.
      background_ticks_.store(false, std::memory_order_relaxed);
      continue;
    }
    TakeToken();
    const bool any = PollRings();
    core_.Flush();
    ServeWaiters();
    if (!waiters_.empty()) {
      background_ticks_.store(false, std::memory_order_relaxed);
      ReleaseToken();
      continue;
    }
    driving_ = false;
    quiet = any || mailbox_.HasQueued() ? 0 : quiet + 1;
    if (quiet < kQuietTicks) {
      background_ticks_.store(true, std::memory_order_relaxed);
    } else {
      background_ticks_.store(false, std::memory_order_relaxed);
      HandBellOver();
    }
  }
}

void Driver::Stop() {
  stopping_ = true;
  End("Sheaf was shut down in this process");
  RingBell(mailbox_.bell(), Lane::kControl);
}

}  // namespace sheaf
