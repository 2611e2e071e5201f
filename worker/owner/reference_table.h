// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// All objects that this process knows: its own (values or locations, lineage, who borrows them) and
// those of others that it borrows. Pure: one lock of its user guards everything here; time and
// network come in by reference.
//
// Life of an entry: it stays while a handle, a use of the runtime, or (owned) a borrowing node
// holds it. Borrowed ones are announced to the raylet in batches (RefsReport), which tells the
// owner about the node as a whole; until the owner knows, whoever sent us the reference keeps it
// alive (transit, see AfterRegistered).
//
// Lineage keeps the recipe, not the bytes. When nothing but lineage (the arguments of finished
// calls that may run again) holds an object, its copies are freed everywhere, and the entry is
// `released`: TaskTable::Remake makes it again when somebody needs it. A value in this process's
// memory that no call can make again is part of the recipe of those that use it, as their other
// small arguments are. A larger one that was put is gone for good, as are a borrowed one that its
// owner has freed meanwhile and an actor without handles: then what depends on it cannot be made
// again. What is held may be released, too, by who has another use for the room (GiveUp).
//
// Freeing. What nothing holds any more is noted in lists, which CollectDropped works off in slices:
// freeing one object lets go of others, and there may be millions. No entry is freed elsewhere.
//
// Memory. Values in this process's own memory have a budget (set_value_budget): what comes beyond
// it is moved to the store. A value that may be viewed in place never moves.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "absl/container/flat_hash_map.h"
#include "base/transport.h"
#include "proto/raylet.pb.h"
#include "worker/owner/object_entry.h"
#include "worker/owner/object_handle.h"
#include "worker/owner/slab.h"
#include "worker/wire.h"

namespace sheaf {

// What the table needs of the node's store; ProcessCore passes it on to a StoreClient, unit tests to
// a map.
class LocalStore {
 public:
  virtual ~LocalStore() = default;
  virtual void Free(ObjectId id, ObjectLocation location) = 0;
  // Copies a small value into the store at once, or returns an unknown location when there is no
  // room right now.
  virtual ObjectLocation Promote(ObjectId id, std::string_view bytes,
                                 std::span<const ObjectId> nested) = 0;
  // Whether the bytes of a sealed object are at `location` on this node now.
  virtual bool Has(const ObjectLocation& location) = 0;
};

class ReferenceTable {
 public:
  // Steps of CollectDropped, of well under a microsecond each: what a user's call does beside its
  // own work, and what a thread does that has nothing else to do.
  static constexpr size_t kSlice = 256;
  static constexpr size_t kIdleSlice = 1024;
  // Values from here on count against the budget. What is kept for a reference is of this order.
  static constexpr size_t kLeastCounted = 1024;
  static constexpr uint64_t kValueBudget = 256 * 1024 * 1024;

  ReferenceTable(ProcessId self, Transport& transport, LocalStore& store);
  ~ReferenceTable();

  // A new object of this process, pending, without any hold yet: the caller takes a handle or a use
  // before anything else.
  ObjectEntry* NewOwned(ObjectId id);
  uint64_t NextSequence() { return next_sequence_++; }
  bool HasMade(uint64_t sequence) const { return sequence < next_sequence_; }

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
  // A ready object was made once more, and is at `location`: those that are in a store take it in
  // place of their older copies, others have it freed.
  void SetStoredAgain(ObjectEntry& entry, ObjectLocation location, uint64_t size,
                      std::vector<ObjectEntry*> nested);
  bool SetError(ObjectEntry& entry, Error error);
  // A retry makes it again, or its bytes are looked for again.
  void SetPending(ObjectEntry& entry);
  // Runs `hook` when `entry` is ready; at once if it is. Hooks that make others ready do not run
  // inside one another, so chains of any length end in constant stack.
  void WhenReady(ObjectEntry& entry, std::function<void(ObjectEntry&)> hook);

  // A copy of an owned object is at `location`. That on this node becomes entry.location.
  void AddCopy(ObjectEntry& entry, ObjectLocation location);
  // There is none on `node` (any more). False: none is known anywhere now.
  bool DropCopy(ObjectEntry& entry, NodeNumber node);

  void AddUse(ObjectEntry& entry) { ++entry.uses; }
  void DropUse(ObjectEntry& entry) {
    if (--entry.uses == 0) Doom(entry);
  }
  // The references of a frame: one use each, to be dropped with DropUses.
  std::vector<ObjectEntry*> IncomingAll(std::span<const NestedReference> references);
  void DropUses(std::span<ObjectEntry* const> entries) {
    for (ObjectEntry* entry : entries) DropUse(*entry);
  }

  // A use becomes one for lineage, and the other way round; the latter brings back no value.
  void UseForLineage(ObjectEntry& entry);
  void UseAgain(ObjectEntry& entry);
  void DropLineageUse(ObjectEntry& entry);
  // Of values that are kept because they are parts of recipes.
  uint64_t lineage_value_bytes() const { return lineage_value_bytes_; }
  // A borrowed entry that was released: announced anew.
  void BorrowAgain(ObjectEntry& entry);

  // Beyond so many bytes of values in this process's memory, further ones are moved to the store.
  void set_value_budget(uint64_t bytes) { value_budget_ = bytes; }
  uint64_t value_bytes() const { return value_bytes_; }
  bool HasRoomFor(size_t bytes) const {
    return bytes < kLeastCounted || value_bytes_ + bytes <= value_budget_;
  }
  // Values that want a copy in the store, which had no room. PromoteAgain tries some of them; true:
  // it came to the end, or there is no room still.
  size_t unpromoted() const { return unpromoted_.size(); }
  bool PromoteAgain();

  // Runs `done` once the owners of all these know that this node holds them (at once if they do).
  void AfterRegistered(std::span<ObjectEntry* const> entries, std::function<void()> done);

  // Frees some of what nothing holds any more; true: there is more. The lineage of freed objects is
  // handed to what set_release_task was given.
  bool CollectDropped(size_t steps = kSlice) { return NeedsCollecting() && CollectSome(steps); }
  bool NeedsCollecting() const {
    return !doomed_.empty() || !dropping_.empty() || collecting_ != nullptr || !drops_->empty();
  }
  void set_release_task(std::function<void(ObjectEntry&)> release) {
    release_task_ = std::move(release);
  }
  // No handle of a stream is left, though its task still holds it.
  void set_on_stream_abandoned(std::function<void(ObjectEntry&)> hook) {
    on_stream_abandoned_ = std::move(hook);
  }
  // The handle of an actor is being freed, or only lineage holds it: nothing else does here, nor
  // anywhere else if this process owns it.
  void set_on_actor_unreferenced(std::function<void(ObjectEntry&)> hook) {
    on_actor_unreferenced_ = std::move(hook);
  }

  // Sends what has gathered since the last report.
  void Flush();
  void OnRefsReported(const proto::RefsReported& reported);
  void OnNodeRefs(ProcessId raylet, const proto::NodeRefs& refs);
  // `node` is dead: nobody there borrows anything any more.
  void OnNodeGone(NodeNumber node);
  // Borrowed objects of `owner`.
  std::vector<ObjectEntry*> BorrowedFrom(ProcessId owner);

  uint64_t elsewhere() const { return elsewhere_; }  // SetStored with a place on another node.
  size_t size() const { return entries_.size(); }
  bool NeedsFlush() const { return !held_.empty() || !dropped_.empty() || NeedsCollecting(); }
  template <class Visit>
  void ForEach(Visit visit) {
    entries_.ForEach(visit);
  }

 private:
  // References that were inside one value, on their way to being dropped.
  struct Dropping {
    std::vector<ObjectEntry*> entries;
    bool for_lineage = false;
  };
  struct Ready {
    ObjectEntry* entry;  // One use.
    std::vector<std::function<void(ObjectEntry&)>> hooks;
  };

  void MakeReady(ObjectEntry& entry, ObjectState state);
  void FreeCopies(ObjectEntry& entry);
  // From now on its owner is asked about it. True: its value must be promoted first.
  bool MayLeave(ObjectEntry& entry);
  void Promote(ObjectEntry& entry);
  bool CopyToStore(ObjectEntry& entry);
  void PromoteLater(ObjectEntry& entry);
  void SetNested(ObjectEntry& entry, std::vector<ObjectEntry*> nested);
  void ForgetValue(ObjectEntry& entry);
  void Announce(ObjectEntry& entry);

  // reference_freeing.cc
  void Doom(ObjectEntry& entry);
  bool CollectSome(size_t steps);
  void CountOffHandles();
  void DropNext();
  void FreeIfUnheld(ObjectEntry& entry);
  void Free(ObjectEntry& entry);
  void Release(ObjectEntry& entry);
  void KeepForLineage(ObjectEntry& entry);
  void KeepNoMore(ObjectEntry& entry);
  void DropNested(ObjectEntry& entry);

  const ProcessId self_;
  Transport& transport_;
  LocalStore& store_;
  Slab<ObjectEntry> entries_;
  DropQueue* const drops_;  // Outlives this table as long as a handle lives.
  absl::flat_hash_map<ObjectId, ObjectEntry*> listed_;
  absl::flat_hash_map<ProcessId, std::vector<ObjectEntry*>> borrowed_;  // By owner.
  uint64_t next_sequence_ = 1;
  uint64_t elsewhere_ = 0;
  std::deque<Ready> ready_;  // Their hooks shall run.
  bool running_hooks_ = false;

  // What CollectDropped has to do, the last first.
  std::vector<ObjectEntry*> doomed_;  // Maybe held by nothing.
  std::vector<Dropping> dropping_;
  ObjectEntry* collecting_ = nullptr;  // What is left of a drop queue that was taken.

  uint64_t value_budget_ = kValueBudget;
  uint64_t value_bytes_ = 0;
  uint64_t lineage_value_bytes_ = 0;
  absl::btree_set<ObjectId> unpromoted_;

  std::function<void(ObjectEntry&)> release_task_;
  std::function<void(ObjectEntry&)> on_actor_unreferenced_;
  std::function<void(ObjectEntry&)> on_stream_abandoned_;

  // Announcing borrowed references. Many are announced in several reports, as they come.
  static constexpr size_t kReportBytes = 16 << 20;
  bool IsReportLong() const { return held_.size() + dropped_.size() >= kReportBytes; }
  void SendReport();
  void AnnounceDrop(const ObjectEntry& entry) {
    if (IsReportLong()) SendReport();
    dropped_.append(AsBytes(entry.id));
  }
  std::string held_, dropped_;  // Gathered for the next report.
  uint64_t next_report_ = 1;
  struct ReportWaiters {
    std::vector<ObjectId> held;
    // Run when the last of their reports is answered.
    std::vector<std::shared_ptr<std::function<void()>>> done;
  };
  absl::btree_map<uint64_t, ReportWaiters> reports_;  // Unanswered, and the one being gathered.
};

}  // namespace sheaf
