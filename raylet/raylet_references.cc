// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Borrowed references, and the objects of dead owners: what was sealed and is still borrowed on
// this node stays in its store until the last borrower drops it, and holds the references inside it
// as long. Who borrows it on other nodes only the owner knew: they have a moment to ask for it
// (raylet_orphans.cc).
#include "base/parse_frame.h"
#include "base/status_macros.h"
#include "object_store/server/store_owner.h"
#include "raylet/raylet.h"

namespace sheaf {

namespace {

// Other nodes have so long to say that they hold what nobody here holds.
constexpr Nanos kOrphanGrace = 3 * kSecond;

}  // namespace

using metrics::Counter;
using metrics::CounterId;

absl::Status Raylet::OnRefsReport(ProcessId from, const Frame& frame) {
  SHEAF_ASSIGN_OR_RETURN(const auto report, ParseFrame<proto::RefsReport>(frame));
  return references_.OnReport(from, report);
}

absl::Status Raylet::OnNodeRefsAck(ProcessId from, const Frame& frame) {
  SHEAF_ASSIGN_OR_RETURN(const auto ack, ParseFrame<proto::NodeRefsAck>(frame));
  references_.OnAck(from, ack);
  return absl::OkStatus();
}

void Raylet::StoreOnDeath(ProcessId process, Remains& remains) {
  if (!remains.store_knows && (remains.exited || remains.socket_closed)) {
    remains.store_knows = true;
    OnFetcherGone(process);
    world_.store.OnProcessDied(process);
  }
  if (remains.store_knows && remains.socket_closed && !remains.views_gone) {
    remains.views_gone = true;
    world_.store.OnViewsGone(process);
  }
}

std::vector<ObjectId> Raylet::LearnObjectsOf(ProcessId owner) {
  return world_.store.Adopt(owner, [](ObjectId) { return true; });
}

void Raylet::AdoptObjectsOf(ProcessId owner) {
  Adopt(LearnObjectsOf(owner));
  if (!OtherNodes().empty()) {
    orphaned_.try_emplace(owner, Now() + kOrphanGrace);
  } else {
    world_.store.Adopt(owner, [this](ObjectId id) { return adopted_.contains(id); });
  }
}

// Those that somebody here holds.
void Raylet::Adopt(std::vector<ObjectId> candidates) {
  // What lies inside an adopted object is held by it, and so adopted itself if it is of the same
  // owner.
  while (!candidates.empty()) {
    const ObjectId id = candidates.back();
    candidates.pop_back();
    if (!references_.IsHeld(id) || adopted_.contains(id)) continue;
    const auto object = world_.store.Describe(id);
    if (!object.ok()) continue;
    Counter(world_.metrics, CounterId::kObjectsAdopted).Add();
    adopted_[id] = object->nested;
    for (const ObjectId nested : object->nested) {
      if (IsDetachedActorHandle(nested)) continue;
      if (++nested_holds_[nested] == 1) references_.Hold(RayletOf(options_.node), nested);
      if (nested.maker() == id.maker()) candidates.push_back(nested);
    }
  }
}

void Raylet::SettleStore() {
  SettleObjects();
  SettleOrphans();
  // Dropping one adopted object can drop the last reference to another that lies inside it.
  for (std::vector<ObjectId> unheld = references_.TakeUnheld(); !unheld.empty();
       unheld = references_.TakeUnheld()) {
    for (const ObjectId id : unheld) {
      if (references_.IsHeld(id)) continue;
      orphans_.Remove(id);
      if (orphaned_.contains(id.maker())) continue;  // Others may want it still.
      if (adopted_.contains(id)) world_.store.Free(id);
      Disown(id);
    }
  }
  for (const ObjectId id : world_.store_events.TakeGone()) {
    Counter(world_.metrics, CounterId::kObjectsFreed).Add();
    if (!world_.store.Contains(id)) copies_.erase(id);
    Disown(id);
  }
  for (const auto& [process, what] : world_.store_events.TakeViolations()) {
    OnOffence(process, absl::InvalidArgumentError(what));
  }
}

void Raylet::Disown(ObjectId id) {
  const auto it = adopted_.find(id);
  if (it == adopted_.end() || (references_.IsHeld(id) && world_.store.Contains(id))) return;
  const std::vector<ObjectId> nested = std::move(it->second);
  adopted_.erase(it);
  for (const ObjectId inner : nested) {
    // Another adopted object may hold it as well.
    if (--nested_holds_[inner] > 0) continue;
    nested_holds_.erase(inner);
    references_.Unhold(RayletOf(options_.node), inner);
  }
}

}  // namespace sheaf
