// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "worker/object_resolver.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "object_store/messages.h"
#include "worker/wire.h"

namespace sheaf {
namespace {

constexpr Nanos kAskAgain = kSecond;
// A raylet that says nothing about an object for so long does not have it. Its own pulls end
// sooner.
constexpr Nanos kSearchLimit = 60 * kSecond;

std::span<const ObjectId> IdsOf(std::string_view blob) {
  return {reinterpret_cast<const ObjectId*>(blob.data()), blob.size() / sizeof(ObjectId)};
}

Error OwnerDied(const ObjectEntry& object) {
  return {ErrorKind::kOwnerDied,
          absl::StrCat("the process ", object.id.maker().ToString(), " that owned the object ",
                       object.id.ToHex(), " has died, and no node has a copy of it"),
          {}};
}

}  // namespace

ObjectResolver::ObjectResolver(ProcessId self, Clock& clock, Transport& transport,
                               ReferenceTable& references, TaskTable& tasks, TransitTable& transits,
                               TaskDispatcher& submitter,
                               std::function<void(std::span<const ObjectId>)> look_up)
    : self_(self),
      clock_(clock),
      transport_(transport),
      references_(references),
      tasks_(tasks),
      transits_(transits),
      submitter_(submitter),
      look_up_(std::move(look_up)) {}

void ObjectResolver::Want(ObjectEntry& object) {
  if (object.released) tasks_.Remake(object, submitter_);
  if (object.ready() || object.owned || asked_.contains(object.id)) return;
  if (object.location.known()) {
    // The hint that came with the reference; should it be stale, Missing follows.
    references_.SetStored(object, object.location, object.size);
    return;
  }
  Ask(object, false);
}

void ObjectResolver::Ask(ObjectEntry& object, bool lost) {
  asked_[object.id] = {clock_.Now(), lost};
  const ProcessId owner = object.id.maker();
  if (dead_.contains(owner) || owner == kGcs) return AskRaylet(std::string(AsBytes(object.id)));
  transport_.To(owner).Send(Lane::kControl, FrameKind::kObjectQuery,
                            AsBytes(ObjectQueryHead{1, lost}), AsBytes(object.id));
}

void ObjectResolver::AskRaylet(std::string ids) {
  proto::AdoptedQuery query;
  query.set_request(next_request_++);
  query.set_ids(std::move(ids));
  SendMessage(transport_.To(RayletOf(self_.node)), FrameKind::kAdoptedQuery, query);
}

void ObjectResolver::Missing(ObjectEntry& object) { Seek(object, true); }

// Asks about `object`, unless that is under way.
void ObjectResolver::Seek(ObjectEntry& object, bool bring) {
  const ObjectId stored =
      object.extra && !object.extra->stored_as.is_nil() ? object.extra->stored_as : object.id;
  const Nanos now = clock_.Now();
  auto [search, fresh] = looking_up_.try_emplace(stored, Search{now, now, 0, bring});
  if (!fresh && (search->second.bring || !bring)) return;
  search->second.bring = bring;
  references_.List(object);  // The answer names it by id.
  if (stored != object.id) stored_names_[stored] = object.id;
  AskStore(stored, object, search->second);
}

void ObjectResolver::AskStore(ObjectId stored, const ObjectEntry& object, Search& search) {
  search.node = object.location.node != 0 ? object.location.node : self_.node;
  if (search.node == self_.node) {
    look_up_({&stored, 1});
    return;
  }
  const ProcessId raylet = RayletOf(search.bring ? self_.node : search.node);
  transport_.To(raylet).Send(Lane::kControl, kStoreFetch,
                             AsBytes(FetchWanted{stored, object.location, object.size}));
}

ObjectEntry* ObjectResolver::FindStored(ObjectId stored) {
  const auto named = stored_names_.find(stored);
  ObjectEntry* object = references_.Find(named == stored_names_.end() ? stored : named->second);
  return object == nullptr || object->state != ObjectState::kStore ? nullptr : object;
}

void ObjectResolver::OnLocated(ObjectId stored, const ObjectLocation* location,
                               const Error& why_not) {
  NodeNumber node = self_.node;
  if (const auto search = looking_up_.find(stored); search != looking_up_.end()) {
    node = search->second.node;
    looking_up_.erase(search);
  }
  ObjectEntry* object = FindStored(stored);
  stored_names_.erase(stored);
  if (object == nullptr) return;
  const bool outdated = location != nullptr && object->owned && object->location.known() &&
                        location->attempt < object->location.attempt;
  if (location != nullptr && !outdated) {
    if (object->owned) {
      references_.AddCopy(*object, *location);
    } else {
      object->location = *location;
    }
    AnswerDoubters(*object);
    return;
  }
  if (why_not.kind == ErrorKind::kObjectStoreFull) {
    ObjectExtra& extra = object->more();
    extra.unreachable = true;
    if (extra.error.kind == ErrorKind::kNone) extra.error = why_not;
    AnswerDoubters(*object);
    return;
  }
  OnNotThere(*object, node, why_not);
}

// `node` does not have it, or cannot be asked.
void ObjectResolver::OnNotThere(ObjectEntry& object, NodeNumber node, const Error& why) {
  if (!object.owned) return Lost(object, why);
  if (object.location.known() && object.location.node == node && node != self_.node) {
    // Should it have a copy after all, that must not outlive the object.
    transport_.To(RayletOf(node))
        .Send(Lane::kControl, kStoreFree, AsBytes(ObjectName{object.id, object.location}));
  }
  if (references_.DropCopy(object, node)) {
    if (doubters_.contains(object.id)) Seek(object, false);
    return;
  }
  references_.AddUse(object);
  Lost(object, why);
  AnswerDoubters(object);
  references_.DropUse(object);
}

void ObjectResolver::AnswerDoubters(ObjectEntry& object) {
  const auto found = doubters_.find(object.id);
  if (found == doubters_.end()) return;
  const std::vector<ProcessId> doubters = std::move(found->second);
  doubters_.erase(found);
  for (const ProcessId from : doubters) {
    references_.WhenReady(object, [this, from](ObjectEntry& ready) { Answer(from, ready); });
  }
}

void ObjectResolver::OnCopied(ProcessId from, std::span<const ObjectName> names) {
  std::string unknown;
  for (const ObjectName& name : names) {
    if (!from.is_raylet() || name.location.node != from.node || !name.location.known()) continue;
    ObjectEntry* object = references_.Find(name.id);
    const bool counts = object != nullptr && object->owned && object->location.known() &&
                        object->location.attempt == name.location.attempt;
    if (counts) {
      references_.AddCopy(*object, name.location);
    } else {
      unknown.append(AsBytes(name));
    }
  }
  if (!unknown.empty()) transport_.To(from).Send(Lane::kControl, kStoreFree, unknown);
}

void ObjectResolver::OnNodeGone(NodeNumber node) {
  std::vector<ObjectEntry*> lost;
  references_.ForEach([&](ObjectEntry& object) {
    const bool had = object.location.known();
    if (!had || references_.DropCopy(object, node)) return;
    if (object.owned && object.state == ObjectState::kStore) {
      references_.AddUse(object);
      lost.push_back(&object);
    }
  });
  std::vector<ObjectId> unanswered;
  for (const auto& [stored, search] : looking_up_) {
    if (search.node == node) unanswered.push_back(stored);
  }
  for (const ObjectId stored : unanswered) {
    looking_up_.erase(stored);
    ObjectEntry* object = FindStored(stored);
    stored_names_.erase(stored);
    // Where there is another copy it is looked for there; borrowed ones ask their owners.
    if (object != nullptr && object->location.known() && doubters_.contains(object->id)) {
      Seek(*object, false);
    }
  }
  // Arguments before the tasks that use them: they are older.
  std::sort(lost.begin(), lost.end(),
            [](const ObjectEntry* a, const ObjectEntry* b) { return a->id < b->id; });
  for (ObjectEntry* object : lost) {
    if (object->state == ObjectState::kStore && !object->location.known()) {
      Lost(*object, {ErrorKind::kObjectLost,
                     absl::StrCat("the object ", object->id.ToHex(), " was on node ", node,
                                  ", which died, and no other copy is left"),
                     {}});
    }
    AnswerDoubters(*object);
  }
  references_.DropUses(lost);
}

// No copy is left, or none that this process knows. The owner can make it again; a borrower tells
// the owner.
void ObjectResolver::Lost(ObjectEntry& object, const Error& why) {
  if (!object.owned) {
    references_.SetPending(object);
    Ask(object, true);
    return;
  }
  if (tasks_.Reconstruct(object, submitter_)) return;
  Error error = why;
  if (object.task != nullptr || object.recipe_evicted) {
    error.kind = ErrorKind::kReconstructionFailed;
    absl::StrAppend(&error.message, "; it cannot be made again: ", tasks_.WhyNotAgain(object));
  }
  references_.SetPending(object);
  references_.SetError(object, std::move(error));
}

void ObjectResolver::OnQuery(ProcessId from, std::string_view body) {
  WireReader in(body);
  const auto* mapped = in.Struct<ObjectQueryHead>();
  if (mapped == nullptr) return;
  const ObjectQueryHead head = *mapped;  // Once: the sender can still write there.
  const ObjectId* ids = in.Structs<ObjectId>(head.count);
  if (ids == nullptr) return;
  for (uint64_t i = 0; i < head.count; ++i) {
    ObjectEntry* object = references_.Find(ids[i]);
    if (object == nullptr || !object->owned) {
      std::string answer(AsBytes(ObjectAnswerHead{ids[i], 0}));
      const std::string text =
          EncodeError({ErrorKind::kObjectLost,
                       absl::StrCat("the object ", ids[i].ToHex(), " was freed by its owner"),
                       {}});
      ReturnHead error{};
      error.kind = ReturnKind::kError;
      error.bytes = static_cast<uint32_t>(text.size());
      WireWriter out(answer);
      out.Struct(error);
      out.Bytes(text);
      transport_.To(from).Send(Lane::kControl, FrameKind::kObjectAnswer, answer);
      continue;
    }
    if (object->state == ObjectState::kStore && (head.lost != 0 || !object->location.known())) {
      std::vector<ProcessId>& doubters = doubters_[object->id];
      if (std::find(doubters.begin(), doubters.end(), from) == doubters.end())
        doubters.push_back(from);
      Seek(*object, false);
      continue;
    }
    if (object->released) tasks_.Remake(*object, submitter_);
    references_.WhenReady(*object, [this, from](ObjectEntry& ready) { Answer(from, ready); });
  }
}

void ObjectResolver::Answer(ProcessId to, ObjectEntry& object) {
  std::vector<ObjectHandle> travelling;
  std::vector<NestedReference> nested;
  if (object.extra) {
    for (ObjectEntry* inner : object.extra->nested) {
      travelling.emplace_back(inner);
      nested.push_back(references_.Outgoing(*inner));
    }
  }
  std::string text;
  std::string_view bytes;
  ReturnHead value{};
  if (object.state == ObjectState::kError) {
    value.kind = ReturnKind::kError;
    bytes = text = EncodeError(object.extra->error);
  } else if (object.location.known() && (!object.extra || object.extra->stored_as.is_nil())) {
    value.kind = ReturnKind::kStore;
    value.location = object.location;
    value.size = object.size;
  } else {
    bytes = object.value;
  }
  value.bytes = static_cast<uint32_t>(bytes.size());
  value.nested_count = static_cast<uint32_t>(nested.size());
  std::string answer(
      AsBytes(ObjectAnswerHead{object.id, transits_.Hold(to, std::move(travelling))}));
  WireWriter out(answer);
  out.Struct(value);
  out.Bytes(bytes);
  for (const NestedReference& reference : nested) out.Struct(reference);
  transport_.To(to).Send(Lane::kControl, FrameKind::kObjectAnswer, answer);
}

void ObjectResolver::OnAnswer(ProcessId from, std::string_view body) {
  WireReader in(body);
  const auto* head = in.Struct<ObjectAnswerHead>();
  const auto* mapped = in.Struct<ReturnHead>();
  if (mapped == nullptr) return;
  const ReturnHead copied = *mapped;  // Once: the sender can still write there.
  const ReturnHead* const value = &copied;
  const std::string_view bytes = in.Bytes(value->bytes);
  const auto* listed = in.Structs<NestedReference>(value->nested_count);
  if (in.failed()) return;
  std::vector<ObjectEntry*> nested = references_.IncomingAll({listed, value->nested_count});
  if (head->transit != 0) {
    references_.AfterRegistered(nested, [this, from, transit = head->transit] {
      transport_.To(from).Send(Lane::kControl, FrameKind::kTransitDone,
                               AsBytes(TransitDone{transit, 0, 0, 0}));
    });
  }
  asked_.erase(head->id);
  ObjectEntry* object = references_.Find(head->id);
  if (object == nullptr || object->owned || object->released || object->id.maker() != from) {
    references_.DropUses(nested);
    return;
  }
  switch (value->kind) {
    case ReturnKind::kValue:
      references_.SetValue(*object, bytes, std::move(nested));
      return;
    case ReturnKind::kStore:
      references_.SetStored(*object, value->location, value->size, std::move(nested));
      return;
    case ReturnKind::kError:
      references_.SetError(*object, DecodeError(bytes));
      return;
  }
  references_.DropUses(nested);
}

void ObjectResolver::OnAdopted(const proto::AdoptedAnswer& answer) {
  const std::span<const ObjectId> ids = IdsOf(answer.ids());
  const size_t nodes = static_cast<size_t>(answer.nodes_size());
  for (size_t i = 0; i < ids.size() && i < static_cast<size_t>(answer.adopted_size()); ++i) {
    asked_.erase(ids[i]);
    ObjectEntry* object = references_.Find(ids[i]);
    if (object == nullptr || object->owned || object->released || object->ready()) continue;
    if (answer.adopted(static_cast<int>(i))) {
      // Where in its store, a lookup says.
      references_.SetStored(*object, {.node = i < nodes ? answer.nodes(static_cast<int>(i)) : 0},
                            0);
    } else {
      references_.SetError(*object, OwnerDied(*object));
    }
  }
}

void ObjectResolver::OnOrphans(std::string_view ids) {
  std::vector<ObjectEntry*> orphans;
  for (ObjectId id : IdsOf(ids)) {
    dead_.insert(id.maker());
    ObjectEntry* object = references_.Find(id);
    if (object != nullptr && !object->owned) orphans.push_back(object);
  }
  AskAboutOrphans(orphans);
}

void ObjectResolver::OnProcessDied(ProcessId process) {
  dead_.insert(process);
  AskAboutOrphans(references_.BorrowedFrom(process));
}

// Their owners are dead: in as few questions as may be about all that are not ready.
void ObjectResolver::AskAboutOrphans(std::span<ObjectEntry* const> orphans) {
  std::string ids;
  for (const ObjectEntry* object : orphans) {
    if (object->ready() || object->released) continue;
    asked_[object->id] = {clock_.Now(), false};
    ids.append(AsBytes(object->id));
    if (ids.size() == kMaxStoreItems * sizeof(ObjectId)) AskRaylet(std::exchange(ids, {}));
  }
  if (!ids.empty()) AskRaylet(std::move(ids));
}

Nanos ObjectResolver::Tick() {
  const Nanos now = clock_.Now();
  Nanos next = kForever;
  std::vector<ObjectId> again, gone;
  for (auto& [id, question] : asked_) {
    if (now - question.asked_at >= kAskAgain) again.push_back(id);
    next = std::min(next, question.asked_at + kAskAgain);
  }
  std::vector<ObjectEntry*> orphans;
  for (ObjectId id : again) {
    ObjectEntry* object = references_.Find(id);
    if (object == nullptr || object->ready() || object->released) {
      asked_.erase(id);
    } else if (dead_.contains(id.maker())) {
      orphans.push_back(object);
    } else {
      Ask(*object, asked_[id].lost);
    }
  }
  AskAboutOrphans(orphans);
  std::vector<ObjectId> lookups, unknown, silent;
  for (auto& [stored, search] : looking_up_) {
    if (now - search.asked_at >= kAskAgain) {
      search.asked_at = now;
      const ObjectEntry* object = FindStored(stored);
      if (object == nullptr) {
        unknown.push_back(stored);
      } else if (search.node != self_.node && now - search.since >= kSearchLimit) {
        silent.push_back(stored);
      } else if (object->location.node != 0 && object->location.node != self_.node) {
        AskStore(stored, *object, search);
      } else {
        search.node = self_.node;
        lookups.push_back(stored);
      }
    }
    next = std::min(next, search.asked_at + kAskAgain);
  }
  for (const ObjectId stored : unknown) {
    looking_up_.erase(stored);
    stored_names_.erase(stored);
  }
  for (const ObjectId stored : silent) {
    OnLocated(stored, nullptr,
              {ErrorKind::kObjectLost,
               absl::StrCat("the node of the object ", stored.ToHex(), " does not answer"),
               {}});
  }
  if (!lookups.empty()) look_up_(lookups);
  return next;
}

}  // namespace sheaf
