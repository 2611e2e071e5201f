// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "collective/shm/shm_collectives.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/failpoint.h"
#include "base/status_macros.h"
#include "collective/call_record.h"
#include "collective/operation_arrays.h"
#include "collective/reduce_ops.h"

namespace sheaf {
ShmCollectives::ShmCollectives(ShmGroup& group)
    : group_(group),
      rank_(group.rank()),
      world_size_(group.world_size()),
      slots_(SlotsFor(group.world_size())),
      parts_(static_cast<size_t>(group.world_size())) {
  line_.bell = &group.own().bell;
  for (uint64_t slot = slots_; slot > 0; --slot) {
    free_slots_.push_back(static_cast<uint8_t>(slot - 1));
  }
}

absl::Status ShmCollectives::AwaitAll(std::atomic<uint64_t> RankProgress::* counter,
                                      uint64_t value) {
  const auto behind = [&] { return Behind(counter, value, kEveryone); };
  return group_.Await(line_, waiting_, behind, [&] { return behind() == rank_; });
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
    SHEAF_RETURN_IF_ERROR(group_.Await(
        line_, waiting_, [&] { return BehindOldestSlot(); },
        [&] { return FilledSlots(chunks_before_) < slots_; }));
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
        CopyBytes(output + static_cast<size_t>(peer) * bytes, input_of(peer), bytes);
      }
      return;
    case CollectiveKind::kAllToAll:
      for (int peer = 0; peer < world_size_; ++peer) {
        CopyBytes(output + static_cast<size_t>(peer) * bytes,
                  input_of(peer) + static_cast<size_t>(rank_) * bytes, bytes);
      }
      return;
    case CollectiveKind::kBroadcast:
      if (rank_ != operation.peer) CopyBytes(output, parts_[operation.peer].input, bytes);
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
  return AwaitAll(&RankProgress::done, sequence_);
}

bool ShmCollectives::Stages(const Operation& operation, int rank) const {
  return operation.kind != CollectiveKind::kBroadcast || rank == operation.peer;
}

bool ShmCollectives::Collects(const Operation& operation, int rank) const {
  return operation.kind == CollectiveKind::kAllReduce ||
         (operation.kind == CollectiveKind::kReduce && rank == operation.peer);
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

}  // namespace sheaf
