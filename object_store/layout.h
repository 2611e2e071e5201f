// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What the bytes of the arena mean to every process that maps it, and who may write them when.
//
//   0             4 KiB                         data_offset (2 MiB aligned)          arena_bytes
//   | ArenaHeader | Slot[slot_count], in pages  | object bytes, granted in extents    |
//
// The arena is one memfd made by the raylet. Every process maps it once, read-only; what is granted
// to it it maps a second time, writable. Positions are offsets from byte 0, never pointers.
//
// Writers. ArenaHeader: the raylet, once, before anybody attaches. Slots: the raylet grants them in
// pages of 64; the holder writes the fields of its slots and the two transitions below marked L,
// the raylet all others (R). Everybody else only reads. Object bytes: the holder of the extent
// until it seals. What the raylet must be able to rely on (which slot and extent is whose,
// generations) it also keeps privately.
//
//   word = generation << 32 | state, one atomic: a reader sees state and generation of one moment.
//
//   kFree --L create--> kCreated --L seal--> kSealed --R free, spill, move--> kFreeing
//   kFree --L grant--> kIdle            kIdle --L create--> kCreated
//   kCreated --L abort--> kIdle         of a dedicated extent; of a small object: --> kFree
//   kFreeing --R--> kFree, gen + 1      or kIdle, gen + 1, where the holder keeps the extent
//   kFreeing --R--> kSealed             still pinned, so it is not spilled
//   kIdle --R take back--> kFree        same generation; the extent is no longer the holder's
//
//   kIdle: the slot and the dedicated extent bound to it are the holder's to use again, warm. Both
//   ways out of kIdle are compare-exchanges, so exactly one side gets the extent, without a message
//   and even while the holder is stopped.
//
// Publication. The holder writes bytes and fields, then stores kSealed (release). A reader that
// loads kSealed (acquire) with the generation of its location sees all of them. No reader acts on
// kCreated, so nobody ever sees partial bytes.
//
// Pins. A reader stores {slot, generation} in its own hazard list, then re-reads the slot's word;
// if that is not (generation, kSealed) it clears the hazard and asks the raylet. The raylet stores
// kFreeing, then scans all hazard lists, and lets go of the memory only when no list names the
// slot. These four accesses are seq_cst, so of a store-then-load pair on each side at least one
// sees the other: either the reader re-reads kFreeing, or the scan finds the hazard. (Seq_cst
// accesses rather than fences: the same instructions on x86, and ThreadSanitizer understands them.)
// hazard.pml is the model of this.
//
// Slot pages change hands whole. GrantPages gives a page in kFree; with kStoreSlotReturn the holder
// gives it back when all 64 slots are kFree and none is reserved for an extent that it asked for.
// Before it sends that it makes its own mapping of the page read-only, so once the raylet has read
// the frame nobody writes there: the raylet checks the words against its books, begins the next
// generation in each slot (store, seq_cst) and may grant the page to the next process, which reads
// the words after the grant (the frame orders them). No reader can be misled: generations are kept
// in the raylet's books for as long as it lives and only rise, so a location of before, or a hazard
// for it, names a generation that no later object has. A page with a pinned object is not wholly
// free: its slot leaves kFreeing only when no list names it. Crashes: the holder dies before it has
// sent: the page is among its grants, and the end of those takes it; after: it is not, and nothing
// happens to it, whoever has it by then.
//
// Crashes. Holder dies in kFree, kIdle or kCreated: the raylet takes slot and extent back; no
// reader has its location. In kSealed: the object stays as long as the raylet counts it as
// referenced; the slot is the journal. Reader dies between hazard and re-read, or while pinned: its
// list is dropped with its last mapping, so its pins end by themselves. A clearing store that never
// happened keeps the object until that moment, no longer. The raylet dies: its workers end, the
// memfd goes with the last of them.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/ids.h"
#include "shm/process_segment.h"

namespace sheaf {

inline constexpr uint32_t kNoSlot = UINT32_MAX;

// Where a sealed object lies. Travels in frames beside the ObjectId; a stale one is recognised,
// never followed: slot and generation together are used once.
struct ObjectLocation {
  NodeNumber node = 0;
  uint32_t slot = kNoSlot;
  uint32_t generation = 0;
  uint32_t attempt = 0;  // Of the task that made it; copies of one attempt are equal.

  bool known() const { return slot != kNoSlot; }
  friend bool operator==(const ObjectLocation&, const ObjectLocation&) = default;
};
static_assert(sizeof(ObjectLocation) == 16);

struct ArenaHeader {
  uint64_t magic;        // kArenaMagic; a change of any layout here changes it.
  uint64_t arena_bytes;  // Size of the memfd.
  uint64_t data_offset;
  uint32_t slot_count;  // A multiple of kSlotsPerPage.
  NodeNumber node;
};
inline constexpr uint64_t kArenaMagic = 0x5348'4541'4601'0001;
inline constexpr size_t kTableOffset = kPageBytes;

enum class SlotState : uint8_t { kFree = 0, kCreated = 1, kSealed = 2, kFreeing = 3, kIdle = 4 };

struct SlotWord {
  uint32_t generation = 0;
  SlotState state = SlotState::kFree;

  constexpr uint64_t packed() const {
    return uint64_t{generation} << 32 | static_cast<uint8_t>(state);
  }
  // An unknown state (a holder scribbled over its slot) equals none of the names.
  static constexpr SlotWord Unpack(uint64_t word) {
    return {static_cast<uint32_t>(word >> 32), static_cast<SlotState>(word & 0xff)};
  }
  friend constexpr bool operator==(const SlotWord&, const SlotWord&) = default;
};

struct alignas(64) Slot {  // One cache line, so that no two objects share one.
  std::atomic<uint64_t> word;
  ObjectId id;           // The fields from here on are constant from seal to free.
  uint64_t data_offset;  // In the arena; a multiple of kPayloadAlignment.
  uint64_t data_bytes;   // Of the payload. nested_count ids follow it, see NestedOffset.
  uint32_t attempt;
  uint32_t nested_count;  // References inside the value; they live as long as the object.
  uint32_t flags;         // The codec's; opaque to the store.
  uint32_t unused;
};
static_assert(sizeof(Slot) == 64 && offsetof(Slot, id) == 8 && offsetof(Slot, flags) == 48);
static_assert(std::atomic<uint64_t>::is_always_lock_free);  // A lock would be one process's own.

inline constexpr uint32_t kSlotsPerPage = kPageBytes / sizeof(Slot);

// The payload starts on a cache line, so that vector code may read it aligned.
inline constexpr uint64_t kPayloadAlignment = 64;
constexpr uint64_t AlignUp(uint64_t value, uint64_t alignment) {
  return (value + alignment - 1) & ~(alignment - 1);
}
// From the start of the payload.
constexpr uint64_t NestedOffset(uint64_t payload_bytes) { return AlignUp(payload_bytes, 16); }
// What one object takes of an extent. No overflow for payloads below 2^48 and 2^32 references.
constexpr uint64_t FootprintBytes(uint64_t payload_bytes, uint64_t nested_count) {
  return AlignUp(NestedOffset(payload_bytes) + nested_count * sizeof(ObjectId), kPayloadAlignment);
}
inline constexpr uint64_t kMaxPayloadBytes = uint64_t{1} << 47;

// From this footprint on an object has pages, and a grant, of its own.
inline constexpr uint64_t kDedicatedBytes = 1024 * 1024;
// Extents are multiples of this.
inline constexpr uint64_t kGranuleBytes = 64 * 1024;
inline constexpr uint64_t kHugePageBytes = 2 * 1024 * 1024;

// Whether an idle extent of `extent_bytes` is used again for a footprint: not if most of it would
// be wasted.
constexpr bool FitsIdleExtent(uint64_t extent_bytes, uint64_t footprint_bytes) {
  return footprint_bytes <= extent_bytes && extent_bytes / 2 <= footprint_bytes;
}

// Table and data of an arena that can hold `capacity_bytes` of objects (rounded up to a huge page).
struct ArenaShape {
  uint32_t slot_count;
  uint64_t data_offset;
  uint64_t arena_bytes;

  static constexpr ArenaShape For(uint64_t capacity_bytes) {
    // A slot for each page of data, within bounds; memory is taken only for pages of slots in use.
    uint64_t slots = capacity_bytes / kPageBytes;
    slots = slots < 16384 ? 16384 : slots > 4 * 1024 * 1024 ? 4 * 1024 * 1024 : slots;
    slots = AlignUp(slots, kSlotsPerPage);
    const uint64_t data = AlignUp(kTableOffset + slots * sizeof(Slot), kHugePageBytes);
    return {static_cast<uint32_t>(slots), data, data + AlignUp(capacity_bytes, kHugePageBytes)};
  }
};

// The hazard list of one process, at kHazardOffset of its segment. Written by that process alone.
struct HazardList {
  static constexpr uint64_t kCapacity = kHazardBytes / 8 - 8;
  // Entries from here on are 0. Raised (seq_cst) before the first of them is used.
  std::atomic<uint64_t> used;
  uint64_t unused[7];
  // 0, or EncodeHazard of a pinned slot. Seq_cst to set, release to clear.
  std::atomic<uint64_t> entries[kCapacity];
};
static_assert(sizeof(HazardList) == kHazardBytes);

constexpr uint64_t EncodeHazard(uint32_t slot, uint32_t generation) {
  return uint64_t{generation} << 32 | (slot + 1);
}
constexpr uint32_t HazardSlot(uint64_t hazard) { return static_cast<uint32_t>(hazard) - 1; }
constexpr uint32_t HazardGeneration(uint64_t hazard) { return static_cast<uint32_t>(hazard >> 32); }

}  // namespace sheaf
