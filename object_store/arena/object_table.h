// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The raylet's own books about slots, granted extents and objects. What it must be able to rely on
// is kept here, in its private memory; what processes write into their slots is looked at, checked
// and copied, never trusted.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "absl/container/flat_hash_map.h"
#include "base/clock.h"
#include "base/ids.h"
#include "object_store/arena/store_host.h"
#include "object_store/layout.h"
#include "object_store/messages.h"

namespace sheaf {

// A granted range of the arena.
struct Extent {
  ExtentRange range;
  ProcessId holder;         // Nil: the store itself, for objects of the dead and restored ones.
  uint32_t slot = kNoSlot;  // Dedicated: the one slot whose object may lie here.
  uint32_t objects = 0;     // Known objects in it, freed but still viewed ones included.
  Nanos unused_since = 0;   // When `objects` became 0.
};

struct RoomRequest;  // room_queue.h

enum class ObjectPlace : uint8_t { kMemory, kDisk, kRestoring, kFreeing };

struct ObjectRecord {
  StoreObjectInfo info;
  ObjectPlace place = ObjectPlace::kMemory;
  uint32_t slot = kNoSlot;  // In memory: its slot, generation, extent and bytes.
  uint32_t generation = 0;
  Extent* extent = nullptr;
  ExtentRange bytes;                // Payload and nested references.
  SpillRecord disk;                 // file 0: no copy on disk. One may exist beside that in memory.
  bool writing = false;             // The disk thread reads its memory.
  uint32_t pins = 0;                // Blocks of it that are on their way to other nodes.
  bool freed = false;               // Out of the index while the disk thread works on it.
  uint64_t used = 0;                // When it was last known to be of use; smaller is longer ago.
  std::weak_ptr<RoomRequest> room;  // kRestoring: the room that it waits for.
  std::vector<ProcessId> waiters;   // Processes that wait for its restoration.
  std::vector<std::function<void(LookupOutcome)>> hooks;  // The raylet itself waits for it.
};

class ObjectTable {
 public:
  // Writes the header and an empty table. `arena` outlives this.
  ObjectTable(std::byte* arena, const ArenaShape& shape, NodeNumber node);

  // --- Slot pages. ---
  // Grants at most `pages` neighbouring pages; nullopt: the table is full. Processes do not get the
  // last sixteenth of it: copies and restored objects must find slots whatever they do.
  std::optional<SlotGrant> GrantPages(ProcessId holder, uint32_t pages);
  // The holder gives a page back. False: it is not its page, or not all of it is free.
  bool ReturnPage(ProcessId holder, uint32_t page);
  // The holder is dead: its pages become the store's own; slots without an object are free.
  void EndPageGrants(ProcessId holder);
  // Processes with a page in which no object is known.
  std::vector<ProcessId> HoldersOfEmptyPages() const;
  // A slot of the store's own. kNoSlot: the table is full.
  uint32_t TakeOwnSlot();
  // Nil for the store's own; nullopt: not granted to anybody, or no such slot.
  std::optional<ProcessId> HolderOf(uint32_t slot) const;
  bool Has(uint32_t slot) const { return slot < shape_.slot_count; }
  // Calls `visit` for the slots of `holder` (nil: of all processes) that hold no known object.
  void ForEachUnknown(ProcessId holder, const std::function<void(uint32_t)>& visit);
  void ForEachKnown(ProcessId holder, const std::function<void(ObjectRecord&)>& visit);

  // --- One slot. ---
  Slot& at(uint32_t slot) { return slots_[slot]; }
  SlotWord Word(uint32_t slot) const {
    return SlotWord::Unpack(slots_[slot].word.load(std::memory_order_seq_cst));
  }
  uint32_t GenerationOf(uint32_t slot) const { return Info(slot).generation; }
  ObjectRecord* RecordIn(uint32_t slot) const;
  void Bind(uint32_t slot, ObjectRecord* record);
  // `record` has got a slot of the store's own and its bytes lie in the arena: whoever looks into
  // the slot finds it from now on.
  void Publish(ObjectRecord& record);
  // Writes into the slot of `record`, which is in memory, what was learned from it, if it says
  // something else now; whether it did.
  bool Mend(const ObjectRecord& record);
  // Stores `state` with the slot's generation.
  void SetState(uint32_t slot, SlotState state);
  // kIdle -> kFree, if the holder has not just taken it.
  bool TakeBack(uint32_t slot);
  // The object in it is gone: the next generation begins, in `state`.
  void Release(uint32_t slot, SlotState state);
  // Scans: who is viewed.
  // The object that is viewed, if this scan sees it for the first time.
  ObjectRecord* MarkViewed(uint32_t slot, uint32_t generation, uint32_t scan);
  bool Viewed(uint32_t slot, uint32_t scan) const { return Info(slot).viewed == scan; }

  // --- Extents. ---
  Extent* AddExtent(ExtentRange range, ProcessId holder, uint32_t slot);
  void RemoveExtent(Extent* extent);
  // The one that holds all of `range`; null: none.
  Extent* FindExtent(ExtentRange range) const;
  Extent* DedicatedTo(uint32_t slot) const;
  // Keeps the count of objects in `extent`, and since when there are none.
  void AddObject(Extent& extent);
  void DropObject(Extent& extent, Nanos now);
  // The extents of `holder`; in order of offsets. `visit` may remove the extent it is given.
  void ForEachExtentOf(ProcessId holder, const std::function<void(Extent&)>& visit);
  // Extents of processes without a known object. As above.
  void ForEachUnused(const std::function<void(Extent&)>& visit);
  // Processes that hold an extent for many objects.
  absl::btree_set<ProcessId> SharedHolders() const;
  uint64_t granted_bytes() const { return granted_bytes_; }

  // --- Objects. ---
  std::shared_ptr<ObjectRecord> Find(ObjectId id) const;
  // `record.info.id` is not in the table.
  void Insert(const std::shared_ptr<ObjectRecord>& record);
  void Remove(ObjectRecord& record);
  // Moves it to memory or to disk in the totals below.
  void SetPlace(ObjectRecord& record, ObjectPlace place);
  uint64_t memory_payload_bytes() const { return memory_payload_bytes_; }
  uint64_t disk_payload_bytes() const { return disk_payload_bytes_; }
  // It was of use now.
  void Touch(ObjectRecord& record);
  // Those in memory, longest unused first; false from `visit` ends it. `visit` changes nothing.
  void ForEachLeastUsed(
      const std::function<bool(const std::shared_ptr<ObjectRecord>&)>& visit) const;
  const absl::btree_map<ObjectId, std::shared_ptr<ObjectRecord>>& objects() const {
    return objects_;
  }

 private:
  struct SlotInfo {
    uint32_t generation = 0;
    uint32_t viewed = 0;  // Number of the last scan that saw it viewed.
    ObjectRecord* record = nullptr;
  };
  struct Page {
    bool granted = false;
    ProcessId holder;
    uint32_t used = 0;   // Of the store's own: slots taken.
    uint32_t known = 0;  // Slots with a record.
    SlotInfo slots[kSlotsPerPage];
  };
  // All but the word.
  void WriteFields(const ObjectRecord& record);
  SlotInfo& Info(uint32_t slot) const {
    return pages_[slot / kSlotsPerPage]->slots[slot % kSlotsPerPage];
  }
  bool Known(uint32_t slot) const { return Has(slot) && pages_[slot / kSlotsPerPage] != nullptr; }
  bool IsOwn(const Page& page) const { return page.granted && page.holder == ProcessId{}; }
  void FreePage(uint32_t page);  // One of the store's own.

  const ArenaShape shape_;
  Slot* const slots_;
  std::vector<std::unique_ptr<Page>> pages_;  // By number; null: never used.
  uint32_t never_granted_ = 0;                // Pages from here on were never used.
  absl::btree_set<uint32_t> free_pages_;      // Used before, and free.
  absl::btree_map<ProcessId, absl::btree_set<uint32_t>> pages_of_;
  absl::btree_set<uint32_t> own_free_;  // Slots of the store's own pages.
  absl::btree_map<uint64_t, std::unique_ptr<Extent>> extents_;
  absl::flat_hash_map<uint32_t, Extent*> dedicated_;
  absl::btree_set<uint64_t> unused_;  // Offsets of extents that ForEachUnused visits.
  uint64_t granted_bytes_ = 0;
  absl::btree_map<ObjectId, std::shared_ptr<ObjectRecord>> objects_;
  absl::btree_map<uint64_t, ObjectRecord*> by_use_;  // In memory: what is on disk may be millions.
  uint64_t use_ = 0;
  uint64_t memory_payload_bytes_ = 0;
  uint64_t disk_payload_bytes_ = 0;
};

}  // namespace sheaf
