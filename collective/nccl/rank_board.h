// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What the ranks of a group tell each other while none of them waits in it: how far each has come,
// that it failed, and why. A rank whose data moves on a device looks here, so that it ends when
// another rank has died, was stopped or gave up.
//
// Each rank has a page of shared memory that it alone writes and all ranks of its machine read.
// Ranks of other machines have none here: their end is told by the connections that carry the data.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "collective/communicator.h"
#include "collective/process_identity.h"
#include "shm/segment.h"

namespace sheaf {

// Thread-safe, but for Leave.
class RankBoard {
 public:
  // A collective operation of `control`. `about`, up to 64 bytes, is what this rank tells all
  // others at once. Errors: those of `control`, and of making a segment.
  static absl::StatusOr<std::unique_ptr<RankBoard>> Form(Communicator& control,
                                                         absl::string_view about, Nanos timeout);
  // Tells the others that this rank leaves, if it did not fail. Not in a forked child.
  ~RankBoard();

  // What rank `rank` gave to Form, filled up with zeros.
  const std::string& about(int rank) const { return members_[rank].about; }

  // This rank has begun or finished the collective operation `sequence`.
  void Begin(uint64_t sequence);
  void Finish(uint64_t sequence);
  // Says that this rank failed. Only the first counts.
  void Fail(const absl::Status& status);

  // The failure that another rank told of, as this rank's own: it names the rank whose fault it
  // was. OK: none.
  absl::Status Failure() const;
  // kUnavailable: a rank died or left, with its number. OK: all are there, as far as is seen.
  absl::Status Absence() const;
  // The rank that keeps the others waiting in the collective operation `sequence`: one that is
  // stopped, else one that has not finished what came before, else the last to begin; none: it
  // cannot be told.
  std::optional<int> Late(uint64_t sequence) const;
  // "rank 1 (process 4711, which is stopped)".
  std::string Describe(int rank) const;

 private:
  struct Page {
    uint64_t magic;
    uint64_t nonce;
    std::atomic<uint64_t> begun;
    std::atomic<uint64_t> finished;
    std::atomic<uint32_t> state;  // A State; written after what is below.
    uint32_t code;                // absl::StatusCode.
    int32_t culprit;              // A rank, or -1.
    char text[1024];
  };
  enum State : uint32_t { kActive, kFailed, kLeft };
  static_assert(sizeof(Page) <= kPageBytes && std::atomic<uint64_t>::is_always_lock_free);

  struct Member {
    std::string about;
    std::optional<ProcessPresence> process;  // Of this machine only, as the next.
    Mapping mapping;
    Page* page = nullptr;
  };
  struct Card;

  RankBoard(int rank, int ranks) : rank_(rank), members_(static_cast<size_t>(ranks)) {}
  void Map(int rank, const Card& card, const std::string& machine);

  const int rank_;
  std::vector<Member> members_;
};

}  // namespace sheaf
