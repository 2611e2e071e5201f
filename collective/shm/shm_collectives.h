// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The collective operations of one rank over shared memory; rank_page.h has the protocol.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "absl/status/statusor.h"
#include "collective/shm/shm_group.h"

namespace sheaf {

inline constexpr auto kEveryone = [](int) { return true; };

// One operation at a time: the caller holds a lock.
class ShmCollectives {
 public:
  explicit ShmCollectives(ShmGroup& group);
  // `operation` has passed CheckOperation, and is not of a pair.
  absl::Status Run(const Operation& operation, bool interruptible);

 private:
  // What the ranks said of themselves for the current operation.
  struct Part {
    std::byte* input = nullptr;   // nullptr: private.
    std::byte* output = nullptr;  // The same.
  };
  struct Slice {
    size_t begin, end;  // Elements.
    size_t size() const { return end - begin; }
  };
  // How the staged path moves an operation. Chunks are counted from 0 within it.
  struct Chunks {
    uint64_t count = 0;
    size_t elements = 0;  // Of a chunk, but for the last; of each block, where there are blocks.
  };
  // What this rank has to do with each chunk, and how many it has done it with.
  struct Done {
    bool stages, consumes, collects;
    uint64_t staged = 0;
    uint64_t consumed = 0;
    uint64_t collected = 0;
  };
  // A slot and the number of the chunk in it, among those of all operations.
  struct Filled {
    uint64_t chunk;
    uint8_t slot;
  };
  enum class Step : uint8_t { kNone, kStage, kConsume, kCollect };
  // Slots that this rank keeps filled while the others keep up: what it stages is in their reach
  // before they need it, and all of it in its cache.
  static constexpr uint64_t kNear = 4;

  absl::Status Enter(const Operation& operation);
  absl::Status Compare(const Operation& operation);
  absl::Status Locate(const Operation& operation);
  bool CanRunDirectly(const Operation& operation) const;
  void RunDirectly(const Operation& operation);
  absl::Status AwaitDone(const Operation& operation);
  absl::Status RunInChunks(const Operation& operation);
  // What can be done now, with at most `most` slots filled.
  Step NextStep(const Operation& operation, const Chunks& chunks, const Done& done, uint64_t most);
  // Waits until something can be done, and says what.
  absl::StatusOr<Step> AwaitStep(const Operation& operation, const Chunks& chunks,
                                 const Done& done);
  // Who makes that nothing can be; this rank: nobody does.
  int Blocker(const Operation& operation, const Chunks& chunks, const Done& done) const;

  Chunks ChunksOf(const Operation& operation) const;
  Slice ChunkSlice(const Operation& operation, const Chunks& chunks, uint64_t chunk) const;
  Slice RankSlice(size_t count, size_t element_bytes, int rank) const;
  bool Stages(const Operation& operation, int rank) const;
  bool Collects(const Operation& operation, int rank) const;
  // Takes back the slots that all have consumed, those of an operation that goes on up to what it
  // has collected; how many are filled then.
  uint64_t FilledSlots(uint64_t collected);
  // Who has not consumed the oldest chunk that is in a slot; this rank: nobody.
  int BehindOldestSlot() const;
  std::byte* TakeSlot(uint64_t chunk);
  void Stage(const Operation& operation, const Chunks& chunks, uint64_t chunk);
  void Consume(const Operation& operation, const Chunks& chunks, uint64_t chunk);
  void Collect(const Operation& operation, const Chunks& chunks, uint64_t chunk);
  // The first of the other ranks that `counts` and whose counter has not reached `value`; this
  // rank: there is none.
  template <class Counts>
  int Behind(std::atomic<uint64_t> RankProgress::* counter, uint64_t value, Counts counts) const {
    for (int peer = 0; peer < world_size_; ++peer) {
      if (peer == rank_ || !counts(peer)) continue;
      const std::atomic<uint64_t>& theirs = group_.page(peer)->progress.*counter;
      if (theirs.load(std::memory_order_acquire) < value) return peer;
    }
    return rank_;
  }
  // Waits until there is none.
  absl::Status AwaitAll(std::atomic<uint64_t> RankProgress::* counter, uint64_t value);
  void Store(std::atomic<uint64_t> RankProgress::* counter, uint64_t value);

  ShmGroup& group_;
  const int rank_;
  const int world_size_;
  const uint64_t slots_;
  WaitLine line_;
  Waiting waiting_;
  uint64_t sequence_ = 0;
  uint64_t chunks_before_ = 0;  // Of all operations before this one.
  bool first_chunk_staged_ = false;
  bool ahead_ = false;               // The others do not keep up.
  std::vector<uint8_t> free_slots_;  // The last became free last.
  std::deque<Filled> filled_slots_;  // In the order of their chunks.
  std::vector<Part> parts_;
  std::vector<const std::byte*> sources_;
  std::vector<std::byte*> targets_;
};

}  // namespace sheaf
