// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The collective operations of one rank over shared memory; rank_page.h has the protocol.
#pragma once

#include <cstdint>
#include <vector>

#include "collective/shm/shm_group.h"

namespace sheaf {

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

  absl::Status Enter(const Operation& operation);
  absl::Status Compare(const Operation& operation);
  absl::Status Locate(const Operation& operation);
  bool CanRunDirectly(const Operation& operation) const;
  void RunDirectly(const Operation& operation);
  absl::Status AwaitDone(const Operation& operation);
  absl::Status RunInChunks(const Operation& operation);

  Chunks ChunksOf(const Operation& operation) const;
  Slice ChunkSlice(const Operation& operation, const Chunks& chunks, uint64_t chunk) const;
  Slice RankSlice(size_t count, size_t element_bytes, int rank) const;
  bool Stages(const Operation& operation, int rank) const;
  bool Collects(const Operation& operation, int rank) const;
  void Stage(const Operation& operation, const Chunks& chunks, uint64_t chunk);
  void Consume(const Operation& operation, const Chunks& chunks, uint64_t chunk);
  void Collect(const Operation& operation, const Chunks& chunks, uint64_t chunk);
  // Waits until the counter of each of the other ranks that `counts` has reached `value`.
  template <class Counts>
  absl::Status AwaitCounter(std::atomic<uint64_t> RankProgress::* counter, uint64_t value,
                            Counts counts);
  void Store(std::atomic<uint64_t> RankProgress::* counter, uint64_t value);

  ShmGroup& group_;
  const int rank_;
  const int world_size_;
  WaitLine line_;
  Waiting waiting_;
  uint64_t sequence_ = 0;
  uint64_t chunks_before_ = 0;  // Of all operations before this one.
  bool first_chunk_staged_ = false;
  std::vector<Part> parts_;
  std::vector<const std::byte*> sources_;
  std::vector<std::byte*> targets_;
};

}  // namespace sheaf
