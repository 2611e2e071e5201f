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

struct ActorClient;  // worker/owner/actor_submitter.h
struct ObjectEntry;
struct TaskRecord;

// How the end of a handle, on any thread, reaches the reference table without a lock.
//   A first handle (0 -> 1) is made under the table's lock, and holds the entry: `held_by_handles`.
//   A last handle (1 -> 0) ends anywhere. It counts itself in `drops_due`, and if it is the first
//   since the table looked, pushes the entry. Until the table has counted it off, the entry is held
//   for it: so it may be late by any time, and touches nothing that was freed.
// A stack of Treiber with a single consumer, who holds the lock and takes all at once (so no ABA).
// It reads `next_dropped` before it counts off: from then on the entry may be pushed anew. Never
// destroyed before the last handle.
class DropQueue {
 public:
  void Push(ObjectEntry* entry);
  ObjectEntry* TakeAll() { return top_.exchange(nullptr, std::memory_order_acquire); }
  bool empty() const { return top_.load(std::memory_order_relaxed) == nullptr; }

  uint64_t held = 0;  // The sum of all `held_by_handles`; guarded by the table's lock.

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
  // Runs once, under the lock; must not free entries.
  std::vector<std::function<void(ObjectEntry&)>> on_ready;
  // References inside the value: one use each; with `keeps_for_lineage` one for lineage each.
  std::vector<ObjectEntry*> nested;
  absl::flat_hash_set<NodeNumber> borrowers;  // Nodes that hold it. Owned objects.
  std::vector<ObjectLocation> copies;         // Beside `location`, one a node. Owned objects.
  std::vector<ProcessId> askers;              // Are told when it is ready; sorted. Owned objects.
  uint64_t report = 0;    // Borrowed: the RefsReport that announced it; 0: not announced yet.
  uint32_t position = 0;  // Borrowed: among those of its owner.
  ObjectId stored_as;     // Not nil: the name its bytes have in the store, when that is not `id`.
  // The object is in the store's keeping, but there was no room to read it back into: the next look
  // at it gets `error`, and the one after that tries again. (`error` is written once: somebody may
  // be reading it.)
  bool unreachable = false;
  ActorClient* actor = nullptr;  // The entry is an actor's handle: the caller's side of that actor.
};

// Two cache lines: counts, state and flags lie in the first, the value and its maker in the second.
struct alignas(64) ObjectEntry {
  uint32_t cookie = 0;
  std::atomic<uint32_t> handles{0};
  ObjectId id;
  DropQueue* drops = nullptr;
  ObjectEntry* next_dropped = nullptr;
  std::atomic<uint32_t> drops_due{0};  // Last handles that went; not 0: in the drop queue.
  uint32_t held_by_handles = 0;        // First handles made, less the last ones counted off.
  // Holds of the runtime itself: arguments, nesting, pending results, frames in transit.
  uint32_t uses = 0;
  uint32_t lineage_uses = 0;  // Arguments of finished calls that may run again.
  uint64_t size : 48 = 0;     // Bytes of the value, wherever it is.
  ObjectState state : 5 = ObjectState::kPending;
  bool owned : 1 = true;
  bool listed : 1 = false;      // Found by id: it has left the process, or came from another.
  bool registered : 1 = false;  // Borrowed: its owner knows of this node.
  bool stream : 1 = false;      // The handle of a streaming generator.
  bool doomed : 1 = false;      // In the table's list of what may be freed.
  // Its bytes went on purpose, as only lineage needed it or its holder gave them up: kPending, and
  // nobody makes it until somebody asks (TaskTable::Remake).
  bool released : 1 = false;
  // Only lineage needs it, and its value, which has no recipe, is small enough to be part of one.
  bool keeps_for_lineage : 1 = false;
  bool recipe_evicted : 1 = false;  // There was one, until lineage passed its bound.
  bool viewed : 1 = false;          // Somebody may look at `value` in place.
  bool unpromoted : 1 = false;      // Waits for room in the store, which it wants a copy in.
  bool of_call : 1 = false;         // A result, whether or not its call may run again.
  std::string value;
  ObjectLocation location;
  TaskRecord* task = nullptr;  // Makes it, or made it and can again (lineage). Owned objects.
  std::unique_ptr<ObjectExtra> extra;

  bool ready() const { return state != ObjectState::kPending; }
  bool held() const { return uses != 0 || held_by_handles != 0; }
  ObjectExtra& more() {
    if (!extra) extra = std::make_unique<ObjectExtra>();
    return *extra;
  }
};
static_assert(sizeof(ObjectEntry) == 128);

inline void DropQueue::Push(ObjectEntry* entry) {
  if (entry->drops_due.fetch_add(1, std::memory_order_acq_rel) != 0) return;
  ObjectEntry* top = top_.load(std::memory_order_relaxed);
  do {
    entry->next_dropped = top;
  } while (!top_.compare_exchange_weak(top, entry, std::memory_order_release,
                                       std::memory_order_relaxed));
}

}  // namespace sheaf
