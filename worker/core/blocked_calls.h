// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What follows when calls that run here wait: what has not started goes to other workers, the
// raylet may give their CPUs to others, and other calls come first in holding their arguments
// (raylet/objects/argument_ledger.h). Each of these follows once a wait has taken so long, and ends
// with the last wait that caused it. Guarded by the runtime's lock.
#pragma once

#include <cstdint>

#include "base/clock.h"
#include "base/transport.h"
#include "worker/executor/task_executor.h"

namespace sheaf {

// What a wait is for, and what follows in a call.
enum class WaitsFor : uint8_t {
  kOthers,     // All of that, at once or soon.
  kRoom,       // In the store. Not the last: more arguments would only take what room there is.
  kArguments,  // Its own, on their way. The same as for room, after kPatience.
  kAdmission,  // To hold these. The first after kPatience, the second after kAdmissionPatience:
               // who has such a call gets none of these CPUs (LeaseQueue::OnBlocked).
  kCalls,      // An event loop, for more of them. Only the last: those that it runs wait.
  kEnd,        // That of this process, whose calls are over: as kOthers, on whatever thread.
};

class BlockedCalls {
 public:
  // From then on a wait is worth a word: others may use the CPUs, or the room of the arguments.
  static constexpr Nanos kBlockedAfter = 2 * kMillisecond;
  // So long other calls wait behind one whose arguments are on their way; then they go elsewhere,
  // and the raylet may give its CPUs to others: to the task, perhaps, that makes an argument again.
  static constexpr Nanos kPatience = kSecond;
  // A call that waits so long to hold its arguments lends its CPUs: what those wait for that hold
  // theirs may need them.
  static constexpr Nanos kAdmissionPatience = 100 * kMillisecond;

  // `rings` reaches the raylet of `self`. Both outlive this.
  BlockedCalls(ProcessId self, Transport& rings, TaskExecutor& executor)
      : self_(self), rings_(rings), executor_(executor) {}

  // One wait of one thread; its end undoes what followed from it.
  class Wait {
   public:
    // `in_call`: the thread runs a call, which has `hold` of ArgumentHolds, or 0.
    Wait(BlockedCalls& blocked, WaitsFor waits_for, bool in_call, uint64_t hold, Nanos now)
        : blocked_(blocked),
          begun_(now),
          hold_(hold),
          waits_for_(waits_for),
          in_call_(in_call),
          may_suspend_(waits_for == WaitsFor::kCalls
                           ? blocked.executor_.argument_holds().any()
                           : in_call && waits_for == WaitsFor::kOthers && hold != 0) {
      Look(now);
    }
    Wait(const Wait&) = delete;
    Wait& operator=(const Wait&) = delete;
    ~Wait() {
      if (counted_ || unadmitted_ || suspended_) End();
    }
    // Does what is due now. Returns when it wants to be called next; kForever: not.
    Nanos Look(Nanos now) { return follows() ? LookAtAll(now) : kForever; }

   private:
    bool follows() const { return in_call_ || may_suspend_; }
    Nanos LookAtAll(Nanos now);
    void Suspend(bool suspended);
    void End();

    BlockedCalls& blocked_;
    const Nanos begun_;
    const uint64_t hold_;
    const WaitsFor waits_for_;
    const bool in_call_;
    const bool may_suspend_;
    bool counted_ = false;     // Among blocked_threads_.
    bool unadmitted_ = false;  // Among unadmitted_threads_.
    bool suspended_ = false;
  };

 private:
  void Tell(bool blocked);

  const ProcessId self_;
  Transport& rings_;
  TaskExecutor& executor_;
  int blocked_threads_ = 0;
  int unadmitted_threads_ = 0;  // They wait for admission, and lend CPUs.
  bool told_ = false;           // The raylet, that this process lends them.
};

}  // namespace sheaf
