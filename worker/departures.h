// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What leaves this process before it ends.
//
// References. It may be killed as soon as one has left: not before the value is in the store, where
// others find it. For that a process needs memory of the store, which the raylet grants within a
// millisecond, and later on a busy machine. What it has used up it asks for again only when the next
// value finds none.
//
// Calls. They end with their owner: an actor that ends in order waits for those that it has made
// until then.
//
// Under the driver's lock, which waits give back.
#pragma once

#include <functional>
#include <utility>

#include "absl/status/status.h"
#include "base/clock.h"
#include "worker/core/process_core.h"
#include "worker/driver.h"
#include "worker/owner/argument_codec.h"
#include "worker/runtime.h"

namespace sheaf {

class Departures {
 public:
  // All outlive it. `leave` ends this process in order; the calls of its exit functions have so long.
  Departures(ProcessCore& core, Driver& driver, Clock& clock, std::function<void(Nanos)> leave)
      : core_(core), driver_(driver), clock_(clock), leave_(std::move(leave)) {}

  // For the first small value of a process that owns something. Asks once.
  void Reserve() {
    if (!std::exchange(has_reserved_, true)) [[unlikely]]
      core_.store->Reserve();
  }
  // Waits until all small values whose references leave are in the store, or it is full.
  void Await(Driver::Lock& lock);
  // Waits, until `deadline` at most, for the calls that this process has made so far; less long while
  // none of them is with who executes it. Not for those that run in this process, nor for
  // constructors: who has called their actors waits for that.
  void AwaitCalls(Driver::Lock& lock, Nanos deadline);
  // The raylet would have this worker leave: now, if nothing that it has begun would end with it (no
  // call of its own is under way, no actor that it made lives; its objects are the raylet's then), or
  // `for_good`, once that is so. It answers at once, before any code of the user runs: until then the
  // raylet leases this worker to nobody, and if it leaves, never again.
  void OnAskedToLeave(bool for_good);
  void Tick();
  // No wait for calls goes on, or begins.
  void Hurry() { hurries_ = true; }
  // The same as Await for those that `arguments` refer to. kUnavailable: it would have to wait, and the
  // thread is WithoutWaiting.
  absl::Status Store(Driver::Lock& lock, const ArgumentList& arguments);

 private:
  absl::Status StoreNested(Driver::Lock& lock, const ArgumentList& arguments);
  bool StoreSmall(ObjectEntry& entry);
  bool IsFree() const;
  void Leave();
  void Answer(proto::Goodbye::Step step);

  ProcessCore& core_;
  Driver& driver_;
  Clock& clock_;
  const std::function<void(Nanos)> leave_;
  bool leaves_once_free_ = false;
  bool leaves_ = false;
  bool has_reserved_ = false;
  Nanos full_until_ = 0;  // The store, for all that is known.
  bool hurries_ = false;
};

inline absl::Status Departures::Store(Driver::Lock& lock, const ArgumentList& arguments) {
  Reserve();
  if (!ArgumentCodec::RefersToObjects(arguments)) [[likely]]
    return absl::OkStatus();
  return StoreNested(lock, arguments);
}

}  // namespace sheaf
