// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The worker's half of raylet/objects/argument_ledger.h: which of its running calls have asked whether they
// may hold their arguments, which may, and which wait for others meanwhile.
//
// Only calls ask whose arguments in the store are a good part of it, alone or with those of the
// other calls that this process runs and that have not asked. All others pay one comparison. Short
// calls that have the same arguments one after the other ask once in kReuse: what the last of them
// held is kept for the next one, for kIdle at most.
//
// Guarded by the runtime's lock. No wait hangs here: rings to the raylet lose nothing, and its end
// is the worker's.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/container/btree_map.h"
#include "base/clock.h"
#include "base/transport.h"
#include "object_store/messages.h"
#include "worker/executor/execution.h"

namespace sheaf {

class ArgumentHolds {
 public:
  // Of the store: what a process may hold without a question. With a process for each core, all
  // together hold little of it.
  static constexpr uint64_t kPartOfStore = 256;

  static constexpr Nanos kReuse = 50 * kMillisecond;  // Then others have their turn.
  static constexpr Nanos kIdle = 10 * kMillisecond;

  ArgumentHolds(ProcessId self, Clock& clock, Transport& transport)
      : self_(self), clock_(clock), transport_(transport) {}
  // Until then nobody asks.
  void set_store_bytes(uint64_t capacity) { unasked_limit_ = capacity / kPartOfStore; }

  // `call` starts. True: its arguments may be pinned now. False: once IsAdmitted says so.
  bool Begin(CallExecution& call);
  bool IsAdmitted(const CallExecution& call) const;
  // The arguments of `call` are not pinned any more; of any call.
  void End(uint64_t ticket, uint64_t unasked_bytes);

  // kStoreHeld, from the raylet.
  void OnAdmitted(uint64_t ticket);

  // The call of that ticket (0: none that asked) waits for others, or goes on.
  void SetSuspended(uint64_t ticket, bool suspended);
  // The same of all calls: those of an event loop that has nothing to do.
  void SetAllSuspended(bool suspended);
  bool any() const { return !calls_.empty(); }

  // Ends what nobody has used for kIdle; to be called when NextTick says.
  void Tick();
  Nanos NextTick() const { return idle_ == 0 ? kForever : idle_since_ + kIdle; }

 private:
  struct Asked {
    bool admitted = false;
    bool suspended = false;
    Nanos admitted_at = 0;
    std::vector<ObjectId> objects;  // In order.
  };
  bool TakeIdle(CallExecution& call, std::span<const HeldObject> objects);
  void EndIdle();
  void Tell(uint64_t ticket, HoldStep step);
  void SetSuspended(uint64_t ticket, Asked& call, bool suspended);

  const ProcessId self_;
  Clock& clock_;
  Transport& transport_;
  uint64_t unasked_limit_ = UINT64_MAX;
  uint64_t unasked_bytes_ = 0;
  uint64_t last_ticket_ = 0;
  absl::btree_map<uint64_t, Asked> calls_;
  uint64_t idle_ = 0;  // The ticket of one that no call uses; 0: there is none.
  Nanos idle_since_ = 0;
};

}  // namespace sheaf
