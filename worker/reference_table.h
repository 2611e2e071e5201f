// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// All objects that this process knows: its own (values or locations, lineage, who borrows them) and
// those of others that it borrows. Pure: one lock of its user guards everything here; time and
// network come in by reference.
//
// Life of an entry: it stays while a handle, a use of the runtime, or (owned) a borrowing node
// holds it. Borrowed ones are announced to the raylet in batches (RefsReport), which tells the
// owner about the node as a whole; until the owner knows, whoever sent us the reference keeps it
// alive (transit, see AfterRegistered).
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/flat_hash_map.h"
#include "base/transport.h"
#include "proto/raylet.pb.h"
#include "worker/object_entry.h"
#include "worker/object_handle.h"
#include "worker/slab.h"
#include "worker/wire.h"

namespace sheaf {

// What the table needs of the node's store; the runtime passes it on to a StoreClient, tests/sim to
// a map.
class LocalStore {
 public:
  virtual ~LocalStore() = default;
  virtual void Free(ObjectId id, ObjectLocation location) = 0;
  // Copies a small value into the store at once, or returns an unknown location when there is no
  // room right now.
  virtual ObjectLocation Promote(ObjectId id, std::string_view bytes,
                                 std::span<const ObjectId> nested) = 0;
};

class ReferenceTable {
 public:
  ReferenceTable(ProcessId self, Transport& transport, LocalStore& store);
  ~ReferenceTable();

  // A new object of this process, pending, without any hold yet: the caller takes a handle or a use
  // before anything else.
  ObjectEntry* NewOwned(ObjectId id);
  uint64_t NextSequence() { return next_sequence_++; }

  // The entry for a reference that came in a frame: ours, known already, or newly borrowed.
  ObjectEntry* Incoming(const NestedReference& reference);
  ObjectEntry* Find(ObjectId id);  // Listed entries only.
  void List(ObjectEntry& entry);   // From here on Find finds it.
  // `entry`'s id is about to leave the process inside a value. Returns what travels: id and
  // location hint.
  NestedReference Outgoing(ObjectEntry& entry);

  // Pending -> ready, once; later calls change nothing but return false. Hooks run.
  bool SetValue(ObjectEntry& entry, std::string_view bytes, std::vector<ObjectEntry*> nested = {});
  bool SetStored(ObjectEntry& entry, ObjectLocation location, uint64_t size,
                 std::vector<ObjectEntry*> nested = {});
  bool SetError(ObjectEntry& entry, Error error);
  // A retry makes it again, or its bytes are looked for again.
  void SetPending(ObjectEntry& entry);
  // Runs `hook` when `entry` is ready; at once if it is.
  void WhenReady(ObjectEntry& entry, std::function<void(ObjectEntry&)> hook);

  // A copy of an owned object is at `location`. That on this node becomes entry.location.
  void AddCopy(ObjectEntry& entry, ObjectLocation location);
  // There is none on `node` (any more). False: none is known anywhere now.
  bool DropCopy(ObjectEntry& entry, NodeNumber node);

  void AddUse(ObjectEntry& entry) { ++entry.uses; }
  void DropUse(ObjectEntry& entry);
  // The references of a frame: one use each, to be dropped with DropUses.
  std::vector<ObjectEntry*> IncomingAll(std::span<const NestedReference> references);
  void DropUses(std::span<ObjectEntry* const> entries);

  // Runs `done` once the owners of all these know that this node holds them (at once if they do).
  void AfterRegistered(std::span<ObjectEntry* const> entries, std::function<void()> done);
  bool AllRegistered(std::span<ObjectEntry* const> entries) const;

  // Frees what nothing holds any more. The lineage of freed objects is handed to `release_task`.
  void CollectDropped();
  void set_release_task(std::function<void(ObjectEntry&)> release) {
    release_task_ = std::move(release);
  }
  // No handle of a stream is left, though its task still holds it.
  void set_on_stream_abandoned(std::function<void(ObjectEntry&)> hook) {
    on_stream_abandoned_ = std::move(hook);
  }
  // The handle of an actor is being freed: nothing here holds it, nor anywhere else if this process
  // owns it.
  void set_on_actor_unreferenced(std::function<void(ObjectEntry&)> hook) {
    on_actor_unreferenced_ = std::move(hook);
  }

  // Sends what has gathered since the last call: one report at most.
  void Flush();
  void OnRefsReported(const proto::RefsReported& reported);
  void OnNodeRefs(ProcessId raylet, const proto::NodeRefs& refs);
  // `node` is dead: nobody there borrows anything any more.
  void OnNodeGone(NodeNumber node);
  // Borrowed objects of `owner`.
  std::vector<ObjectEntry*> BorrowedFrom(ProcessId owner);

  size_t size() const { return entries_.size(); }
  bool NeedsFlush() const { return !held_.empty() || !dropped_.empty() || !drops_->empty(); }
  template <class Visit>
  void ForEach(Visit visit) {
    entries_.ForEach(visit);
  }

 private:
  void MakeReady(ObjectEntry& entry, ObjectState state);
  void FreeIfUnheld(ObjectEntry& entry);
  void FreeCopies(ObjectEntry& entry);
  // From now on its owner is asked about it. True: its value must be promoted first.
  bool MayLeave(ObjectEntry& entry);
  void Promote(ObjectEntry& entry);

  const ProcessId self_;
  Transport& transport_;
  LocalStore& store_;
  Slab<ObjectEntry> entries_;
  DropQueue* const drops_;  // Outlives this table as long as a handle lives.
  absl::flat_hash_map<ObjectId, ObjectEntry*> listed_;
  uint64_t next_sequence_ = 1;
  std::function<void(ObjectEntry&)> release_task_;
  std::function<void(ObjectEntry&)> on_actor_unreferenced_;
  std::function<void(ObjectEntry&)> on_stream_abandoned_;

  // Announcing borrowed references.
  std::string held_, dropped_;  // Gathered for the next report.
  uint64_t next_report_ = 1;
  struct ReportWaiters {
    std::vector<ObjectId> held;
    std::vector<std::shared_ptr<std::function<void()>>>
        done;  // Run when the last of their reports is answered.
  };
  absl::btree_map<uint64_t, ReportWaiters> reports_;  // Unanswered, and the one being gathered.
};

}  // namespace sheaf
