// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What leaves this process before it ends.
//
// References. It may be killed as soon as one has left: not before the value is in the store, where
// others find it. For that a process needs memory of the store, which the raylet grants within a
// millisecond, and later on a busy machine. What it has used up it asks for again only when the next
// value finds none.
//
// Calls. They end with their owner: an actor that ends in order waits for those that it has made.
//
// Under the driver's lock, which waits give back.
#pragma once

#include <span>
#include <utility>

#include "absl/status/status.h"
#include "base/clock.h"
#include "worker/core/process_core.h"
#include "worker/driver.h"
#include "worker/runtime.h"

namespace sheaf {

class Departures {
 public:
  // All outlive it.
  Departures(ProcessCore& core, Driver& driver, Clock& clock)
      : core_(core), driver_(driver), clock_(clock) {}

  // For the first small value of a process that owns something. Asks once.
  void Reserve() {
    if (!std::exchange(has_reserved_, true)) [[unlikely]]
      core_.store->Reserve();
  }
  // Waits until all small values whose references leave are in the store, or it is full.
  void Await(Driver::Lock& lock);
  // Waits, until `deadline` at most, while a call of this process is under way, if its end can come:
  // not for those of the actor that this process is, as it takes none any more. For constructors
  // only those wait who have called their actors.
  void AwaitCalls(Driver::Lock& lock, Nanos deadline);
  // The same as Await for those that `arguments` refer to. kUnavailable: it would have to wait, and the
  // thread is WithoutWaiting.
  absl::Status Store(Driver::Lock& lock, const ArgumentList& arguments);

 private:
  absl::Status StoreNested(Driver::Lock& lock, std::span<const ObjectHandle> nested);

  ProcessCore& core_;
  Driver& driver_;
  Clock& clock_;
  bool has_reserved_ = false;
  Nanos full_until_ = 0;  // The store, for all that is known.
};

inline absl::Status Departures::Store(Driver::Lock& lock, const ArgumentList& arguments) {
  Reserve();
  if (arguments.nested().empty()) [[likely]]
    return absl::OkStatus();
  return StoreNested(lock, arguments.nested());
}

}  // namespace sheaf
