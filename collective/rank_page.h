// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What the bytes of a rank's segment mean to the other ranks of its node. Each rank makes one
// memfd; all map all of them, read and write.
//
//   0          stage_offset        pair_offset            arena_offset    size
//   | RankPage | staging slots     | 2 slots per peer     | Allocate      |
//
// Who writes what. All of RankPage but the bells is written by its owner only, the bells by whoever
// rings. Pair slots are written by their owner only. Staging slots and arrays in the arena are
// written by their owner, and during an operation that names or stages them by the others too, each
// its own slice (all_reduce, reduce). Everything else is read only.
//
// Ordering. An operation has a sequence number, the same on all ranks. A rank enters it by filling
// calls[sequence % 2] and then storing `sequence` with release; readers load it with acquire. No
// rank enters n + 2 before all have entered n + 1, and so have finished comparing the records of n:
// two records are enough. Then either
//   direct (all arrays that others need lie in arenas): each rank reads and writes the arenas,
//     stores `done` = sequence with release, and returns when all whose memory it lent have; or
//   in chunks: a rank copies a chunk into its staging slot and stores `staged`; when all have, it
//     reduces or copies what it needs and stores `consumed`; of all_reduce and reduce it puts what
//     it reduced back into the slots that it read it from, where their owners find it when all
//     have consumed: lines that it holds anyway, so that fewer travel than with slots for results.
//     The two count chunks over all operations, alike on all ranks. Which of its slots a chunk is
//     in its owner chooses, and says in slot_of[chunk % kMaxSlots] before it stores `staged`; the
//     others read it after they have seen that, and for the last time before they store `consumed`.
//     A slot, and so its entry, is free again when its owner has found its results there and all
//     have consumed it; so no barrier stands at the end. Its owner takes the one that became free
//     last, whose lines are in its cache: ranks that run at the same time use three or four. One
//     whose others do not run now, as they share a core or compute beside, is ahead of them by all
//     of its slots before it must wait.
// After each store the writer rings the others (shm/doorbell.h: either it sees the sleeper, or the
// sleeper sees the store).
//
// Crash. A rank that dies leaves its counters where they were, in memory that lives as long as
// another rank maps it. Whoever waits for it looks at its pidfd between sleeps of 50 ms, writes
// what it found into its own `failure` and rings; the others find that when they look. Where it
// died makes no difference: before it entered, with half a chunk copied, or with half of the
// others' arrays written, the operation ends in an error on every rank that had not all it needs,
// and those arrays are undefined. Nothing has a name, so nothing is left when the last rank has
// ended.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "shm/doorbell.h"
#include "shm/segment.h"

namespace sheaf {

inline constexpr int kMaxLocalRanks = 128;
inline constexpr uint64_t kRankPageMagic = 0x5348'4541'4643'0003;  // "SHEAFC", layout version 3.
inline constexpr int kCallRecords = 16;
inline constexpr uint64_t kMaxSlots = 32;  // For staging; address space, memory for SlotsFor.
inline constexpr uint64_t kFewSlots = 4;
inline constexpr size_t kSlotBytes = 128 * 1024;
// How many of its slots a rank uses: those of a node have at most 64 MiB, of up to 64 ranks 32.
constexpr uint64_t SlotsFor(int world_size) {
  uint64_t slots = world_size == 1 ? kFewSlots : kMaxSlots;
  while (slots > kFewSlots && slots * static_cast<uint64_t>(world_size) > 8 * kMaxSlots) slots /= 2;
  return slots;
}
inline constexpr uint64_t kPairSlots = 2;
inline constexpr size_t kPairSlotBytes = 128 * 1024;
inline constexpr uint64_t kPrivate = UINT64_MAX;  // In place of an offset: not in the arena.

// One call of a collective operation, or one message of a pair.
struct alignas(64) CallRecord {
  std::atomic<uint64_t> sequence;  // From 1; stored last.
  uint64_t count;
  uint64_t input;   // Offset within the owner's arena, or kPrivate.
  uint64_t output;  // The same.
  uint8_t kind;     // CollectiveKind, DataType, ReduceOp.
  uint8_t type;
  uint8_t op;
  int32_t peer;
  // Of a pair: the chunks that were put into its slots, of all its messages.
  std::atomic<uint64_t> staged;
};
static_assert(sizeof(CallRecord) == 64);

// What a rank called, kept for the error messages of others. Racy on purpose: words, not decisions.
struct HistoryRecord {
  std::atomic<uint64_t> sequence;
  std::atomic<uint64_t> count;
  std::atomic<uint32_t> call;  // kind | type << 8 | op << 16.
  std::atomic<int32_t> peer;
};
static_assert(sizeof(HistoryRecord) == 24);

enum class RankState : uint32_t { kActive = 0, kLeft = 1, kFailed = 2 };

struct alignas(64) RankFailure {
  std::atomic<uint32_t> state;  // RankState; stored last.
  uint32_t code;                // absl::StatusCode.
  int32_t rank;                 // Whose fault it is; -1: nobody's.
  char text[500];               // Ends with a zero.
};
static_assert(sizeof(RankFailure) == 512);

struct alignas(64) RankProgress {
  std::atomic<uint64_t> staged;
  std::atomic<uint64_t> consumed;
  std::atomic<uint64_t> done;
  std::atomic<uint64_t> finished;  // The last operation that returned OK here.
  uint8_t slot_of[kMaxSlots];      // Beside `staged`: who reads that has the line.
};
static_assert(sizeof(RankProgress) == 64);

// The receiver's side of a pair.
struct alignas(64) ReceiveRecord {
  std::atomic<uint64_t> finished;  // Messages.
  std::atomic<uint64_t> taken;     // Chunks, of all messages.
};

struct alignas(64) RankPage {
  uint64_t magic;
  uint64_t nonce;  // Differs between any two segments.
  uint64_t arena_offset;
  uint64_t size_bytes;
  RankFailure failure;
  CallRecord calls[2];
  RankProgress progress;
  Bell bell;  // Of the thread that waits in a collective operation, or for the group to form.
  HistoryRecord history[kCallRecords];
  std::atomic<uint64_t>
      confirmed[kMaxLocalRanks];           // The nonce of each rank that this one has mapped.
  CallRecord sends[kMaxLocalRanks];        // By receiver.
  ReceiveRecord receives[kMaxLocalRanks];  // By sender.
  Bell send_bells[kMaxLocalRanks];         // Of the thread that waits for this receiver.
  Bell receive_bells[kMaxLocalRanks];      // Of the thread that waits for this sender.
};
static_assert(std::atomic<uint64_t>::is_always_lock_free);

inline constexpr size_t kStageOffset = RoundUpToPage(sizeof(RankPage));
inline constexpr size_t kPairOffset = kStageOffset + kMaxSlots * kSlotBytes;
constexpr size_t ArenaOffset(int world_size) {
  return kPairOffset + static_cast<size_t>(world_size) * kPairSlots * kPairSlotBytes;
}

}  // namespace sheaf
