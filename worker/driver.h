// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// How the threads of a process share its core and its rings: one lock, and driving.
//
// Whoever waits drains the rings itself: driving is a token that one thread holds. The others that
// wait sleep, each as a Waiter: the holder asks for them whether they have what they wait for,
// wakes those that have, and gives one of the rest the token when it leaves. A brief look
// (DriveBriefly) drains them without the token, too: it asks for the Waiters, and calls the holder,
// which may wait for what was taken.
// When no thread waits (user code runs), the background thread looks after the rings: called for by
// the bell (kAway) while little happens, and once a millisecond while much does, so that a stream
// of replies costs no wake-up each.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "base/clock.h"
#include "shm/mailbox.h"
#include "worker/core/blocked_calls.h"
#include "worker/core/process_core.h"

namespace sheaf {

class Driver {
 public:
  // What else is to be looked after.
  class Host {
   public:
    virtual ~Host() = default;
    // Under the lock, a few times a second.
    virtual void OnTick() = 0;
  };
  // References outlive the driver.
  struct Deps {
    Mailbox& mailbox;
    ProcessCore& core;
    FrameHandler& frames;
    Host& host;
    bool of_user;  // The process is a driver: its threads are a user's own.
    // Asked by waits now and then, without the lock; true: the wait shall end. May be empty.
    std::function<bool()> interrupted;
  };
  explicit Driver(Deps deps);

  // While it lives, waits of this thread are not interrupted: who waits cannot say that it was.
  class WithoutInterrupts {
   public:
    WithoutInterrupts();
    ~WithoutInterrupts();
    WithoutInterrupts(const WithoutInterrupts&) = delete;
    WithoutInterrupts& operator=(const WithoutInterrupts&) = delete;

   private:
    const bool outer_;
  };

  // The lock, and what must follow a transaction: calls that ended inside it, wake-ups outside it.
  class Lock {
   public:
    explicit Lock(Driver& driver);
    ~Lock();
    void Unlock();  // Runs what follows.
    void Relock();
    void Yield() {  // Runs what follows, and goes on.
      Unlock();
      Relock();
    }
    std::unique_lock<std::mutex>& native() { return lock_; }

   private:
    Driver& driver_;
    std::unique_lock<std::mutex> lock_;
    const Driver* outer_;
  };
  bool holds_lock() const;  // This thread does.

  // All that follows is under the lock.

  // Waits, driving or beside the thread that drives. `done` is asked under the lock after each
  // change, on any thread, and not again once it has said yes. kDeadlineExceeded; kCancelled: the
  // call that this thread runs, or by `interrupted`; kAborted: End was called.
  absl::Status DriveUntil(Lock& lock, Nanos deadline, absl::FunctionRef<bool()> done,
                          WaitsFor waits_for = WaitsFor::kOthers);
  // Looks at the rings for some microseconds, whoever drives, if that was of use lately; true: `done`,
  // which is asked as by DriveUntil. For a thread that holds what others need, and would wait for it
  // longer than for the answer to a short call.
  bool DriveBriefly(Lock& lock, absl::FunctionRef<bool()> done);
  // Looks at the rings once, unless another thread drives.
  void DriveOnce();
  // Something other than a frame has changed: all who wait look again.
  void Recheck();
  // The same, of the thread that drives alone.
  void CallDriver();
  void WakeWaiters();
  // Answers the calls that have ended, before the end of the transaction.
  void FinishEnded();

  // All waits end in kAborted, and those that begin; with the first `why`.
  void End(const std::string& why);
  bool ended() const { return ended_; }
  absl::Status end() const { return absl::AbortedError(why_ended_); }

  // Of the background thread, which begins without the lock; returns after Stop.
  void RunBackground();
  // No thread waits for work any more.
  void Stop();
  bool stopping() const { return stopping_; }
  // No other thread has a Lock, whether it has taken it just now or not.
  bool is_alone() const { return inside_ == 1; }
  uint64_t sleeps() const { return sleeps_; }  // On the bell.

 private:
  // A thread that waits while another holds the token. It outlives its thread's wait, so that it
  // can be woken without the lock.
  struct Waiter {
    std::mutex mutex;
    std::condition_variable changed;
    bool woken = false;  // Guarded by `mutex`; what follows by the driver's lock.
    absl::FunctionRef<bool()>* done = nullptr;
    bool finished = false;  // `done` has said so.
    bool drives = false;    // The token is its own.
    void Wake();
    void Sleep(Nanos timeout);
  };

  bool Step(Lock& lock, Nanos now, Nanos deadline);
  bool PollRings();
  bool HasFrames() { return mailbox_.Pending(true) || core_.has_own_frames(); }
  bool Spin(Lock& lock, Nanos begun, Nanos deadline);
  void YieldLock(Lock& lock);
  void ServeWaiters();
  void TakeToken();
  void ReleaseToken();
  bool WaitBeside(Lock& lock, absl::FunctionRef<bool()> done, Nanos timeout, bool* drives);
  void HandBellOver();
  bool RingAndNap(Lock& lock, Nanos deadline);
  void NoteYield(Nanos begun, Nanos now);
  void RingInBackground();
  void RingLate();
  void TickIfDue();
  void FreeInBackground();

  MonotonicClock clock_;
  Mailbox& mailbox_;
  ProcessCore& core_;
  FrameHandler& frames_;
  Host& host_;
  const bool of_user_;
  const std::function<bool()> interrupted_;

  std::mutex mutex_;  // Guards the core, the rings and all below but what is atomic.
  std::atomic<int> lock_seekers_{0};         // Threads that found it taken.
  std::atomic<uint32_t> lock_handovers_{0};  // Times that one of them got it.
  Nanos yielded_at_ = 0;                     // The holder of the token gave it to one of them.
  int inside_ = 0;  // Locks, whether taken just now or not: threads that will touch this again.

  bool driving_ = false;                          // The token.
  bool look_again_ = false;                       // For its holder: not only frames matter.
  std::vector<std::shared_ptr<Waiter>> waiters_;  // Not finished, longest first.
  std::vector<std::shared_ptr<Waiter>> to_wake_;  // When the lock is free.
  Nanos next_tick_ = 0;
  Nanos last_host_tick_ = 0;
  uint64_t sleeps_ = 0;
  // Vain spins in a row; from kSpinMisses on, waits sleep at once (Step). A new process begins with
  // that: it sleeps until frames come fast.
  static constexpr int kSpinMisses = 8;
  int spin_misses_ = kSpinMisses;
  Nanos no_spin_before_ = 0;   // Others want the cores.
  uint32_t brief_misses_ = 0;  // Of DriveBriefly, in a row.

  std::atomic<bool> background_ticks_{false};  // The background thread looks each millisecond.
  bool background_frees_ = false;              // It goes on freeing.
  bool background_rings_ = false;              // It looks after bells that were put off.
  uint64_t sent_ = 0;                          // What was sent when it did so last.
  bool stopping_ = false;
  bool ended_ = false;
  std::string why_ended_;
};

}  // namespace sheaf
