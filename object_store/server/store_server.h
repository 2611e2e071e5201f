// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The raylet's side of the object store: grants extents and slot pages, keeps the index of objects,
// frees them when no view is left, spills and restores, and takes back what dead processes held.
// One thread (the raylet's loop); no call blocks, scans of hazard lists apart (1 ns an entry).
// Nothing that a process sends can end it.
//
// Pure over its constructor's interfaces, so tests/sim runs it. `disk` and `memory` run blocking
// work elsewhere; its results come back through `loop`.
//
// StoreServer itself is the switch between parts that own their state:
//
//   books     object_table.h      slots, extents, objects     extent_allocator.h  free ranges
//             extent_ledger.h     how extents end             shelf.h             small objects
//             spill_files.h       files on disk
//   views     store_processes.h   whose views there are       hazard_scan.h       what they name
//             freed_objects.h     freed, not yet out of views
//   objects   object_index.h      sealed, found, freed        arrivals.h          from other nodes
//   disk      spill_scheduler.h   there                       restorer.h          and back
//             range_reader.h      parts of what stays there
//   room      room_queue.h        who waits for memory        slot_queue.h        for slots
//             recalls.h           what processes can spare    population.h        ahead of need
//             refusals.h          what is said at last
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/executor.h"
#include "base/ids.h"
#include "base/transport.h"
#include "object_store/arena/extent_allocator.h"
#include "object_store/arena/extent_ledger.h"
#include "object_store/arena/hazard_scan.h"
#include "object_store/arena/object_table.h"
#include "object_store/arena/population.h"
#include "object_store/arena/shelf.h"
#include "object_store/arena/store_host.h"
#include "object_store/arena/store_processes.h"
#include "object_store/layout.h"
#include "object_store/messages.h"
#include "object_store/server/arrivals.h"
#include "object_store/server/freed_objects.h"
#include "object_store/server/object_index.h"
#include "object_store/server/range_reader.h"
#include "object_store/server/recalls.h"
#include "object_store/server/refusals.h"
#include "object_store/server/restorer.h"
#include "object_store/server/room_queue.h"
#include "object_store/server/slot_queue.h"
#include "object_store/server/spill_files.h"
#include "object_store/server/spill_scheduler.h"
#include "object_store/server/store_loop.h"
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
  // Objects of one batch go into one file of about this size.
  uint64_t spill_file_bytes = 64 << 20;
  Nanos restore_wait = 10 * kSecond;  // A restore fails when there is no room for so long.
  bool align_to_huge_pages = false;   // The kernel gives huge pages for shared memory.
};

struct StoreStats {
  uint64_t capacity_bytes = 0;
  uint64_t used_bytes = 0;       // Sealed objects and unsealed or idle grants.
  uint64_t object_bytes = 0;     // Payloads of objects in memory.
  uint64_t pinned_bytes = 0;     // Of objects that somebody views, as of the last scan.
  uint64_t spilled_bytes = 0;    // Objects that are on disk only.
  uint64_t populated_bytes = 0;  // Memory taken from the machine for the arena.
  uint64_t objects = 0;          // In memory or on disk.
  uint64_t granted_bytes = 0;    // In the hands of live processes.
  uint64_t waiting_requests = 0;
  // Since the start.
  uint64_t spills = 0;  // Objects written to disk.
  uint64_t restores = 0;
  uint64_t range_reads = 0;  // Parts of objects read from disk,
  uint64_t range_bytes = 0;  // and their bytes.
  uint64_t spill_written_bytes = 0, restored_bytes = 0;
  uint64_t disk_failures = 0;  // Writes and reads of spilled objects.
  uint64_t refusals = 0;
  uint64_t lost = 0;  // Objects whose copy on disk was damaged.
  uint64_t violations = 0;
  uint64_t copies = 0;  // Received from other nodes.
  uint64_t copied_bytes = 0;
};

class StoreServer final : private RoomSource {
 public:
  struct Deps {
    const Clock& clock;
    Transport& transport;  // To the processes of this node.
    ArenaMemory& arena;
    SpillStorage& spill;
    Executor& loop;    // Runs on the thread that calls everything here.
    Executor& memory;  // Population and discarding.
    Executor& disk;    // Spilling and restoring.
    StoreObserver& observer;
  };

  // Everything in `deps` outlives the server; the executors may run its work, on arena and spill,
  // after it is gone. Writes the header and the table of the arena, which must have the size of an
  // ArenaShape. `capacity_bytes`: as given to ArenaShape::For.
  StoreServer(StoreOptions options, Deps deps, uint64_t capacity_bytes);
  ~StoreServer() override;
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;

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
  Nanos ShortSince() const { return room_.ShortSince(); }
  NodeNumber node() const { return options_.node; }
  size_t holds() const { return loop_.holds(); }  // Pinned::hold and the like, alive.

  // --- Other nodes. ---
  // Answers `asker`, a process of any node, as a lookup does. `hint` helps to find what its writer
  // has not announced yet.
  void Locate(ProcessId asker, ObjectId id, const ObjectLocation& hint);
  // kStoreFree from a process of another node: only what it owns is freed.
  void OnRemoteFree(ProcessId from, std::span<const ObjectName> names);

  // The bytes of an object, for another node: payload and nested references, as they lie in memory.
  // They are neither freed nor moved while `hold` lives. Any thread may drop it, also after this
  // server is gone; then the arena must outlive it.
  struct Pinned {
    StoreObjectInfo info;
    std::span<const char> bytes;
    std::shared_ptr<const void> hold;
  };
  // Calls `done` once, on the loop, maybe at once. kNotFound; kDataLoss: the disk lost it;
  // kResourceExhausted: it is on disk and there is no room to restore it.
  void Pin(ObjectId id, const ObjectLocation& hint,
           std::function<void(absl::StatusOr<Pinned>)> done);
  // The same of a part of its payload, which alone is read when it is on disk. `attempt`: no other
  // will do. kOutOfRange: it has no such bytes; kUnavailable: ask again.
  void PinRange(ObjectId id, const ObjectLocation& hint, std::optional<uint32_t> attempt,
                uint64_t from, uint64_t bytes, std::function<void(absl::StatusOr<Pinned>)> done);

  // Copies of other nodes' objects that are to arrive: as Arrivals says.
  using Arrival = sheaf::Arrival;
  void BeginReceive(const Arrival& arrival, Nanos wait, Arrivals::Ready ready) {
    arrivals_.Begin(arrival, wait, std::move(ready));
  }
  absl::Status EndReceive(ObjectId id) { return arrivals_.End(id); }
  void AbortReceive(ObjectId id) { arrivals_.Abort(id); }
  std::shared_ptr<const void> HoldArriving(ObjectId id) { return arrivals_.Hold(id); }

 private:
  // --- Requests of processes (store_server_requests.cc). ---
  void OnExtentRequest(ProcessId from, const ExtentRequest& request);
  void OnExtentCancel(ProcessId from, uint64_t request);
  void OnExtentReturn(ProcessId from, std::span<const ExtentRange> ranges);
  void OnSlotReturn(ProcessId from, std::span<const SlotPages> ranges);
  void OnLookup(ProcessId from, std::span<const ObjectId> ids);
  bool HasFittingIdle(ProcessId process, uint64_t bytes);
  void GrantExtent(ProcessId to, const ExtentRequest& request, ExtentRange range);

  // RoomSource.
  void TakeUnused(uint64_t bytes, bool populated) override;
  void BeginToMakeRoom(uint64_t bytes) override;
  bool making_room() const override { return spills_.writing(); }

  void ScanFreed() { freed_.Scan(/*keep_extents=*/room_.empty()); }
  Pinned PinNow(const std::shared_ptr<ObjectRecord>& record);
  uint64_t capacity_bytes() const { return shape_.arena_bytes - shape_.data_offset; }

  const StoreOptions options_;
  const Deps deps_;
  const ArenaShape shape_;
  StoreLoop loop_;
  StoreProcesses processes_;
  ObjectTable table_;
  ExtentAllocator allocator_;
  ExtentLedger extents_;
  Shelf shelf_;
  SpillFiles files_;
  HazardScan hazards_;
  FreedObjects freed_;
  Refusals refusals_;
  Recalls recalls_;
  Population population_;
  SlotQueue slots_;
  RoomQueue room_;
  ObjectIndex index_;
  SpillScheduler spills_;
  Restorer restorer_;
  RangeReader ranges_;
  Arrivals arrivals_;
  std::vector<std::byte> scratch_;  // The frame in hand: its sender may write the original.
};

}  // namespace sheaf
