// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Operations whose arrays are not all in arenas: chunk by chunk through staging slots.
#include <algorithm>

#include "base/failpoint.h"
#include "base/status_macros.h"
#include "collective/call_record.h"
#include "collective/operation_arrays.h"
#include "collective/reduce_ops.h"
#include "collective/shm/shm_collectives.h"

namespace sheaf {

ShmCollectives::Chunks ShmCollectives::ChunksOf(const Operation& operation) const {
  const size_t blocks = InputBlocks(operation.kind, world_size_);
  const size_t bytes = std::max(kSlotBytes / blocks / kLineBytes, size_t{1}) * kLineBytes;
  Chunks chunks;
  chunks.elements = bytes / SizeOf(operation.type);
  chunks.count = (operation.count + chunks.elements - 1) / chunks.elements;
  return chunks;
}

ShmCollectives::Slice ShmCollectives::ChunkSlice(const Operation& operation, const Chunks& chunks,
                                                 uint64_t chunk) const {
  const size_t begin = chunk * chunks.elements;
  return {begin, std::min(begin + chunks.elements, operation.count)};
}

uint64_t ShmCollectives::FilledSlots(uint64_t collected) {
  while (!filled_slots_.empty() && filled_slots_.front().chunk < collected &&
         BehindOldestSlot() == rank_) {
    free_slots_.push_back(filled_slots_.front().slot);
    filled_slots_.pop_front();
  }
  return filled_slots_.size();
}

int ShmCollectives::BehindOldestSlot() const {
  if (filled_slots_.empty()) return rank_;
  return Behind(&RankProgress::consumed, filled_slots_.front().chunk + 1, kEveryone);
}

std::byte* ShmCollectives::TakeSlot(uint64_t chunk) {
  filled_slots_.push_back({chunk, free_slots_.back()});
  free_slots_.pop_back();
  group_.own().progress.slot_of[chunk % kMaxSlots] = filled_slots_.back().slot;
  return group_.stage_slot(rank_, chunk);
}

// What the others need of this rank's input. In a slot, blocks follow each other at full size.
void ShmCollectives::Stage(const Operation& operation, const Chunks& chunks, uint64_t chunk) {
  const size_t element = SizeOf(operation.type);
  const Slice slice = ChunkSlice(operation, chunks, chunk);
  std::byte* const slot = TakeSlot(chunks_before_ + chunk);
  const std::byte* const input = InputOf(operation);
  if (HasBlocks(operation.kind)) {
    for (int peer = 0; peer < world_size_; ++peer) {
      if (peer == rank_) continue;
      CopyBytes(slot + static_cast<size_t>(peer) * chunks.elements * element,
                input + (static_cast<size_t>(peer) * operation.count + slice.begin) * element,
                slice.size() * element);
    }
    return;
  }
  if (!IsReduction(operation.kind)) {
    return CopyBytes(slot, input + slice.begin * element, slice.size() * element);
  }
  const Slice mine = RankSlice(slice.size(), element, rank_);  // Nobody else reads it.
  CopyBytes(slot, input + slice.begin * element, mine.begin * element);
  CopyBytes(slot + mine.end * element, input + (slice.begin + mine.end) * element,
            (slice.size() - mine.end) * element);
}

void ShmCollectives::Consume(const Operation& operation, const Chunks& chunks, uint64_t chunk) {
  const size_t element = SizeOf(operation.type);
  const Slice slice = ChunkSlice(operation, chunks, chunk);
  const uint64_t slot = chunks_before_ + chunk;
  const std::byte* const input = InputOf(operation);
  std::byte* const output = OutputOf(operation);
  const size_t bytes = slice.size() * element;
  const size_t stride = chunks.elements * element;  // Of the blocks in a slot.
  const auto block = [&](size_t index) {            // Of this rank's own arrays.
    return (index * operation.count + slice.begin) * element;
  };
  sources_.clear();
  targets_.clear();
  switch (operation.kind) {
    case CollectiveKind::kAllReduce:
    case CollectiveKind::kReduce: {
      const Slice mine = RankSlice(slice.size(), element, rank_);
      for (int peer = 0; peer < world_size_; ++peer) {
        sources_.push_back(peer == rank_ ? input + (slice.begin + mine.begin) * element
                                         : group_.stage_slot(peer, slot) + mine.begin * element);
      }
      for (int peer = 0; peer < world_size_; ++peer) {
        if (!Collects(operation, peer)) continue;
        targets_.push_back(peer == rank_ ? output + (slice.begin + mine.begin) * element
                                         : group_.stage_slot(peer, slot) + mine.begin * element);
      }
      return Reduce(operation.type, operation.op, sources_, targets_, mine.size());
    }
    case CollectiveKind::kReduceScatter:
      for (int peer = 0; peer < world_size_; ++peer) {
        sources_.push_back(peer == rank_ ? input + block(static_cast<size_t>(rank_))
                                         : group_.stage_slot(peer, slot) +
                                               static_cast<size_t>(rank_) * stride);
      }
      targets_.push_back(output + slice.begin * element);
      return Reduce(operation.type, operation.op, sources_, targets_, slice.size());
    case CollectiveKind::kAllGather:
      for (int peer = 0; peer < world_size_; ++peer) {
        CopyBytes(output + block(static_cast<size_t>(peer)),
                  peer == rank_ ? input + slice.begin * element : group_.stage_slot(peer, slot),
                  bytes);
      }
      return;
    case CollectiveKind::kAllToAll:
      for (int peer = 0; peer < world_size_; ++peer) {
        CopyBytes(output + block(static_cast<size_t>(peer)),
                  peer == rank_
                      ? input + block(static_cast<size_t>(rank_))
                      : group_.stage_slot(peer, slot) + static_cast<size_t>(rank_) * stride,
                  bytes);
      }
      return;
    case CollectiveKind::kBroadcast:
      if (rank_ != operation.peer) {
        CopyBytes(output + slice.begin * element, group_.stage_slot(operation.peer, slot), bytes);
      }
      return;
    default:
      return;
  }
}

// The slices that the others reduced: each has put its own where this rank had staged it.
void ShmCollectives::Collect(const Operation& operation, const Chunks& chunks, uint64_t chunk) {
  const size_t element = SizeOf(operation.type);
  const Slice slice = ChunkSlice(operation, chunks, chunk);
  const std::byte* const slot = group_.stage_slot(rank_, chunks_before_ + chunk);
  std::byte* const output = OutputOf(operation) + slice.begin * element;
  const Slice mine = RankSlice(slice.size(), element, rank_);
  CopyBytes(output, slot, mine.begin * element);
  CopyBytes(output + mine.end * element, slot + mine.end * element,
            (slice.size() - mine.end) * element);
}

// A pipeline where all keep up: while chunk n is staged, n - 1 is consumed and n - 2 collected. What
// cannot be done yet is left for what can.
ShmCollectives::Step ShmCollectives::NextStep(const Operation& operation, const Chunks& chunks,
                                              const Done& done, uint64_t most) {
  const auto may_collect = [&] {
    return done.collects && done.collected < done.consumed &&
           Behind(&RankProgress::consumed, chunks_before_ + done.collected + 1, kEveryone) == rank_;
  };
  const auto may_consume = [&] {
    return done.consumed < done.staged &&
           Behind(
               &RankProgress::staged, chunks_before_ + done.consumed + 1,
               [&](int peer) { return Stages(operation, peer); }) == rank_;
  };
  const auto may_stage = [&] {
    return done.staged < chunks.count &&
           FilledSlots(chunks_before_ + (done.collects ? done.collected : done.staged)) < most;
  };
  if (done.consumed - done.collected >= 2 && may_collect()) return Step::kCollect;
  if (done.staged - done.consumed < 2 && may_stage()) return Step::kStage;
  if (may_consume()) return Step::kConsume;
  if (may_collect()) return Step::kCollect;
  return may_stage() ? Step::kStage : Step::kNone;
}

// Looks for a while whether the others keep up, and is ahead of them then.
absl::StatusOr<ShmCollectives::Step> ShmCollectives::AwaitStep(const Operation& operation,
                                                               const Chunks& chunks,
                                                               const Done& done) {
  Step step = NextStep(operation, chunks, done, ahead_ ? slots_ : kNear);
  if (step != Step::kNone) return step;
  const auto can = [&](uint64_t most) {
    step = NextStep(operation, chunks, done, most);
    return step != Step::kNone;
  };
  if (!ahead_ && line_.spinning.Until([&] { return can(kNear); })) return step;
  ahead_ = true;
  SHEAF_RETURN_IF_ERROR(group_.Await(
      line_, waiting_, [&] { return Blocker(operation, chunks, done); },
      [&] { return can(slots_); }));
  return step;
}

int ShmCollectives::Blocker(const Operation& operation, const Chunks& chunks,
                            const Done& done) const {
  int blocker = rank_;
  if (done.collects && done.collected < done.consumed) {
    blocker = Behind(&RankProgress::consumed, chunks_before_ + done.collected + 1, kEveryone);
  }
  if (blocker == rank_ && done.consumed < done.staged) {
    blocker = Behind(&RankProgress::staged, chunks_before_ + done.consumed + 1,
                     [&](int peer) { return Stages(operation, peer); });
  }
  if (blocker == rank_ && done.staged < chunks.count) {
    blocker = BehindOldestSlot();
  }
  return blocker;
}

absl::Status ShmCollectives::RunInChunks(const Operation& operation) {
  const Chunks chunks = ChunksOf(operation);
  Done done = {.stages = Stages(operation, rank_),
               .consumes = operation.kind != CollectiveKind::kBroadcast || rank_ != operation.peer,
               .collects = Collects(operation, rank_)};
  // Whoever has no part in a step has done it for all chunks.
  done.staged = done.stages ? (first_chunk_staged_ ? 1 : 0) : chunks.count;
  if (!done.stages) Store(&RankProgress::staged, chunks_before_ + chunks.count);
  if (!done.consumes) Store(&RankProgress::consumed, chunks_before_ + chunks.count);
  if (!done.consumes) done.consumed = chunks.count;
  const auto finished = [&] {
    return done.staged == chunks.count && done.consumed == chunks.count &&
           (!done.collects || done.collected == chunks.count);
  };
  while (!finished()) {
    SHEAF_ASSIGN_OR_RETURN(const Step step, AwaitStep(operation, chunks, done));
    switch (step) {
      case Step::kCollect:
        Collect(operation, chunks, done.collected++);
        ahead_ = false;
        break;
      case Step::kConsume:
        ahead_ = false;
        Consume(operation, chunks, done.consumed++);
        SHEAF_FAILPOINT("collective.consumed");
        Store(&RankProgress::consumed, chunks_before_ + done.consumed);
        break;
      default:
        Stage(operation, chunks, done.staged++);
        Store(&RankProgress::staged, chunks_before_ + done.staged);
        break;
    }
  }
  chunks_before_ = chunks_before_ + chunks.count;
  first_chunk_staged_ = false;
  return absl::OkStatus();
}

}  // namespace sheaf
