// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "worker/owner/reference_table.h"

#include <algorithm>
#include <utility>

#include "object_store/messages.h"

namespace sheaf {
namespace {

const size_t kInPlace = std::string().capacity();  // Longer values have memory of their own.

}  // namespace

ReferenceTable::ReferenceTable(ProcessId self, Transport& transport, LocalStore& store)
    : self_(self), transport_(transport), store_(store), drops_(new DropQueue) {}

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
  if (ObjectEntry* known = Find(reference.id)) {
    if (known->released && !known->owned) BorrowAgain(*known);
    return known;
  }
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
  std::vector<ObjectEntry*>& of_owner = borrowed_[reference.id.maker()];
  entry->more().position = static_cast<uint32_t>(of_owner.size());
  of_owner.push_back(entry);
  Announce(*entry);
  return entry;
}

void ReferenceTable::Announce(ObjectEntry& entry) {
  if (IsReportLong()) SendReport();
  held_.append(AsBytes(entry.id));
  entry.more().report = next_report_;
  reports_[next_report_].held.push_back(entry.id);
}

void ReferenceTable::BorrowAgain(ObjectEntry& entry) {
  entry.released = false;
  Announce(entry);
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
    if (next.extra) {
      for (ObjectEntry* inner : next.extra->nested) {
        if (MayLeave(*inner)) leaving.push_back(inner);
      }
    }
    CopyToStore(next);
  }
}

bool ReferenceTable::CopyToStore(ObjectEntry& entry) {
  std::vector<ObjectId> nested;
  if (entry.extra) {
    for (const ObjectEntry* inner : entry.extra->nested) nested.push_back(inner->id);
  }
  entry.location = store_.Promote(entry.id, entry.value, nested);
  if (entry.location.known()) return true;
  PromoteLater(entry);  // The owner answers for it meanwhile; should that die first, it is lost.
  return false;
}

void ReferenceTable::PromoteLater(ObjectEntry& entry) {
  List(entry);
  entry.unpromoted = true;
  unpromoted_.insert(entry.id);
}

bool ReferenceTable::PromoteAgain() {
  for (size_t i = 0; i < kIdleSlice && !unpromoted_.empty(); ++i) {
    ObjectEntry* entry = Find(*unpromoted_.begin());
    if (entry != nullptr && entry->unpromoted) {
      const bool wanted = entry->state == ObjectState::kValue && !entry->location.known();
      if (wanted && !CopyToStore(*entry)) return true;
      entry->unpromoted = false;
      if (wanted && !entry->viewed && value_bytes_ > value_budget_) {
        entry->state = ObjectState::kStore;
        ForgetValue(*entry);
      }
    }
    unpromoted_.erase(unpromoted_.begin());
  }
  return unpromoted_.empty();
}

void ReferenceTable::MakeReady(ObjectEntry& entry, ObjectState state) {
  entry.state = state;
  if (!entry.extra || entry.extra->on_ready.empty()) return;
  AddUse(entry);  // A hook may drop the last hold.
  ready_.push_back({&entry, std::exchange(entry.extra->on_ready, {})});
  if (std::exchange(running_hooks_, true)) return;
  while (!ready_.empty()) {
    Ready next = std::move(ready_.front());
    ready_.pop_front();
    for (auto& hook : next.hooks) {
      if (next.entry->ready()) {
        hook(*next.entry);
      } else {  // Lost since.
        next.entry->more().on_ready.push_back(std::move(hook));
      }
    }
    DropUse(*next.entry);
  }
  running_hooks_ = false;
}

void ReferenceTable::SetNested(ObjectEntry& entry, std::vector<ObjectEntry*> nested) {
  if (!entry.extra && nested.empty()) [[likely]]
    return;
  DropNested(entry);
  if (!nested.empty()) entry.more().nested = std::move(nested);
}

void ReferenceTable::ForgetValue(ObjectEntry& entry) {
  if (entry.value.size() >= kLeastCounted) value_bytes_ -= entry.value.size();
  if (entry.value.capacity() > kInPlace) {
    std::string().swap(entry.value);  // Its memory goes, too.
  } else {
    entry.value.clear();
  }
}

bool ReferenceTable::SetValue(ObjectEntry& entry, std::string_view bytes,
                              std::vector<ObjectEntry*> nested) {
  if (entry.ready()) {
    DropUses(nested);
    return false;
  }
  const bool room = HasRoomFor(bytes.size());
  entry.released = entry.viewed = false;
  entry.value.assign(bytes);
  entry.size = bytes.size();
  if (bytes.size() >= kLeastCounted) value_bytes_ += bytes.size();
  SetNested(entry, std::move(nested));
  if (!room && entry.owned) {
    Promote(entry);
    if (entry.location.known()) {
      ForgetValue(entry);
      MakeReady(entry, ObjectState::kStore);
      return true;
    }
  }
  MakeReady(entry, ObjectState::kValue);
  return true;
}

bool ReferenceTable::SetStored(ObjectEntry& entry, ObjectLocation location, uint64_t size,
                               std::vector<ObjectEntry*> nested) {
  if (entry.ready()) {
    DropUses(nested);
    return false;
  }
  entry.released = false;
  entry.location = location;
  entry.size = size;
  if (location.node != self_.node) ++elsewhere_;
  SetNested(entry, std::move(nested));
  MakeReady(entry, ObjectState::kStore);
  return true;
}

void ReferenceTable::SetStoredAgain(ObjectEntry& entry, ObjectLocation location, uint64_t size,
                                    std::vector<ObjectEntry*> nested) {
  const bool promoted = entry.state == ObjectState::kValue && entry.location.known();
  FreeCopies(entry);  // Up to their own attempt, which is an earlier one.
  entry.location = location;
  if (entry.state == ObjectState::kStore) {
    entry.size = size;
    SetNested(entry, std::move(nested));
    return;
  }
  // Smaller when it was made first: what this process has of it stays, for it may be in use.
  FreeCopies(entry);
  entry.location = {};
  DropUses(nested);
  if (promoted) PromoteLater(entry);
}

bool ReferenceTable::SetError(ObjectEntry& entry, Error error) {
  if (entry.ready()) return false;
  entry.released = false;
  entry.more().error = std::move(error);
  MakeReady(entry, ObjectState::kError);
  return true;
}

void ReferenceTable::SetPending(ObjectEntry& entry) {
  if (entry.owned && entry.state == ObjectState::kStore) FreeCopies(entry);
  entry.state = ObjectState::kPending;
  entry.released = false;
  ForgetValue(entry);
  entry.location = {};
  if (entry.extra) entry.extra->error = {};
  DropNested(entry);
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

std::vector<ObjectEntry*> ReferenceTable::IncomingAll(std::span<const NestedReference> references) {
  std::vector<ObjectEntry*> out;
  out.reserve(references.size());
  for (const NestedReference& reference : references) {
    out.push_back(Incoming(reference));
    ++out.back()->uses;
  }
  return out;
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

void ReferenceTable::Flush() {
  CollectDropped();
  if (!held_.empty() || !dropped_.empty()) SendReport();
}

void ReferenceTable::SendReport() {
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
    Doom(*entry);
  }
  proto::NodeRefsAck ack;
  ack.set_node(refs.node());
  ack.set_version(refs.version());
  SendMessage(transport_.To(raylet), FrameKind::kNodeRefsAck, ack);
}

void ReferenceTable::OnNodeGone(NodeNumber node) {
  std::vector<ObjectEntry*> lent;
  for (auto& [id, entry] : listed_) {
    if (entry->owned && entry->extra && entry->extra->borrowers.erase(node) != 0)
      lent.push_back(entry);
  }
  std::sort(lent.begin(), lent.end(),
            [](const ObjectEntry* a, const ObjectEntry* b) { return a->id < b->id; });
  for (ObjectEntry* entry : lent) Doom(*entry);
}

std::vector<ObjectEntry*> ReferenceTable::BorrowedFrom(ProcessId owner) {
  const auto found = borrowed_.find(owner);
  if (found == borrowed_.end()) return {};
  std::vector<ObjectEntry*> out = found->second;
  std::sort(out.begin(), out.end(),
            [](const ObjectEntry* a, const ObjectEntry* b) { return a->id < b->id; });
  return out;
}

}  // namespace sheaf
