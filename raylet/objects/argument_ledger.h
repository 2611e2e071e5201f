// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// How much of the store the arguments of running calls hold. What a call has as arguments cannot be
// spilled while it runs, so calls whose arguments are a good part of the store ask before they hold
// them, and wait, holding nothing, while others hold too much: else calls that also put or return
// values end for want of room.
//
// The rules. An object counts once, however many calls hold it.
//   - In the order of asking, a call is admitted while all that is held stays within kShare of the
//     store; alone it is admitted in any case.
//   - What was admitted more than kPatience ago stands: nobody knows when it ends, so it is as
//     though it made the store smaller. All that is held may come to half of what it leaves, or
//     one call beside it to kFull of the store. (Half: it may want room itself, later on.)
//   - A call that waits for others (in get) is suspended. What it holds counts, but what it waits
//     for must be able to run: a call that was made by a process with a suspended one comes first,
//     and has as much room as if the suspended ones held nothing, up to kMost of the store; while
//     all that were admitted are suspended it is admitted in any case.
//   - While somebody waits in vain for room in the store no further call is admitted but those.
//   - Each wait has a bound. A call may wait for others in ways that nobody sees: in a thread of
//     its own, in a collective operation. So when nothing was admitted and nothing ended for
//     kPatience the first in the queue is admitted, and after kLongest even while the store is
//     short of room. At worst that is as without this ledger.
//
// Pure; one thread. Who asks is untrusted: no object counts for more than the store.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/flat_hash_map.h"
#include "base/clock.h"
#include "base/ids.h"
#include "object_store/messages.h"

namespace sheaf {

class ArgumentLedger {
 public:
  static constexpr uint64_t kShare = 70;  // Percent of the store.
  static constexpr uint64_t kMost = 85;
  static constexpr uint64_t kFull = 95;
  static constexpr Nanos kPatience = 10 * kSecond;
  static constexpr Nanos kLongest = 60 * kSecond;
  static constexpr size_t kMostOfOne = 1 << 16;  // Calls of one process.

  // A process and the number by which it names one of its calls.
  using Call = std::pair<ProcessId, uint64_t>;

  explicit ArgumentLedger(uint64_t capacity_bytes);

  // `call` was made by the process `caller` and wants to hold `objects`. A repeat is answered
  // again. False: the process has asked for too many.
  bool Ask(Call call, ProcessId caller, std::span<const HeldObject> objects, Nanos now);
  // It waits for others, or goes on. Unknown calls are no error here and below.
  void SetSuspended(Call call, bool suspended);
  // It holds nothing any more, or does not want to.
  void End(Call call, Nanos now);
  // All calls of a process that is dead.
  void Forget(ProcessId process, Nanos now);

  bool has_waiting() const { return !queue_.empty() || !again_.empty(); }
  // Those that may hold their arguments from now on; to be asked often. It looks at what waits
  // only after a change, or when it is time. `is_short`: somebody waits in vain for room in the
  // store.
  std::vector<Call> Admit(Nanos now, bool is_short);

  bool IsWaiting(ProcessId process) const;  // Some call of it.
  size_t waiting() const { return queue_.size(); }
  size_t size() const { return calls_.size(); }
  uint64_t held_bytes() const { return held_bytes_; }
  uint64_t looks() const { return looks_; }  // At what waits.

 private:
  struct Entry {
    ProcessId caller;
    uint64_t place = 0;      // In the queue; 0: it was admitted.
    uint64_t admission = 0;  // In fresh_; 0: it is not there.
    Nanos admitted_at = 0;
    bool suspended = false;
    bool stands = false;
    std::vector<ObjectId> objects;  // Each once.
  };
  struct Object {
    uint64_t bytes = 0;
    uint32_t entries = 0;   // That name it.
    uint32_t holders = 0;   // Of these admitted.
    uint32_t runners = 0;   // Of these not suspended.
    uint32_t standers = 0;  // Of the holders those that stand.
  };

  bool Fits(const Entry& entry, bool is_child) const;
  const Call* Choose(Nanos now, bool is_short) const;
  bool IsChild(const Entry& entry) const { return suspended_of_.contains(entry.caller); }
  void Hold(Entry& entry, Nanos now);
  void CountRunning(Entry& entry, bool runs);
  void CountStanding(Nanos now);
  Nanos NextLook(bool is_short) const;
  void Drop(const Call& call, Entry& entry, Nanos now);

  const uint64_t capacity_;
  absl::btree_map<Call, Entry> calls_;
  absl::btree_map<uint64_t, Call> queue_;  // By place.
  absl::flat_hash_map<ObjectId, Object> objects_;
  absl::flat_hash_map<ProcessId, size_t> calls_of_;
  absl::flat_hash_map<ProcessId, size_t> suspended_of_;  // Suspended calls of each process.
  absl::btree_map<uint64_t, Call> fresh_;  // Admitted and not standing, in that order.
  std::vector<Call> again_;                // Asked once more, though they were admitted.
  uint64_t last_place_ = 0;
  size_t admitted_ = 0;  // Calls,
  size_t running_ = 0;   // of these not suspended.
  uint64_t held_bytes_ = 0;
  uint64_t running_bytes_ = 0;
  uint64_t standing_bytes_ = 0;
  uint64_t last_admission_ = 0;
  Nanos changed_at_ = 0;  // The last that was admitted, or ended.
  Nanos first_at_ = 0;    // The first in the queue is so since then.
  bool changed_ = false;  // Since Admit looked: then with `was_short_`, and again at `look_at_`.
  bool was_short_ = false;
  Nanos look_at_ = 0;
  uint64_t looks_ = 0;
};

}  // namespace sheaf
