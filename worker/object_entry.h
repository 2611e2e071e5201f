// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What this process knows of one object, and the queue by which dropped handles reach the reference
// table.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "base/error_kind.h"
#include "base/ids.h"
#include "object_store/layout.h"

namespace sheaf {

struct ActorClient;  // worker/actor_submitter.h
struct ObjectEntry;
struct TaskRecord;

// Handles push entries whose last handle went; the reference table takes them under its owner's
// lock. A stack of Treiber with a single consumer that takes all at once (so no ABA). Never
// destroyed before the last handle.
class DropQueue {
 public:
  void Push(ObjectEntry* entry);
  ObjectEntry* TakeAll() { return top_.exchange(nullptr, std::memory_order_acquire); }
  bool empty() const { return top_.load(std::memory_order_relaxed) == nullptr; }

 private:
  std::atomic<ObjectEntry*> top_{nullptr};
};

enum class ObjectState : uint8_t {
  kPending = 0,
  kValue = 1,  // In `value`.
  kStore = 2,  // In a store, at `location` as last heard: on this node if there is a copy.
  kError = 3,  // In `extra->error`.
};

// Whatever few objects have.
struct ObjectExtra {
  Error error;
  std::vector<std::function<void(ObjectEntry&)>>
      on_ready;                               // Runs once, under the lock; must not free entries.
  std::vector<ObjectEntry*> nested;           // References inside the value: one use each.
  absl::flat_hash_set<NodeNumber> borrowers;  // Nodes that hold it. Owned objects.
  std::vector<ObjectLocation> copies;         // Beside `location`, one a node. Owned objects.
  uint64_t report = 0;  // Borrowed: the RefsReport that announced it; 0: not announced yet.
  ObjectId stored_as;   // Not nil: the name its bytes have in the store, when that is not `id`.
  // The object is in the store's keeping, but there was no room to read it back into: the next look
  // at it gets `error`, and the one after that tries again. (`error` is written once: somebody may
  // be reading it.)
  bool unreachable = false;
  ActorClient* actor = nullptr;  // The entry is an actor's handle: the caller's side of that actor.
};

struct ObjectEntry {
  uint32_t cookie = 0;
  std::atomic<uint32_t> handles{0};
  ObjectId id;
  DropQueue* drops = nullptr;
  ObjectEntry* next_dropped = nullptr;
  std::atomic<bool> dropped{false};  // In the drop queue.
  ObjectState state = ObjectState::kPending;
  bool owned = true;
  bool listed = false;      // Found by id: it has left the process, or came from another.
  bool registered = false;  // Borrowed: its owner knows of this node.
  bool stream = false;      // The handle of a streaming generator.
  uint32_t uses =
      0;  // Holds of the runtime itself: arguments, nesting, pending results, frames in transit.
  std::string value;
  ObjectLocation location;
  uint64_t size = 0;           // Bytes of the value, wherever it is.
  TaskRecord* task = nullptr;  // Makes it, or made it and can again (lineage). Owned objects.
  std::unique_ptr<ObjectExtra> extra;

  bool ready() const { return state != ObjectState::kPending; }
  ObjectExtra& more() {
    if (!extra) extra = std::make_unique<ObjectExtra>();
    return *extra;
  }
};

inline void DropQueue::Push(ObjectEntry* entry) {
  if (entry->dropped.exchange(true, std::memory_order_acq_rel)) return;
  ObjectEntry* top = top_.load(std::memory_order_relaxed);
  do {
    entry->next_dropped = top;
  } while (!top_.compare_exchange_weak(top, entry, std::memory_order_release,
                                       std::memory_order_relaxed));
}

}  // namespace sheaf
