// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "collective/shm/shm_collectives.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/failpoint.h"
#include "base/status_macros.h"
#include "collective/call_record.h"
#include "collective/reduce_ops.h"

namespace sheaf {
namespace {

constexpr size_t kLineBytes = 64;

// Input and output are world_size blocks, of which each rank stages all but its own.
bool HasBlocks(CollectiveKind kind) {
  return kind == CollectiveKind::kReduceScatter || kind == CollectiveKind::kAllToAll;
}
size_t InputBlocks(CollectiveKind kind, int world_size) {
  return HasBlocks(kind) ? static_cast<size_t>(world_size) : 1;
}
size_t OutputBlocks(CollectiveKind kind, int world_size) {
  return kind == CollectiveKind::kAllGather || kind == CollectiveKind::kAllToAll
             ? static_cast<size_t>(world_size)
             : 1;
}

void Copy(std::byte* to, const std::byte* from, size_t bytes) {
  if (to != from && bytes != 0) std::memcpy(to, from, bytes);
}

const std::byte* InputOf(const Operation& operation) {
  return static_cast<const std::byte*>(operation.input);
}
std::byte* OutputOf(const Operation& operation) {
  return static_cast<std::byte*>(operation.output);
}

}  // namespace

ShmCollectives::ShmCollectives(ShmGroup& group)
    : group_(group),
      rank_(group.rank()),
      world_size_(group.world_size()),
      parts_(static_cast<size_t>(group.world_size())) {
  line_.bell = &group.own().bell;
}

template <class Counts>
absl::Status ShmCollectives::AwaitCounter(std::atomic<uint64_t> RankProgress::* counter,
                                          uint64_t value, Counts counts) {
  for (int peer = 0; peer < world_size_; ++peer) {
    if (peer == rank_ || !counts(peer)) continue;
    const std::atomic<uint64_t>& theirs = group_.page(peer)->progress.*counter;
    SHEAF_RETURN_IF_ERROR(group_.Await(
        line_, waiting_, peer, [&] { return theirs.load(std::memory_order_acquire) >= value; }));
  }
  return absl::OkStatus();
}

void ShmCollectives::Store(std::atomic<uint64_t> RankProgress::* counter, uint64_t value) {
  (group_.own().progress.*counter).store(value, std::memory_order_release);
  group_.RingAll();
}

absl::Status ShmCollectives::Run(const Operation& operation, bool interruptible) {
  ++sequence_;
  waiting_.operation = operation;
  waiting_.sequence = sequence_;
  waiting_.deadline = Deadline(MonotonicNow(), operation.timeout);
  waiting_.interruptible = interruptible;
  SHEAF_RETURN_IF_ERROR(Enter(operation));
  if (operation.count != 0 && operation.kind != CollectiveKind::kBarrier) {
    SHEAF_RETURN_IF_ERROR(Locate(operation));
    if (CanRunDirectly(operation)) {
      RunDirectly(operation);
      SHEAF_FAILPOINT("collective.direct");
      Store(&RankProgress::done, sequence_);
      SHEAF_RETURN_IF_ERROR(AwaitDone(operation));
    } else {
      SHEAF_RETURN_IF_ERROR(RunInChunks(operation));
    }
  }
  group_.own().progress.finished.store(sequence_, std::memory_order_release);
  return absl::OkStatus();
}

// The record of this rank, its first chunk if it will surely be needed, then all others' records.
absl::Status ShmCollectives::Enter(const Operation& operation) {
  RankPage& page = group_.own();
  HistoryRecord& history = page.history[sequence_ % kCallRecords];
  history.call.store(static_cast<uint32_t>(operation.kind) |
                         static_cast<uint32_t>(operation.type) << 8 |
                         static_cast<uint32_t>(operation.op) << 16,
                     std::memory_order_relaxed);
  history.count.store(operation.count, std::memory_order_relaxed);
  history.peer.store(operation.peer, std::memory_order_relaxed);
  history.sequence.store(sequence_, std::memory_order_release);

  const size_t bytes = operation.count * SizeOf(operation.type);
  CallRecord& record = page.calls[sequence_ % 2];
  record.count = operation.count;
  record.input = group_.OffsetOf(operation.input, bytes * InputBlocks(operation.kind, world_size_));
  record.output =
      group_.OffsetOf(operation.output, bytes * OutputBlocks(operation.kind, world_size_));
  record.kind = static_cast<uint8_t>(operation.kind);
  record.type = static_cast<uint8_t>(operation.type);
  record.op = static_cast<uint8_t>(operation.op);
  record.peer = operation.peer;
  first_chunk_staged_ = record.input == kPrivate && operation.count != 0 && world_size_ > 1 &&
                        operation.kind != CollectiveKind::kBarrier && Stages(operation, rank_);
  if (first_chunk_staged_) {
    if (chunks_before_ >= kSlots) {
      SHEAF_RETURN_IF_ERROR(AwaitCounter(&RankProgress::consumed, chunks_before_ + 1 - kSlots,
                                         [](int) { return true; }));
    }
    Stage(operation, ChunksOf(operation), 0);
    page.progress.staged.store(chunks_before_ + 1, std::memory_order_release);
  }
  record.sequence.store(sequence_, std::memory_order_release);
  group_.RingAll();
  SHEAF_FAILPOINT("collective.entered");
  for (int peer = 0; peer < world_size_; ++peer) {
    const std::atomic<uint64_t>& theirs = group_.page(peer)->calls[sequence_ % 2].sequence;
    SHEAF_RETURN_IF_ERROR(group_.Await(line_, waiting_, peer, [&] {
      return theirs.load(std::memory_order_acquire) >= sequence_;
    }));
  }
  SHEAF_RETURN_IF_ERROR(Compare(operation));
  return group_.CheckEntered(waiting_);
}

absl::Status ShmCollectives::Compare(const Operation& operation) {
  const auto record = [&](int rank) -> const CallRecord& {
    return group_.page(rank)->calls[sequence_ % 2];
  };
  bool same = true;
  for (int peer = 0; peer < world_size_; ++peer) same &= Match(record(rank_), record(peer));
  if (same) return absl::OkStatus();
  // What most ranks called, of several the one of the lowest rank: the same for all who look.
  int usual = 0;
  int most = 0;
  for (int rank = 0; rank < world_size_; ++rank) {
    int alike = 0;
    for (int other = 0; other < world_size_; ++other) alike += Match(record(rank), record(other));
    if (alike > most) {
      most = alike;
      usual = rank;
    }
  }
  int culprit = 0;
  while (Match(record(usual), record(culprit))) ++culprit;
  return group_.Fail(absl::StatusCode::kInvalidArgument, culprit,
                     absl::StrCat("rank ", culprit, culprit == rank_ ? " (this one)" : "",
                                  " called ", DescribeCall(OperationOf(record(culprit)), sequence_),
                                  " where rank ", usual, usual == rank_ ? " (this one)" : "",
                                  " called ", Describe(OperationOf(record(usual))),
                                  rank_ == culprit || rank_ == usual
                                      ? std::string()
                                      : absl::StrCat("; this rank called ", Describe(operation)),
                                  ": all ranks call the same operations in the same order"));
}

// Where the arrays of all ranks are; what they say is checked first.
absl::Status ShmCollectives::Locate(const Operation& operation) {
  const size_t bytes = operation.count * SizeOf(operation.type);
  for (int peer = 0; peer < world_size_; ++peer) {
    const CallRecord& record = group_.page(peer)->calls[sequence_ % 2];
    const auto place = [&](uint64_t offset, size_t size) -> std::byte* {
      if (offset > group_.arena_bytes() || size > group_.arena_bytes() - offset) return nullptr;
      return group_.arena(peer) + offset;
    };
    Part& part = parts_[peer];
    part.input = place(record.input, bytes * InputBlocks(operation.kind, world_size_));
    part.output = place(record.output, bytes * OutputBlocks(operation.kind, world_size_));
    if ((record.input != kPrivate && part.input == nullptr) ||
        (record.output != kPrivate && part.output == nullptr)) {
      return group_.Fail(absl::StatusCode::kInternal, peer,
                         absl::StrCat("rank ", peer, " named an array outside of its arena"));
    }
  }
  return absl::OkStatus();
}

bool ShmCollectives::CanRunDirectly(const Operation& operation) const {
  if (world_size_ == 1) return true;
  for (int peer = 0; peer < world_size_; ++peer) {
    const Part& part = parts_[peer];
    const bool is_root = IsRooted(operation.kind) && peer == operation.peer;
    if (Stages(operation, peer) && part.input == nullptr) return false;
    if (operation.kind == CollectiveKind::kAllReduce && part.output == nullptr) return false;
    if (operation.kind == CollectiveKind::kReduce && is_root && part.output == nullptr) {
      return false;
    }
  }
  return true;
}

void ShmCollectives::RunDirectly(const Operation& operation) {
  const size_t element = SizeOf(operation.type);
  const size_t bytes = operation.count * element;
  const std::byte* const input = InputOf(operation);
  std::byte* const output = OutputOf(operation);
  const auto input_of = [&](int peer) -> const std::byte* {
    return peer == rank_ ? input : parts_[peer].input;
  };
  sources_.clear();
  targets_.clear();
  switch (operation.kind) {
    case CollectiveKind::kAllReduce:
    case CollectiveKind::kReduce: {
      const Slice slice = RankSlice(operation.count, element, rank_);
      for (int peer = 0; peer < world_size_; ++peer) {
        sources_.push_back(input_of(peer) + slice.begin * element);
        if (!Collects(operation, peer)) continue;
        targets_.push_back((peer == rank_ ? output : parts_[peer].output) + slice.begin * element);
      }
      return Reduce(operation.type, operation.op, sources_, targets_, slice.size());
    }
    case CollectiveKind::kReduceScatter:
      for (int peer = 0; peer < world_size_; ++peer) {
        sources_.push_back(input_of(peer) + static_cast<size_t>(rank_) * bytes);
      }
      targets_.push_back(output);
      return Reduce(operation.type, operation.op, sources_, targets_, operation.count);
    case CollectiveKind::kAllGather:
      for (int peer = 0; peer < world_size_; ++peer) {
        Copy(output + static_cast<size_t>(peer) * bytes, input_of(peer), bytes);
      }
      return;
    case CollectiveKind::kAllToAll:
      for (int peer = 0; peer < world_size_; ++peer) {
        Copy(output + static_cast<size_t>(peer) * bytes,
             input_of(peer) + static_cast<size_t>(rank_) * bytes, bytes);
      }
      return;
    case CollectiveKind::kBroadcast:
      if (rank_ != operation.peer) Copy(output, parts_[operation.peer].input, bytes);
      return;
    default:
      return;
  }
}

// Until the others no longer use this rank's arrays.
absl::Status ShmCollectives::AwaitDone(const Operation& operation) {
  if (operation.kind == CollectiveKind::kBroadcast && rank_ != operation.peer) {
    return absl::OkStatus();
  }
  return AwaitCounter(&RankProgress::done, sequence_, [](int) { return true; });
}

bool ShmCollectives::Stages(const Operation& operation, int rank) const {
  return operation.kind != CollectiveKind::kBroadcast || rank == operation.peer;
}

bool ShmCollectives::Collects(const Operation& operation, int rank) const {
  return operation.kind == CollectiveKind::kAllReduce ||
         (operation.kind == CollectiveKind::kReduce && rank == operation.peer);
}

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

// The part of `count` elements that `rank` reduces; whole cache lines but for the last.
ShmCollectives::Slice ShmCollectives::RankSlice(size_t count, size_t element_bytes,
                                                int rank) const {
  const size_t unit = kLineBytes / element_bytes;
  const size_t units = (count + unit - 1) / unit;
  const size_t each =
      (units + static_cast<size_t>(world_size_) - 1) / static_cast<size_t>(world_size_) * unit;
  const size_t begin = std::min(static_cast<size_t>(rank) * each, count);
  return {begin, std::min(begin + each, count)};
}

// What the others need of this rank's input. In a slot, blocks follow each other at full size.
void ShmCollectives::Stage(const Operation& operation, const Chunks& chunks, uint64_t chunk) {
  const size_t element = SizeOf(operation.type);
  const Slice slice = ChunkSlice(operation, chunks, chunk);
  std::byte* const slot = group_.stage_slot(rank_, chunks_before_ + chunk);
  const std::byte* const input = InputOf(operation);
  if (HasBlocks(operation.kind)) {
    for (int peer = 0; peer < world_size_; ++peer) {
      if (peer == rank_) continue;
      Copy(slot + static_cast<size_t>(peer) * chunks.elements * element,
           input + (static_cast<size_t>(peer) * operation.count + slice.begin) * element,
           slice.size() * element);
    }
    return;
  }
  if (!IsReduction(operation.kind)) {
    return Copy(slot, input + slice.begin * element, slice.size() * element);
  }
  const Slice mine = RankSlice(slice.size(), element, rank_);  // Nobody else reads it.
  Copy(slot, input + slice.begin * element, mine.begin * element);
  Copy(slot + mine.end * element, input + (slice.begin + mine.end) * element,
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
        Copy(output + block(static_cast<size_t>(peer)),
             peer == rank_ ? input + slice.begin * element : group_.stage_slot(peer, slot), bytes);
      }
      return;
    case CollectiveKind::kAllToAll:
      for (int peer = 0; peer < world_size_; ++peer) {
        Copy(output + block(static_cast<size_t>(peer)),
             peer == rank_ ? input + block(static_cast<size_t>(rank_))
                           : group_.stage_slot(peer, slot) + static_cast<size_t>(rank_) * stride,
             bytes);
      }
      return;
    case CollectiveKind::kBroadcast:
      if (rank_ != operation.peer) {
        Copy(output + slice.begin * element, group_.stage_slot(operation.peer, slot), bytes);
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
  Copy(output, slot, mine.begin * element);
  Copy(output + mine.end * element, slot + mine.end * element, (slice.size() - mine.end) * element);
}

// A pipeline: while chunk n is staged, n - 1 is reduced and n - 2 collected.
absl::Status ShmCollectives::RunInChunks(const Operation& operation) {
  const Chunks chunks = ChunksOf(operation);
  const uint64_t base = chunks_before_;
  const bool stages = Stages(operation, rank_);
  const bool collects = Collects(operation, rank_);
  const bool consumes = operation.kind != CollectiveKind::kBroadcast || rank_ != operation.peer;
  const auto everyone = [](int) { return true; };
  const auto stagers = [&](int peer) { return Stages(operation, peer); };
  // The last use of the slot that chunk `index` of all takes has been counted.
  const auto earlier = [&](uint64_t index) { return index < kSlots ? 0 : index + 1 - kSlots; };
  // Whoever has no part in a step has done it for all chunks.
  if (!stages) Store(&RankProgress::staged, base + chunks.count);
  if (!consumes) Store(&RankProgress::consumed, base + chunks.count);
  for (uint64_t turn = 0; turn < chunks.count + 2; ++turn) {
    if (stages && turn < chunks.count && (turn > 0 || !first_chunk_staged_)) {
      SHEAF_RETURN_IF_ERROR(AwaitCounter(&RankProgress::consumed, earlier(base + turn), everyone));
      Stage(operation, chunks, turn);
      Store(&RankProgress::staged, base + turn + 1);
    }
    if (consumes && turn >= 1 && turn - 1 < chunks.count) {
      const uint64_t chunk = turn - 1;
      SHEAF_RETURN_IF_ERROR(AwaitCounter(&RankProgress::staged, base + chunk + 1, stagers));
      Consume(operation, chunks, chunk);
      SHEAF_FAILPOINT("collective.consumed");
      Store(&RankProgress::consumed, base + chunk + 1);
    }
    if (collects && turn >= 2) {
      const uint64_t chunk = turn - 2;
      SHEAF_RETURN_IF_ERROR(AwaitCounter(&RankProgress::consumed, base + chunk + 1, everyone));
      Collect(operation, chunks, chunk);
    }
  }
  chunks_before_ = base + chunks.count;
  first_chunk_staged_ = false;
  return absl::OkStatus();
}

}  // namespace sheaf
