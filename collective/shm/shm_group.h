// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The memory that the ranks of one node share (rank_page.h), how a rank waits for the others, and
// what it does when one of them fails.
#pragma once

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "absl/functional/function_ref.h"
#include "base/mutex.h"
#include "collective/communicator.h"
#include "collective/process_identity.h"
#include "collective/rank_page.h"
#include "collective/rendezvous.h"
#include "collective/spinning.h"
#include "shm/child_mapping.h"
#include "shm/segment.h"

namespace sheaf {

// One thread's line of waiting: a bell that no one else sleeps on, and what it learned of spinning.
struct WaitLine {
  Bell* bell = nullptr;
  Spinning spinning{200 * kMicrosecond};
};

// What is waited for, for the deadline and for the words of an error.
struct Waiting {
  Operation operation;
  uint64_t sequence = 0;
  Nanos deadline = kForever;
  bool interruptible = false;  // The thread is the user's own.
};

class ShmGroup {
 public:
  // Meets the other ranks at `rendezvous`, which is used until this returns.
  // kDeadlineExceeded: a rank did not come; kUnimplemented: one is on another machine;
  // kAlreadyExists: another process claims this rank.
  static absl::StatusOr<std::unique_ptr<ShmGroup>> Form(const CommunicatorOptions& options,
                                                        Rendezvous& rendezvous);
  // Tells the others that this rank leaves. Does nothing in a forked child.
  ~ShmGroup();

  int rank() const { return options_.rank; }
  int world_size() const { return options_.world_size; }
  uint64_t epoch() const { return epoch_; }
  const CommunicatorOptions& options() const { return options_; }

  RankPage& own() const { return *page(rank()); }
  RankPage* page(int rank) const { return reinterpret_cast<RankPage*>(base(rank)); }
  // Where `rank` has staged chunk `chunk`, which all have not consumed.
  std::byte* stage_slot(int rank, uint64_t chunk) const {
    const uint64_t slot = page(rank)->progress.slot_of[chunk % kMaxSlots] % kMaxSlots;
    return base(rank) + kStageOffset + slot * kSlotBytes;
  }
  // Of the pair whose sender is `rank`.
  std::byte* pair_slot(int rank, int receiver, uint64_t chunk) const {
    return base(rank) + kPairOffset +
           (static_cast<uint64_t>(receiver) * kPairSlots + chunk % kPairSlots) * kPairSlotBytes;
  }
  std::byte* arena(int rank) const { return base(rank) + arena_offset_; }
  size_t arena_bytes() const { return options_.arena_bytes; }
  // Makes the pages of [offset, offset + bytes) of this rank's memory exist, so that a lack of
  // memory is an error here and no kill by the kernel where they are first used.
  // kResourceExhausted.
  absl::Status Reserve(size_t offset, size_t bytes) const;
  // Where `address` lies in this rank's arena; kPrivate: not, or not all of `bytes`.
  uint64_t OffsetOf(const void* address, size_t bytes) const;
  // This rank's mapping, for those who outlive the group.
  const std::shared_ptr<Mapping>& own_mapping() const { return members_[rank()].mapping; }

  // Wakes whoever of the other ranks waits in a collective operation. After each store.
  void RingAll() const {
    for (int peer = 0; peer < world_size(); ++peer) {
      if (peer != rank()) RingBell(page(peer)->bell, Lane::kControl);
    }
  }

  // Returns when `ready`, which `peer` makes true: a rank, or a function that says which it is now.
  // Looks at it without a pause for a while, then sleeps on the line's bell. The error of any
  // trouble has been told to all ranks.
  template <class Peer, class Ready>
  absl::Status Await(WaitLine& line, const Waiting& waiting, Peer peer, Ready ready) {
    if (ready() || line.spinning.Until(ready)) return absl::OkStatus();
    if constexpr (std::is_integral_v<Peer>) {
      return Sleep(line, waiting, [peer] { return peer; }, ready);
    } else {
      return Sleep(line, waiting, peer, ready);
    }
  }

  // OK, or the failure of a rank that entered what is waited for and gave up: the last to enter
  // would not notice.
  absl::Status CheckEntered(const Waiting& waiting);

  // Ends the group for all ranks, unless it has ended before; returns the failure that ended it.
  // `culprit`: a rank, or -1.
  absl::Status Fail(absl::StatusCode code, int culprit, absl::string_view text);
  // OK, or how the group ended, as far as this rank knows.
  absl::Status Failure() const;
  // Whether this process was forked from the one that formed the group.
  bool Forked() const;

 private:
  static constexpr Nanos kLookPeriod = 50 * kMillisecond;  // At trouble, while asleep.

  struct Member {
    std::shared_ptr<Mapping> mapping;
    ChildMapping in_children;  // Of others: nothing. Ends before the mapping.
    ProcessPresence process;
  };
  struct OwnMemory {
    Mapping mapping;
    UniqueFd fd;
    ChildMapping in_children;  // A copy: users' arrays lie here. Ends before the others.
  };
  class Formation;  // shm_formation.cc

  explicit ShmGroup(CommunicatorOptions options);
  std::byte* base(int rank) const { return bases_[rank]; }
  absl::Status Sleep(WaitLine& line, const Waiting& waiting, absl::FunctionRef<int()> peer,
                     absl::FunctionRef<bool()> ready);
  // OK, or why the wait for `peer` is over.
  absl::Status LookForTrouble(const Waiting& waiting, int peer, absl::FunctionRef<bool()> ready);
  absl::Status Adopt(const Waiting& waiting, int peer);
  absl::Status Late(const Waiting& waiting, int peer);
  std::string LastOperationOf(int peer) const;
  void RingAllLines() const;

  const CommunicatorOptions options_;
  uint64_t epoch_ = 0;
  size_t arena_offset_ = 0;
  const uint64_t fork_count_;  // When this was made.
  std::shared_ptr<OwnMemory> own_memory_;
  std::vector<Member> members_;
  std::vector<std::byte*> bases_;
  mutable Mutex failure_mutex_;
  absl::Status failure_ ABSL_GUARDED_BY(failure_mutex_);
  std::atomic<bool> failed_{false};
};

// "all_reduce (float32 x 1024, sum) #17".
std::string DescribeCall(const Operation& operation, uint64_t sequence);

}  // namespace sheaf
