// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "worker/reference_table.h"

#include <algorithm>
#include <utility>

#include "object_store/messages.h"

namespace sheaf {

ReferenceTable::ReferenceTable(ProcessId self, Transport& transport, LocalStore& store)
    : self_(self), transport_(transport), store_(store), drops_(new DropQueue) {}

ReferenceTable::~ReferenceTable() {
  CollectDropped();
  bool handles_live = false;
  entries_.ForEach([&](ObjectEntry& entry) {
    handles_live |= entry.handles.load(std::memory_order_acquire) != 0;
  });
  if (handles_live) {
    entries_.Leak();  // A handle may be dropped after the end of the runtime; it must find its
                      // entry and the queue.
  } else {
    delete drops_;
  }
}

ObjectEntry* ReferenceTable::NewOwned(ObjectId id) {
  ObjectEntry* entry = entries_.New();
  entry->id = id;
  entry->drops = drops_;
  return entry;
}

ObjectEntry* ReferenceTable::Find(ObjectId id) {
  auto found = listed_.find(id);
  return found == listed_.end() ? nullptr : found->second;
}

ObjectEntry* ReferenceTable::Incoming(const NestedReference& reference) {
  if (ObjectEntry* known = Find(reference.id)) return known;
  ObjectEntry* entry = NewOwned(reference.id);
  entry->listed = true;
  listed_.emplace(reference.id, entry);
  if (IsDetachedActorHandle(reference.id)) {
    SetValue(*entry, {});
    return entry;
  }
  if (reference.id.maker() == self_) {
    // Ours once, and freed since: its sender held no valid reference.
    SetError(*entry, {ErrorKind::kObjectLost,
                      "the object " + reference.id.ToHex() + " was freed by its owner",
                      {}});
    entry->registered = true;
    return entry;
  }
  entry->owned = false;
  entry->location = reference.location;
  held_.append(AsBytes(reference.id));
  entry->more().report = next_report_;
  reports_[next_report_].held.push_back(reference.id);
  return entry;
}

void ReferenceTable::List(ObjectEntry& entry) {
  if (entry.listed) return;
  entry.listed = true;
  listed_.emplace(entry.id, &entry);
}

bool ReferenceTable::MayLeave(ObjectEntry& entry) {
  List(entry);
  if (IsDetachedActorHandle(entry.id) || !entry.owned) return false;
  if (entry.state == ObjectState::kPending && !entry.stream && entry.task != nullptr) {
    WhenReady(entry, [this](ObjectEntry& ready) {
      if (ready.state == ObjectState::kValue) Promote(ready);
    });
  }
  return entry.state == ObjectState::kValue;
}

NestedReference ReferenceTable::Outgoing(ObjectEntry& entry) {
  if (MayLeave(entry)) Promote(entry);
  if (IsDetachedActorHandle(entry.id)) return {entry.id, {}};
  NestedReference out{entry.id, {}};
  if (!entry.extra || entry.extra->stored_as.is_nil()) out.location = entry.location;
  return out;
}

void ReferenceTable::Promote(ObjectEntry& entry) {
  // Before a reference leaves its process its value is in the store, where it survives this
  // process. Readers find the references in it, so those leave with it, however deep they lie.
  std::vector<ObjectEntry*> leaving{&entry};
  while (!leaving.empty()) {
    ObjectEntry& next = *leaving.back();
    leaving.pop_back();
    if (next.location.known()) continue;
    std::vector<ObjectId> nested;
    if (next.extra) {
      for (ObjectEntry* inner : next.extra->nested) {
        nested.push_back(inner->id);
        if (MayLeave(*inner)) leaving.push_back(inner);
      }
    }
    next.location = store_.Promote(next.id, next.value, nested);
  }
}

void ReferenceTable::MakeReady(ObjectEntry& entry, ObjectState state) {
  entry.state = state;
  if (entry.extra && !entry.extra->on_ready.empty()) {
    ++entry.uses;  // A hook may drop the last hold.
    auto hooks = std::exchange(entry.extra->on_ready, {});
    for (auto& hook : hooks) hook(entry);
    --entry.uses;
  }
}

bool ReferenceTable::SetValue(ObjectEntry& entry, std::string_view bytes,
                              std::vector<ObjectEntry*> nested) {
  if (entry.ready()) {
    DropUses(nested);
    return false;
  }
  entry.value.assign(bytes);
  entry.size = bytes.size();
  if (!nested.empty()) entry.more().nested = std::move(nested);
  MakeReady(entry, ObjectState::kValue);
  return true;
}

bool ReferenceTable::SetStored(ObjectEntry& entry, ObjectLocation location, uint64_t size,
                               std::vector<ObjectEntry*> nested) {
  if (entry.ready()) {
    DropUses(nested);
    return false;
  }
  entry.location = location;
  entry.size = size;
  if (!nested.empty()) entry.more().nested = std::move(nested);
  MakeReady(entry, ObjectState::kStore);
  return true;
}

bool ReferenceTable::SetError(ObjectEntry& entry, Error error) {
  if (entry.ready()) return false;
  entry.more().error = std::move(error);
  MakeReady(entry, ObjectState::kError);
  return true;
}

void ReferenceTable::SetPending(ObjectEntry& entry) {
  if (entry.owned && entry.state == ObjectState::kStore) FreeCopies(entry);
  entry.state = ObjectState::kPending;
  entry.value.clear();
  entry.location = {};
  if (entry.extra) {
    entry.extra->error = {};
    DropUses(std::exchange(entry.extra->nested, {}));
  }
}

void ReferenceTable::WhenReady(ObjectEntry& entry, std::function<void(ObjectEntry&)> hook) {
  if (entry.ready()) {
    hook(entry);
  } else {
    entry.more().on_ready.push_back(std::move(hook));
  }
}

void ReferenceTable::AddCopy(ObjectEntry& entry, ObjectLocation location) {
  if (entry.location.known() && entry.location.node != location.node) {
    if (location.node == self_.node) std::swap(entry.location, location);
    std::vector<ObjectLocation>& copies = entry.more().copies;
    std::erase_if(copies, [&](const ObjectLocation& copy) {
      return copy.node == location.node || copy.node == entry.location.node;
    });
    copies.push_back(location);
  } else {
    entry.location = location;
  }
}

bool ReferenceTable::DropCopy(ObjectEntry& entry, NodeNumber node) {
  if (entry.extra) {
    std::erase_if(entry.extra->copies,
                  [node](const ObjectLocation& copy) { return copy.node == node; });
  }
  if (entry.location.node != node) return entry.location.known();
  entry.location = {};
  if (entry.extra && !entry.extra->copies.empty()) {
    entry.location = entry.extra->copies.back();
    entry.extra->copies.pop_back();
  }
  return entry.location.known();
}

void ReferenceTable::FreeCopies(ObjectEntry& entry) {
  const ObjectId stored =
      entry.extra && !entry.extra->stored_as.is_nil() ? entry.extra->stored_as : entry.id;
  const auto free = [&](const ObjectLocation& location) {
    if (location.node == self_.node) {
      store_.Free(stored, location);
    } else if (location.known()) {
      transport_.To(RayletOf(location.node))
          .Send(Lane::kControl, kStoreFree, AsBytes(ObjectName{stored, location}));
    }
  };
  free(entry.location);
  if (!entry.extra) return;
  for (const ObjectLocation& copy : std::exchange(entry.extra->copies, {})) free(copy);
}

void ReferenceTable::DropUse(ObjectEntry& entry) {
  if (--entry.uses == 0) FreeIfUnheld(entry);
}

std::vector<ObjectEntry*> ReferenceTable::IncomingAll(std::span<const NestedReference> references) {
  std::vector<ObjectEntry*> out;
  out.reserve(references.size());
  for (const NestedReference& reference : references) {
    out.push_back(Incoming(reference));
    ++out.back()->uses;
  }
  return out;
}

void ReferenceTable::DropUses(std::span<ObjectEntry* const> entries) {
  for (ObjectEntry* entry : entries) DropUse(*entry);
}

bool ReferenceTable::AllRegistered(std::span<ObjectEntry* const> entries) const {
  for (const ObjectEntry* entry : entries) {
    if (!entry->owned && !entry->registered) return false;
  }
  return true;
}

void ReferenceTable::AfterRegistered(std::span<ObjectEntry* const> entries,
                                     std::function<void()> done) {
  std::shared_ptr<std::function<void()>> waiter;
  for (const ObjectEntry* entry : entries) {
    if (entry->owned || entry->registered || !entry->extra) continue;
    auto report = reports_.find(entry->extra->report);
    if (report == reports_.end()) continue;
    // One count of `waiter` a report: it runs when the last report that names it is answered.
    if (!waiter) waiter = std::make_shared<std::function<void()>>(std::move(done));
    auto& list = report->second.done;
    if (list.empty() || list.back() != waiter) list.push_back(waiter);
  }
  if (!waiter) done();
}

void ReferenceTable::CollectDropped() {
  if (drops_->empty()) return;
  ObjectEntry* entry = drops_->TakeAll();
  while (entry != nullptr) {
    ObjectEntry* next = entry->next_dropped;
    entry->dropped.store(false, std::memory_order_release);
    if (entry->stream && entry->uses != 0 && on_stream_abandoned_ &&
        entry->handles.load(std::memory_order_acquire) == 0) {
      on_stream_abandoned_(*entry);
    }
    FreeIfUnheld(*entry);
    entry = next;
  }
}

void ReferenceTable::FreeIfUnheld(ObjectEntry& entry) {
  if (entry.uses != 0 || entry.handles.load(std::memory_order_acquire) != 0 ||
      entry.dropped.load(std::memory_order_acquire)) {
    return;  // If it is in the queue, it is looked at again from there.
  }
  if (entry.owned && entry.extra && !entry.extra->borrowers.empty()) return;
  ++entry.uses;  // What follows may come back here.
  if (entry.listed) listed_.erase(entry.id);
  if (entry.owned) {
    FreeCopies(entry);
    if (entry.task != nullptr && release_task_) release_task_(entry);
  } else {
    dropped_.append(AsBytes(entry.id));
  }
  if (entry.extra && entry.extra->actor != nullptr && on_actor_unreferenced_)
    on_actor_unreferenced_(entry);
  if (entry.extra) DropUses(std::exchange(entry.extra->nested, {}));
  entries_.Delete(&entry);
}

void ReferenceTable::Flush() {
  CollectDropped();
  if (held_.empty() && dropped_.empty()) return;
  proto::RefsReport report;
  report.set_sequence(next_report_);
  report.set_held_ids(std::exchange(held_, {}));
  report.set_dropped_ids(std::exchange(dropped_, {}));
  reports_[next_report_];
  ++next_report_;
  SendMessage(transport_.To(RayletOf(self_.node)), FrameKind::kRefsReport, report);
}

void ReferenceTable::OnRefsReported(const proto::RefsReported& reported) {
  auto found = reports_.find(reported.sequence());
  if (found == reports_.end() || reported.sequence() >= next_report_) return;
  ReportWaiters waiters = std::move(found->second);
  reports_.erase(found);
  for (ObjectId id : waiters.held) {
    if (ObjectEntry* entry = Find(id)) entry->registered = true;
  }
  for (auto& done : waiters.done) {
    if (done.use_count() == 1) (*done)();
    done.reset();
  }
}

void ReferenceTable::OnNodeRefs(ProcessId raylet, const proto::NodeRefs& refs) {
  auto ids_of = [](const std::string& blob) {
    return std::span(reinterpret_cast<const ObjectId*>(blob.data()),
                     blob.size() / sizeof(ObjectId));
  };
  for (ObjectId id : ids_of(refs.held_ids())) {
    ObjectEntry* entry = Find(id);
    if (entry != nullptr && entry->owned) entry->more().borrowers.insert(refs.node());
  }
  for (ObjectId id : ids_of(refs.dropped_ids())) {
    ObjectEntry* entry = Find(id);
    if (entry == nullptr || !entry->owned || !entry->extra) continue;
    entry->extra->borrowers.erase(refs.node());
    FreeIfUnheld(*entry);
  }
  proto::NodeRefsAck ack;
  ack.set_node(refs.node());
  ack.set_version(refs.version());
  SendMessage(transport_.To(raylet), FrameKind::kNodeRefsAck, ack);
}

void ReferenceTable::OnNodeGone(NodeNumber node) {
  std::vector<ObjectEntry*> lent;
  for (auto& [id, entry] : listed_) {
    if (entry->owned && entry->extra && entry->extra->borrowers.contains(node)) {
      lent.push_back(entry);
    }
  }
  for (ObjectEntry* entry : lent) AddUse(*entry);  // Freeing one may free another.
  for (ObjectEntry* entry : lent) {
    entry->extra->borrowers.erase(node);
    DropUse(*entry);
  }
}

std::vector<ObjectEntry*> ReferenceTable::BorrowedFrom(ProcessId owner) {
  std::vector<ObjectEntry*> out;
  for (auto& [id, entry] : listed_) {
    if (!entry->owned && id.maker() == owner) out.push_back(entry);
  }
  std::sort(out.begin(), out.end(),
            [](const ObjectEntry* a, const ObjectEntry* b) { return a->id < b->id; });
  return out;
}

}  // namespace sheaf
