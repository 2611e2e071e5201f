// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "raylet/objects/adoption.h"

#include <algorithm>

#include "absl/container/btree_set.h"
#include "absl/strings/str_cat.h"
#include "base/parse_frame.h"
#include "base/status_macros.h"
#include "metrics/counter.h"
#include "object_store/messages.h"

namespace sheaf {
namespace {

using metrics::Counter;
using metrics::CounterId;

// Other nodes have so long to say that they hold what nobody here holds.
constexpr Nanos kOrphanGrace = 3 * kSecond;
constexpr size_t kMostQuestions = 10'000;
// The process asks before its raylet hears that it holds the reference, or that the owner is dead.
constexpr Nanos kQuestionLimit = OrphanLedger::kAnswerLimit + kSecond;

// Objects of makers that nobody knows: how long one that is on its way may be unknown, and how
// often all objects are looked at, if there are few or many of them.
constexpr Nanos kUnknownFor = 10 * kSecond;
constexpr Nanos kLookAtFew = 5 * kSecond;
constexpr Nanos kLookAtMany = 60 * kSecond;
constexpr size_t kMany = 20'000;

}  // namespace

Adoption::Adoption(Deps deps)
    : deps_(std::move(deps)),
      orphans_(deps_.clock, deps_.transport, [this] { return OtherNodes(); }) {}

std::vector<NodeNumber> Adoption::OtherNodes() const {
  std::vector<NodeNumber> others;
  for (const auto& [node, seen] : deps_.view.nodes) {
    if (node != deps_.view.local && seen.alive) others.push_back(node);
  }
  return others;
}

// --- Owners die. ---

std::vector<ObjectId> Adoption::LearnObjectsOf(ProcessId owner) {
  return deps_.store.Adopt(owner, [](ObjectId) { return true; });
}

void Adoption::ForgetUnadoptedOf(ProcessId owner) {
  deps_.store.Adopt(owner, [this](ObjectId id) { return IsAdopted(id); });
}

void Adoption::OnOwnerDied(ProcessId owner) {
  LearnObjectsOf(owner);
  deps_.references.OwnerDied(owner);
}

void Adoption::AdoptObjectsOf(ProcessId owner) {
  Adopt(LearnObjectsOf(owner));
  if (!OtherNodes().empty()) {
    BeginGrace(owner);
  } else {
    ForgetUnadoptedOf(owner);
  }
}

void Adoption::BeginGrace(ProcessId owner) {
  const auto [entry, is_new] = grace_.try_emplace(owner);
  Grace& grace = entry->second;
  if (is_new) grace.until = Now() + kOrphanGrace;
  for (const ObjectId id : deps_.store.ObjectsOf(owner)) {
    if (IsAdopted(id) || grace.inside.contains(id)) continue;
    const auto object = deps_.store.Describe(id);
    if (!object.ok() || object->nested.empty()) continue;
    std::vector<ObjectId>& inside = grace.inside[id];
    for (const ObjectId inner : object->nested) {
      // What was the same owner's stays for as long.
      if (inner.maker() != owner && !IsDetachedActorHandle(inner)) inside.push_back(inner);
    }
    for (const ObjectId inner : inside) HoldInside(inner);
  }
}

void Adoption::HoldInside(ObjectId inner) {
  if (++nested_holds_[inner] == 1) deps_.references.Hold(Self(), inner);
}

void Adoption::UnholdInside(ObjectId inner) {
  const auto it = nested_holds_.find(inner);
  if (--it->second > 0) return;  // Another object may hold it as well.
  nested_holds_.erase(it);
  deps_.references.Unhold(Self(), inner);
}

void Adoption::Adopt(std::vector<ObjectId> candidates) {
  // What lies inside an adopted object is held by it, and so adopted itself if it is of the same
  // owner.
  while (!candidates.empty()) {
    const ObjectId id = candidates.back();
    candidates.pop_back();
    if (!deps_.references.IsHeld(id) || IsAdopted(id)) continue;
    const auto object = deps_.store.Describe(id);
    if (!object.ok()) continue;
    Counter(deps_.metrics, CounterId::kObjectsAdopted).Add();
    adopted_[id] = object->nested;
    for (const ObjectId nested : object->nested) {
      if (IsDetachedActorHandle(nested)) continue;
      HoldInside(nested);
      if (nested.maker() == id.maker()) candidates.push_back(nested);
    }
  }
}

void Adoption::OnNodeDead(NodeNumber node) {
  // Copies of what its processes owned.
  absl::btree_set<ProcessId> owners;
  deps_.store.ForEach([&](const StoreObjectInfo& object) {
    if (object.id.maker().node == node) owners.insert(object.id.maker());
  });
  for (const ProcessId owner : owners) AdoptObjectsOf(owner);
  orphans_.NodeGone(node);
  orphan_versions_.erase(node);
  deps_.references.DropHolder(RayletOf(node));
}

void Adoption::EndGrace() {
  std::vector<ProcessId> over;
  for (const auto& [owner, grace] : grace_) {
    if (grace.until <= Now()) over.push_back(owner);
  }
  for (const ProcessId owner : over) {
    const AdoptedObjects inside = std::move(grace_.at(owner).inside);
    grace_.erase(owner);
    const std::vector<ObjectId> objects = LearnObjectsOf(owner);
    for (const ObjectId id : objects) {
      if (!deps_.references.IsHeld(id)) Disown(id);
    }
    Adopt(objects);
    ForgetUnadoptedOf(owner);
    for (const auto& [id, inners] : inside) {  // What was adopted holds its own now.
      for (const ObjectId inner : inners) UnholdInside(inner);
    }
  }
}

// --- Objects go. ---

void Adoption::Settle() {
  SettleOrphans();
  SettleUnheld();
}

void Adoption::SettleUnheld() {
  // Dropping one adopted object can drop the last reference to another that lies inside it.
  for (std::vector<ObjectId> unheld = deps_.references.TakeUnheld(); !unheld.empty();
       unheld = deps_.references.TakeUnheld()) {
    for (const ObjectId id : unheld) {
      if (deps_.references.IsHeld(id)) continue;
      orphans_.Remove(id);
      if (IsInGrace(id.maker())) continue;  // Others may want it still.
      if (IsAdopted(id)) deps_.store.Free(id);
      Disown(id);
    }
  }
}

void Adoption::Disown(ObjectId id) {
  const auto it = adopted_.find(id);
  if (it == adopted_.end() || (deps_.references.IsHeld(id) && deps_.store.Contains(id))) return;
  const std::vector<ObjectId> nested = std::move(it->second);
  adopted_.erase(it);
  for (const ObjectId inner : nested) {
    if (!IsDetachedActorHandle(inner)) UnholdInside(inner);
  }
}

void Adoption::ForgetIfUnheld(ObjectId orphan) {
  if (!deps_.references.IsHeld(orphan)) orphans_.Remove(orphan);
}

void Adoption::AdoptLateObjectsOf(ProcessId owner) {
  const std::vector<ObjectId> objects = deps_.store.ObjectsOf(owner);
  if (std::any_of(objects.begin(), objects.end(), [this](ObjectId id) { return !IsAdopted(id); })) {
    AdoptObjectsOf(owner);
  }
}

std::vector<ProcessId> Adoption::FindUnknownMakers() {
  std::vector<ProcessId> found;
  const Nanos now = Now();
  if (now < next_look_for_makers_) return found;
  size_t objects = 0;
  absl::btree_map<ProcessId, Nanos> unknown;
  deps_.store.ForEach([&](const StoreObjectInfo& object) {
    ++objects;
    const ProcessId maker = object.id.maker();
    if (unknown.contains(maker) || IsAdopted(object.id)) return;
    const bool known = maker.node == deps_.view.local
                           ? deps_.deaths.IsAlive(maker)
                           : !deps_.view.complete || deps_.view.Find(maker.node) != nullptr;
    if (known) return;
    const auto since = unknown_makers_.find(maker);
    unknown[maker] = since == unknown_makers_.end() ? now : since->second;
  });
  for (const auto& [maker, since] : unknown) {
    if (now - since >= kUnknownFor) found.push_back(maker);
  }
  unknown_makers_ = std::move(unknown);
  next_look_for_makers_ = now + (objects > kMany ? kLookAtMany : kLookAtFew);
  return found;
}

// --- Orphans, and who asks for them. ---

void Adoption::SettleOrphans() {
  const std::vector<ObjectId> fresh = deps_.references.TakeOrphans();
  const bool alone = fresh.empty() || OtherNodes().empty();
  std::vector<ObjectId> settled;
  for (const ObjectId id : fresh) {
    if (!deps_.references.IsHeld(id)) continue;
    if (!alone && id.maker().node != kGcs.node && !deps_.store.Contains(id)) {
      orphans_.Add(id);
      if (orphans_.IsOpen(id)) continue;
    }
    settled.push_back(id);
  }
  for (const ObjectId id : orphans_.TakeSettled()) settled.push_back(id);
  if (settled.empty()) return;
  deps_.references.Settled(settled);
  AnswerQuestions();
}

void Adoption::Tick() {
  EndGrace();
  orphans_.Tick();
  if (!questions_.empty()) AnswerQuestions();
}

absl::Status Adoption::OnQuery(ProcessId from, const Frame& frame) {
  Question question;
  SHEAF_ASSIGN_OR_RETURN(question.query, ParseFrame<proto::AdoptedQuery>(frame));
  SHEAF_ASSIGN_OR_RETURN(question.ids, ParseIds(question.query.ids()));
  if (question.ids.size() > kMaxStoreItems) {
    return absl::InvalidArgumentError(
        absl::StrCat("a question about ", question.ids.size(), " objects of dead owners"));
  }
  for (const ObjectId id : question.ids) {
    if (deps_.references.IsHeld(id) && !deps_.store.Contains(id) && id.maker().node != kGcs.node) {
      orphans_.Add(id);
    }
  }
  if (IsAnswerable(question)) {
    Answer(from, question);
    return absl::OkStatus();
  }
  const std::pair<ProcessId, std::string> key{from, question.query.ids()};
  const auto known = questions_.find(key);
  if (known != questions_.end()) {  // Asked again: the last is answered.
    known->second.query = std::move(question.query);
  } else if (questions_.size() < kMostQuestions) {  // Else it will be asked again.
    question.until = Now() + kQuestionLimit;
    questions_.emplace(key, std::move(question));
  }
  return absl::OkStatus();
}

bool Adoption::IsAnswerable(const Question& question) const {
  const bool alone = OtherNodes().empty();
  return std::all_of(question.ids.begin(), question.ids.end(), [&](ObjectId id) {
    if (alone || id.maker().node == kGcs.node || deps_.store.Contains(id)) return true;
    return deps_.references.IsHeld(id) && !orphans_.IsOpen(id);
  });
}

void Adoption::Answer(ProcessId asker, const Question& question) {
  proto::AdoptedAnswer answer;
  answer.set_request(question.query.request());
  answer.set_ids(question.query.ids());
  for (const ObjectId id : question.ids) {
    const bool here = deps_.store.Contains(id);
    const std::vector<NodeNumber> places = orphans_.PlacesOf(id);
    answer.add_adopted(here || !places.empty());
    answer.add_nodes(here || places.empty() ? 0 : places.front());
  }
  SendMessage(deps_.transport.To(asker), FrameKind::kAdoptedAnswer, answer);
}

// Those that wait for nothing more, or have waited for long enough.
void Adoption::AnswerQuestions() {
  const Nanos now = Now();
  absl::erase_if(questions_, [&](const auto& entry) {
    const auto& [key, question] = entry;
    if (question.until > now && !IsAnswerable(question)) return false;
    if (deps_.deaths.IsAlive(key.first)) Answer(key.first, question);
    return true;
  });
}

void Adoption::OnProcessGone(ProcessId process) {
  absl::erase_if(questions_, [&](const auto& entry) { return entry.first.first == process; });
}

// Another node asks. What is here it keeps here, as a process of this node would.
absl::Status Adoption::OnOrphanRefs(ProcessId from, const Frame& frame) {
  SHEAF_ASSIGN_OR_RETURN(const auto message, ParseFrame<proto::OrphanRefs>(frame));
  SHEAF_ASSIGN_OR_RETURN(const std::vector<ObjectId> held, ParseIds(message.held_ids()));
  SHEAF_ASSIGN_OR_RETURN(const std::vector<ObjectId> dropped, ParseIds(message.dropped_ids()));
  uint64_t& last = orphan_versions_[from.node];
  if (message.version() < last) return absl::OkStatus();
  if (message.version() > last) {
    last = message.version();
    if (!held.empty()) LearnObjectsOf(held.front().maker());  // And all else that is sealed here.
    for (const ObjectId id : dropped) deps_.references.Unhold(from, id);
    std::vector<ObjectId> adopted;
    for (const ObjectId id : held) {
      if (!deps_.store.Contains(id)) continue;
      deps_.references.Hold(from, id);
      // While the owner's peers have not read all of it, that is for AdoptObjectsOf.
      if (deps_.deaths.IsDead(id.maker()) && !deps_.is_draining(id.maker())) adopted.push_back(id);
    }
    Adopt(std::move(adopted));
  }
  proto::OrphanRefsAck ack;
  ack.set_version(message.version());
  for (const ObjectId id : held) {
    if (deps_.references.Holds(from, id)) AppendId(ack.mutable_kept_ids(), id);
  }
  SendMessage(deps_.transport.To(from), FrameKind::kOrphanRefsAck, ack);
  return absl::OkStatus();
}

absl::Status Adoption::OnOrphanRefsAck(ProcessId from, const Frame& frame) {
  SHEAF_ASSIGN_OR_RETURN(const auto ack, ParseFrame<proto::OrphanRefsAck>(frame));
  return orphans_.OnAck(from.node, ack);
}

}  // namespace sheaf
