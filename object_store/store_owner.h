// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The raylet's side of the object store: leases extents and slot pages, keeps the index of objects,
// frees them when no view is left, spills and restores, and takes back what dead processes held.
// One thread (the raylet's loop); no call blocks, scans of hazard lists apart (1 ns an entry).
// Nothing that a process sends can end it.
//
// Pure over its constructor's interfaces, so tests/sim runs it. `disk` and `memory` run blocking
// work elsewhere; its results come back through `loop`.
//
//   store_owner.cc           the raylet's calls, attaching, deaths
//   store_owner_leases.cc    extents, slot pages, what to do when memory is short
//   store_owner_objects.cc   sealed, freed, looked up
//   store_owner_spill.cc     to disk and back
//   store_owner_copies.cc    copies that come from other nodes, and bytes that go there
//   object_table.h           slots and objects       extent_allocator.h   free ranges
//   population.h             memory ahead of need
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/executor.h"
#include "base/ids.h"
#include "base/transport.h"
#include "object_store/extent_allocator.h"
#include "object_store/layout.h"
#include "object_store/loop_gate.h"
#include "object_store/messages.h"
#include "object_store/object_table.h"
#include "object_store/population.h"
#include "object_store/spill.h"
#include "object_store/store_host.h"
#include "shm/segment.h"

namespace sheaf {

struct StoreOptions {
  NodeNumber node = 0;
  uint64_t idle_populated_bytes = 4 << 20;  // Kept ready on an idle node.
  // Warm memory that was not used for so long goes back to the machine.
  Nanos idle_after = 10 * kSecond;
  // Idle extents go from a process to the store after this time.
  Nanos take_back_after = 2 * kSecond;
  // How often freed objects that are still viewed are looked at.
  Nanos rescan_period = 20 * kMillisecond;
  Nanos learn_period = 5 * kMillisecond;  // All slots are looked at no more often than this.
  Nanos longest_wait = 60 * kSecond;      // Upper bound for ExtentRequest::wait_ns.
  int waits_for_slow_disk = 10;           // SpillProgress::EndOfWait.
  Nanos disk_retry_period = kSecond;      // After the disk was full.
  uint64_t spill_file_bytes =
      64 << 20;                       // Objects of one batch go into one file of about this size.
  Nanos restore_wait = 10 * kSecond;  // A restore fails when there is no room for so long.
  bool align_to_huge_pages = false;   // The kernel gives huge pages for shared memory.
};

struct StoreStats {
  uint64_t capacity_bytes = 0;
  uint64_t used_bytes = 0;       // Sealed objects and unsealed or idle leases.
  uint64_t object_bytes = 0;     // Payloads of objects in memory.
  uint64_t pinned_bytes = 0;     // Of objects that somebody views, as of the last scan.
  uint64_t spilled_bytes = 0;    // Objects that are on disk only.
  uint64_t populated_bytes = 0;  // Memory taken from the machine for the arena.
  uint64_t objects = 0;          // In memory or on disk.
  uint64_t leased_bytes = 0;     // In the hands of live processes.
  uint64_t waiting_requests = 0;
  // Since the start.
  uint64_t spills = 0;  // Objects written to disk.
  uint64_t restores = 0;
  uint64_t spill_written_bytes = 0, restored_bytes = 0;
  uint64_t disk_failures = 0;  // Writes and reads of spilled objects.
  uint64_t refusals = 0;
  uint64_t lost = 0;  // Objects whose copy on disk was damaged.
  uint64_t violations = 0;
  uint64_t copies = 0;  // Received from other nodes.
  uint64_t copied_bytes = 0;
};

struct Receiving;  // store_owner_copies.cc

class StoreOwner {
 public:
  struct World {
    const Clock& clock;
    Transport& transport;  // To the processes of this node.
    ArenaMemory& arena;
    SpillStorage& spill;
    Executor& loop;    // Runs on the thread that calls everything here.
    Executor& memory;  // Population and discarding.
    Executor& disk;    // Spilling and restoring.
    StoreObserver& observer;
  };

  // Everything in `world` outlives the owner; the executors may run its work, on arena and spill,
  // after it is gone. Writes the header and the table of the arena, which must have the size of an
  // ArenaShape. `capacity_bytes`: as given to ArenaShape::For.
  StoreOwner(StoreOptions options, World world, uint64_t capacity_bytes);
  ~StoreOwner();
  StoreOwner(const StoreOwner&) = delete;
  StoreOwner& operator=(const StoreOwner&) = delete;

  // --- Processes. ---
  // `segment`: that of the process (shm/process_segment.h), readable here; kept until OnViewsGone.
  // The raylet may attach itself as a client by its own id.
  void OnProcessAttached(ProcessId process, std::shared_ptr<Mapping> segment);
  // `process` is dead (its pidfd says so): unsealed extents, idle ones and free slots return at
  // once; what it sealed stays until it is freed or not adopted. Its pins stay, too: see
  // OnViewsGone.
  void OnProcessDied(ProcessId process);
  // No mapping of the dead `process` can exist any more (the end of its socket, which forked
  // children keep).
  void OnViewsGone(ProcessId process);
  // A frame with IsStoreFrame(kind).
  void OnFrame(ProcessId from, FrameKind kind, std::string_view body);
  // After a batch of frames: does at once what they asked for together. Cheap when there is
  // nothing.
  void EndTurn();
  // At least each 100 ms. Returns when it would be of use next.
  Nanos Tick();

  // --- Objects, for the raylet's books. ---
  // Sealed and not freed, in memory or on disk.
  bool Contains(ObjectId id) const { return table_.Find(id) != nullptr; }
  // kNotFound; kUnavailable: it is on disk, a lookup by a process restores it.
  absl::StatusOr<ObjectLocation> Locate(ObjectId id) const;
  absl::StatusOr<StoreObjectInfo> Describe(ObjectId id) const;
  // Objects whose ids name `owner`, in order.
  std::vector<ObjectId> ObjectsOf(ProcessId owner) const;
  // Calls `visit` for each object, in order of ids; for listings and sweeps.
  void ForEach(const std::function<void(const StoreObjectInfo&)>& visit) const;
  // Frees every copy of `id` here. Views keep their bytes.
  void Free(ObjectId id);
  // `owner` is dead and its last references are counted: keeps of its objects those for which
  // `still_referenced` is true and frees the others. Returns the kept ones: the raylet frees each
  // when its last borrower goes.
  std::vector<ObjectId> Adopt(ProcessId owner,
                              const std::function<bool(ObjectId)>& still_referenced);

  StoreStats Stats() const;
  // Since when the one who waits longest for memory waits for it in vain; kForever: nobody does.
  Nanos ShortSince() const;
  NodeNumber node() const { return options_.node; }
  size_t holds() const { return holds_; }  // Pinned::hold and the like, alive.

  // --- Other nodes (store_owner_copies.cc). ---
  // Answers `asker`, a process of any node, as a lookup does. `hint` helps to find what its writer
  // has not announced yet.
  void Locate(ProcessId asker, ObjectId id, const ObjectLocation& hint);
  // kStoreFree from a process of another node: only what it owns is freed.
  void OnRemoteFree(ProcessId from, std::span<const ObjectName> names);

  // The bytes of an object, for another node: payload and nested references, as they lie in memory.
  // They are neither freed nor moved while `hold` lives. Any thread may drop it, also after this
  // owner is gone; then the arena must outlive it.
  struct Pinned {
    StoreObjectInfo info;
    std::span<const char> bytes;
    std::shared_ptr<const void> hold;
  };
  // Calls `done` once, on the loop, maybe at once. kNotFound; kDataLoss: the disk lost it;
  // kResourceExhausted: it is on disk and there is no room to restore it.
  void Pin(ObjectId id, const ObjectLocation& hint,
           std::function<void(absl::StatusOr<Pinned>)> done);

  // A copy of another node's object that is to arrive.
  struct Arrival {
    ObjectId id;
    uint32_t attempt = 0;
    uint32_t flags = 0;
    uint64_t size_bytes = 0;  // Of the payload.
    uint32_t nested_count = 0;
    // Payload and nested references: what must be written before EndReceive.
    uint64_t bytes() const {
      return nested_count == 0 ? size_bytes
                               : NestedOffset(size_bytes) + nested_count * sizeof(ObjectId);
    }
  };
  // Finds room, as for an extent that a process asks for, and posts `ready` with it to the loop.
  // kResourceExhausted: none came in time, or the object is larger than the store.
  // kAlreadyExists: `id` is arriving already. Unless it got an error, the caller ends with
  // EndReceive or AbortReceive, when nobody writes into the room any more.
  void BeginReceive(const Arrival& arrival, Nanos wait,
                    std::function<void(absl::StatusOr<std::span<char>>)> ready);
  // Seals it. A sealed copy of this attempt or a later one wins; then the arrived bytes go.
  // kResourceExhausted: the table is full. The arrival is over in any case.
  absl::Status EndReceive(ObjectId id);
  // Also while it waits for room: `ready` is not called then.
  void AbortReceive(ObjectId id);
  // Keeps the room of an arrival, which has got it, as Pinned::hold does: across its end.
  std::shared_ptr<const void> HoldArriving(ObjectId id);

 private:
  struct Process {
    std::shared_ptr<Mapping> segment;
    bool alive = true;
    uint32_t slot_pages = 0;
    Nanos recalled_at = 0;
  };
  // Someone waits for memory: a process for an extent, or the store itself for a restored object.
  struct Waiting {
    ProcessId process;
    ExtentRequest request;
    std::shared_ptr<ObjectRecord> restore;  // Not null: the store itself waits.
    std::shared_ptr<Receiving> receive;     // The same, for a copy from another node.
    uint64_t bytes = 0;                     // Whole granules.
    Nanos since = 0;
    Nanos deadline = 0;
    bool populating = false;  // Its range is taken and being populated.
    bool gone = false;        // Cancelled, or its process is dead.
  };
  struct WaitingForSlots {
    ProcessId process;
    SlotRequest request;
    Nanos deadline = 0;
  };

  // store_owner_leases.cc
  void OnExtentRequest(ProcessId from, ExtentRequest request);
  void OnExtentCancel(ProcessId from, uint64_t request);
  void OnExtentReturn(ProcessId from, std::span<const ExtentRange> ranges);
  void OnSlotRequest(ProcessId from, const SlotRequest& request);
  void OnSlotReturn(ProcessId from, std::span<const SlotPages> ranges);
  void ServeSlots();
  // A slot for a copy or a restored object. kNoSlot: none now; pages are asked for.
  uint32_t TakeOwnSlot();
  // Asks those who have pages without objects to return them.
  void RecallSlots(Nanos now);
  bool HasFittingIdle(ProcessId process, uint64_t bytes);
  void ServeWaiting();
  bool TryServe(const std::shared_ptr<Waiting>& waiting);
  void OnPopulated(const std::shared_ptr<Waiting>& waiting, const ExtentAllocator::Taken& taken,
                   const absl::Status& outcome);
  void Grant(const Waiting& waiting, ExtentRange range);
  void Refuse(const Waiting& waiting, StoreRefusalReason reason);
  void RefuseRequest(ProcessId to, uint64_t request, StoreRefusalReason reason);
  void ExpireWaiting(Nanos now);
  void MakeRoom(uint64_t bytes);
  // Takes idle extents from processes until `enough` is free in one piece; those unused since
  // `unused_since` only.
  void TakeBackIdle(Nanos unused_since, uint64_t enough);
  // Asks for the empty shared extents of processes that have such since `empty_since`.
  void Recall(Nanos now, Nanos empty_since);
  // Asks for all shared extents that nobody writes into.
  void RecallAll(Nanos now);
  void EndLease(Extent* extent);
  // Takes over what `lessee` has sealed in its extents (or in those at `offsets` alone), each
  // object with the granules that it touches, and frees the rest of them.
  void SplitExtents(ProcessId lessee, const absl::btree_set<uint64_t>* offsets);

  // store_owner_objects.cc
  // The record of the sealed object in `slot`, made now if it is new. Null: none, or it is not
  // valid.
  std::shared_ptr<ObjectRecord> LearnSealed(uint32_t slot);
  void LearnUnannounced();
  void OnSealed(std::span<const SealedSlot> slots);
  void OnFree(ProcessId from, std::span<const ObjectName> names);
  void OnLookup(ProcessId from, std::span<const ObjectId> ids);
  void AnswerWaiters(ObjectRecord& record, LookupOutcome outcome);
  void BeginFree(const std::shared_ptr<ObjectRecord>& record, bool lost = false);
  void ScanHazards();
  void ScanFreeing();
  // Its slot is free again; its extent is the lessee's (`keep_extent`) or the store's.
  void ReleaseMemory(ObjectRecord& record, bool keep_extent);
  ObjectLocation LocationOf(const ObjectRecord& record) const;
  void Violation(ProcessId process, const std::string& what);

  // store_owner_copies.cc
  void ReceiveInto(const std::shared_ptr<Receiving>& arrival, ExtentRange range);
  // Room for one more object in an extent that small ones share; nullopt: there is none.
  std::optional<ExtentRange> TakeFromShelf(uint64_t footprint);
  // The same in `room`, which was allocated for it: its own, or (`shared`) as the new shelf.
  std::pair<Extent*, ExtentRange> TakeFrom(ExtentRange room, uint64_t footprint, bool shared);
  void DropFrom(Extent* extent);  // One object less; the extent may go.
  void LeaveShelf();
  void Announce(const std::shared_ptr<Receiving>& arrival, absl::StatusOr<std::span<char>> room);
  void GiveUpRoom(Receiving& arrival);
  void RefuseArrival(const std::shared_ptr<Receiving>& arrival);
  std::shared_ptr<const void> Hold(std::function<void()> release);
  Pinned PinNow(const std::shared_ptr<ObjectRecord>& record);
  // The object of that id, sealed, with the help of `hint`.
  std::shared_ptr<ObjectRecord> FindSealed(ObjectId id, const ObjectLocation& hint);
  void AnswerLookup(ProcessId asker, const std::shared_ptr<ObjectRecord>& record, ObjectId id,
                    std::vector<LocatedObject>* answers);

  // store_owner_spill.cc
  void SpillSome(uint64_t bytes);
  void WriteOut(std::vector<std::shared_ptr<ObjectRecord>> records);
  void OnSpilled(const std::vector<std::shared_ptr<ObjectRecord>>& records, uint64_t file,
                 const absl::StatusOr<std::vector<SpillRecord>>& written);
  void Evict(std::span<const std::shared_ptr<ObjectRecord>> records);
  void StartRestore(const std::shared_ptr<ObjectRecord>& record);
  static bool IsSmallRestore(const ObjectRecord& record);
  bool RestoreOnShelf(const std::shared_ptr<ObjectRecord>& record);  // False: no room there.
  void RestoreInto(const std::shared_ptr<ObjectRecord>& record, Extent* extent, ExtentRange range);
  void OnRestored(const std::shared_ptr<ObjectRecord>& record, ExtentRange range,
                  const absl::Status& outcome);
  void ForgetOnDisk(ObjectRecord& record);

  // Runs `done` on the loop after `work` ran on `where`, unless this owner is gone by then.
  void RunElsewhere(Executor& where, std::function<void()> work, std::function<void()> done);

  const StoreOptions options_;
  World world_;
  const ArenaShape shape_;
  ObjectTable table_;
  ExtentAllocator allocator_;
  Population population_;
  absl::btree_map<ProcessId, Process> processes_;
  std::deque<std::shared_ptr<Waiting>> waiting_;
  std::deque<WaitingForSlots> waiting_for_slots_;
  // Out of the index, not yet out of all views.
  std::vector<std::shared_ptr<ObjectRecord>> freeing_;
  bool new_frees_ = false;
  Nanos next_rescan_ = 0;
  absl::btree_map<ObjectId, std::shared_ptr<Receiving>> receiving_;
  // Where small copies and restored objects lie side by side; counts one object more.
  Extent* shelf_ = nullptr;
  uint64_t shelf_used_ = 0;                          // Of its bytes.
  absl::btree_map<uint64_t, uint32_t> spill_files_;  // Objects with a copy in each.
  uint64_t next_spill_file_ = 1;
  uint32_t scan_ = 0;               // Number of the last scan of all hazard lists.
  uint64_t pinned_bytes_ = 0;       // As that scan saw it.
  bool learned_ = false;            // All slots were looked at in this turn.
  std::vector<std::byte> scratch_;  // The frame in hand: its sender may write the original.
  uint64_t spilling_bytes_ = 0;     // Being written.
  SpillProgress disk_;
  Nanos next_spill_at_ = 0;  // Nothing more could be spilled: not before.
  Nanos next_learn_ = 0;
  Nanos memory_short_until_ = 0;  // The machine has no memory for unpopulated ranges.
  Nanos next_take_back_ = 0;
  Nanos next_recall_all_ = 0;
  Nanos next_recall_slots_ = 0;
  bool serving_ = false;      // ServeWaiting runs;
  bool serve_again_ = false;  // it was called meanwhile.
  StoreStats counts_;
  size_t holds_ = 0;
  std::shared_ptr<LoopGate> gate_;  // For those who drop holds.
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace sheaf
