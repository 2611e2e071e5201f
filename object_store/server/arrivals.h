// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Copies of other nodes' objects that are on their way here, each from the first request for room
// until it is sealed or given up. One thread; the bytes are written by others.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "absl/container/btree_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/ids.h"
#include "object_store/arena/object_table.h"
#include "object_store/arena/shelf.h"
#include "object_store/arena/store_host.h"
#include "object_store/layout.h"
#include "object_store/server/freed_objects.h"
#include "object_store/server/object_index.h"
#include "object_store/server/room_queue.h"
#include "object_store/server/slot_queue.h"
#include "object_store/server/store_loop.h"

namespace sheaf {

// A copy of another node's object that is to arrive.
struct Arrival {
  ObjectId id;
  uint32_t attempt = 0;
  uint32_t flags = 0;
  uint64_t size_bytes = 0;  // Of the payload.
  uint32_t nested_count = 0;
  // Payload and nested references: what must be written before End.
  uint64_t bytes() const {
    return nested_count == 0 ? size_bytes
                             : NestedOffset(size_bytes) + nested_count * sizeof(ObjectId);
  }
};

class Arrivals {
 public:
  using Ready = std::function<void(absl::StatusOr<std::span<char>>)>;
  struct Options {
    NodeNumber node = 0;
    uint64_t capacity_bytes = 0;  // Of the store; what is larger can never arrive.
  };
  struct Deps {  // All outlive this.
    const Clock& clock;
    StoreObserver& observer;
    ArenaMemory& arena;
    StoreLoop& loop;
    ObjectTable& table;
    Shelf& shelf;
    SlotQueue& slots;
    RoomQueue& room;
    FreedObjects& freed;
    ObjectIndex& index;
  };
  struct Counts {  // Since the start.
    uint64_t copies = 0;
    uint64_t copied_bytes = 0;
    uint64_t refusals = 0;
  };

  Arrivals(Options options, Deps deps) : options_(options), deps_(deps) {}

  // Finds room, as for an extent that a process asks for, and posts `ready` with it to the loop.
  // kResourceExhausted: none came in time, or the object is larger than the store.
  // kAlreadyExists: it is arriving already. Unless it got an error, the caller ends with End or
  // Abort, when nobody writes into the room any more.
  void Begin(const Arrival& arrival, Nanos wait, Ready ready);
  // Seals it. A sealed copy of this attempt or a later one wins; then the arrived bytes go.
  // kResourceExhausted: the table is full. kFailedPrecondition: no such copy has got room. The
  // arrival is over in any case.
  absl::Status End(ObjectId id);
  // Also while it waits for room: `ready` is not called then.
  void Abort(ObjectId id);
  // Keeps the room of an arrival, which has got it, across its end.
  std::shared_ptr<const void> Hold(ObjectId id);

  const Counts& counts() const { return counts_; }

 private:
  struct Receiving {
    Arrival arrival;
    Ready ready;
    std::weak_ptr<RoomRequest> request;  // For room.
    Shelf::Place place;                  // Of its footprint; extent null: it waits for room.
    bool over = false;
    uint32_t pins = 0;                     // Blocks that are sent from it meanwhile.
    std::shared_ptr<ObjectRecord> sealed;  // What it became; has the pins then.
  };
  using ReceivingPtr = std::shared_ptr<Receiving>;

  void OnRoom(const ReceivingPtr& receiving, Shelf::Place place);
  void OnRefused(const ReceivingPtr& receiving);
  void Announce(const ReceivingPtr& receiving, absl::StatusOr<std::span<char>> room);
  void GiveUpRoom(Receiving& receiving);
  std::shared_ptr<ObjectRecord> Seal(Receiving& receiving, uint32_t slot);

  const Options options_;
  const Deps deps_;
  absl::btree_map<ObjectId, ReceivingPtr> receiving_;
  Counts counts_;
};

}  // namespace sheaf
