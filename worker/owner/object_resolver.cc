// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "worker/owner/object_resolver.h"

#include <algorithm>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "object_store/messages.h"
#include "worker/wire.h"

namespace sheaf {
namespace {

constexpr Nanos kSearchAgain = kSecond;
// A raylet that is at it says so whenever it is asked again. One that says nothing about an object
// for so long does not have it.
constexpr Nanos kSearchLimit = 60 * kSecond;

Error OwnerDied(const ObjectEntry& object) {
  return {ErrorKind::kOwnerDied,
          absl::StrCat("the process ", object.id.maker().ToString(), " that owned the object ",
                       object.id.ToHex(), " has died, and no node has a copy of it"),
          {}};
}

}  // namespace

ObjectResolver::ObjectResolver(ProcessId self, Clock& clock, Transport& transport,
                               LocalStore& store, ReferenceTable& references, TaskTable& tasks,
                               TransitTable& transits, TaskDispatcher& submitter,
                               std::function<void(std::span<const ObjectId>)> look_up)
    : self_(self),
      clock_(clock),
      transport_(transport),
      store_(store),
      references_(references),
      tasks_(tasks),
      transits_(transits),
      submitter_(submitter),
      look_up_(std::move(look_up)),
      questions_(self, clock, transport, references),
      late_answers_(clock) {}

void ObjectResolver::Want(ObjectEntry& object) {
  if (object.released) tasks_.Remake(object, submitter_);
  if (object.ready() || object.owned || questions_.IsAsked(object.id)) return;
  if (object.location.known()) {
    // The hint that came with the reference; should it be stale, Missing follows.
    references_.SetStored(object, object.location, object.size);
    return;
  }
  questions_.Ask(object, false);
}

void ObjectResolver::SetAgain(ObjectId stored, Search& search) {
  searched_again_.erase({search.again_at, stored});
  search.again_at = clock_.Now() + kSearchAgain;
  searched_again_.emplace(search.again_at, stored);
}

// False: there was none.
bool ObjectResolver::ForgetSearch(ObjectId stored, Search* was) {
  const auto search = looking_up_.find(stored);
  if (search == looking_up_.end()) return false;
  *was = search->second;
  searched_again_.erase({search->second.again_at, stored});
  looking_up_.erase(search);
  return true;
}

void ObjectResolver::Missing(ObjectEntry& object) { Seek(object, true); }

bool ObjectResolver::IsHere(const ObjectEntry& object) const {
  if (object.state != ObjectState::kStore) return object.ready();
  return store_.Has(object.location) || (object.extra && object.extra->unreachable);
}

void ObjectResolver::WhenHere(ObjectEntry& object, Hook hook) {
  Want(object);
  if (IsHere(object)) return hook(object);
  if (!object.ready()) {
    references_.WhenReady(object, [this, hook = std::move(hook)](ObjectEntry& ready) mutable {
      WhenHere(ready, std::move(hook));
    });
    return;
  }
  references_.AddUse(object);
  awaited_[object.id].push_back(std::move(hook));
  Missing(object);
}

// Something has become known of `id`: whoever awaits it looks again.
void ObjectResolver::Settle(ObjectId id) {
  ++arrivals_;
  const auto awaited = awaited_.find(id);
  if (awaited == awaited_.end()) return;
  std::vector<Hook> hooks = std::move(awaited->second);
  awaited_.erase(awaited);
  ObjectEntry* const object = references_.Find(id);  // Listed when it was sought, and used since.
  if (object == nullptr) return;
  for (Hook& hook : hooks) WhenHere(*object, std::move(hook));
  for (size_t i = 0; i < hooks.size(); ++i) references_.DropUse(*object);
}

// Asks about `object`, unless that is under way.
void ObjectResolver::Seek(ObjectEntry& object, bool bring) {
  const ObjectId stored =
      object.extra && !object.extra->stored_as.is_nil() ? object.extra->stored_as : object.id;
  const Nanos now = clock_.Now();
  auto [search, fresh] = looking_up_.try_emplace(stored, Search{0, now, 0, bring});
  if (!fresh && (search->second.bring || !bring)) return;
  search->second.bring = bring;
  SetAgain(stored, search->second);
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

ObjectId ObjectResolver::NameOf(ObjectId stored) const {
  const auto named = stored_names_.find(stored);
  return named == stored_names_.end() ? stored : named->second;
}

ObjectEntry* ObjectResolver::FindStored(ObjectId stored) {
  ObjectEntry* object = references_.Find(NameOf(stored));
  return object == nullptr || object->state != ObjectState::kStore ? nullptr : object;
}

void ObjectResolver::OnLocated(ObjectId stored, const ObjectLocation* location,
                               const Error& why_not) {
  Search search;
  const NodeNumber node = ForgetSearch(stored, &search) ? search.node : self_.node;
  ObjectEntry* object = FindStored(stored);
  const ObjectId name = NameOf(stored);
  stored_names_.erase(stored);
  // At the end, when the object is what the answer makes of it.
  const absl::Cleanup settle = [this, name] { Settle(name); };
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
  if (why_not.kind == ErrorKind::kObjectStoreFull || why_not.kind == ErrorKind::kTimeout) {
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
  for (const ProcessId from : doubters) AnswerWhenReady(object, from);
}

// One answer, however often it asks until then.
void ObjectResolver::AnswerWhenReady(ObjectEntry& object, ProcessId from) {
  if (object.ready()) return AnswerOnceKept(from, object);
  std::vector<ProcessId>& askers = object.more().askers;
  const auto place = std::lower_bound(askers.begin(), askers.end(), from);
  if (place != askers.end() && *place == from) return;
  const bool first = askers.empty();
  askers.insert(place, from);
  if (!first) return;
  references_.WhenReady(object, [this](ObjectEntry& ready) {
    for (const ProcessId asker : std::exchange(ready.extra->askers, {})) {
      if (!questions_.IsDead(asker)) AnswerOnceKept(asker, ready);
    }
  });
}

void ObjectResolver::AnswerOnceKept(ProcessId from, ObjectEntry& object) {
  if (late_answers_.Wants(object)) [[unlikely]]
    return late_answers_.Add(from, object);
  Answer(from, object);
}

void ObjectResolver::AnswerKept() {
  late_answers_.Take([this](ProcessId to, ObjectEntry& object) {
    if (!questions_.IsDead(to)) AnswerWhenReady(object, to);
  });
}

void ObjectResolver::OnComing(ObjectId stored) {
  const auto search = looking_up_.find(stored);
  if (search != looking_up_.end()) search->second.heard_at = clock_.Now();
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
    Search search;
    ForgetSearch(stored, &search);
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
  std::vector<ObjectId> awaited;
  for (const auto& [id, hooks] : awaited_) awaited.push_back(id);
  for (const ObjectId id : awaited) Settle(id);
}

// No copy is left, or none that this process knows. The owner can make it again; a borrower tells
// the owner.
void ObjectResolver::Lost(ObjectEntry& object, const Error& why) {
  if (!object.owned) {
    references_.SetPending(object);
    questions_.Ask(object, true);
    return;
  }
  if (tasks_.Reconstruct(object, submitter_)) return;
  Error error = why;
  if (object.of_call) {
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
    // The value is here: it is said, and gets another copy. This one would be named for ever.
    if (object->state == ObjectState::kValue && head.lost != 0 && object->location.known()) {
      references_.SetStoredAgain(*object, {}, 0, {});
      Answer(from, *object);
      continue;
    }
    if (object->released) tasks_.Remake(*object, submitter_);
    AnswerWhenReady(*object, from);
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
  questions_.Forget(head->id);
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
  const std::span<const ObjectId> ids = FrameItems<ObjectId>(answer.ids());
  const size_t nodes = static_cast<size_t>(answer.nodes_size());
  for (size_t i = 0; i < ids.size() && i < static_cast<size_t>(answer.adopted_size()); ++i) {
    questions_.Forget(ids[i]);
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

Nanos ObjectResolver::Tick() {
  const Nanos now = clock_.Now();
  Nanos next = questions_.Tick();
  SearchAgain(now);
  if (!searched_again_.empty()) next = std::min(next, searched_again_.begin()->first);
  if (late_answers_.empty()) return next;
  AnswerKept();
  return std::min(next, late_answers_.next());
}

// About all that is due at a raylet in as few frames as may be.
void ObjectResolver::SearchAgain(Nanos now) {
  absl::btree_map<ProcessId, std::vector<FetchWanted>> by_raylet;
  std::vector<ObjectId> lookups;
  std::vector<std::pair<ObjectId, bool>> silent;
  while (!searched_again_.empty() && searched_again_.begin()->first <= now) {
    const ObjectId stored = searched_again_.begin()->second;
    Search& search = looking_up_.at(stored);
    SetAgain(stored, search);
    const ObjectEntry* object = FindStored(stored);
    if (object == nullptr) {
      const ObjectId name = NameOf(stored);
      Search over;
      ForgetSearch(stored, &over);
      stored_names_.erase(stored);
      Settle(name);
    } else if (search.node != self_.node && now - search.heard_at >= kSearchLimit) {
      silent.emplace_back(stored, search.bring);
    } else if (object->location.node != 0 && object->location.node != self_.node) {
      search.node = object->location.node;
      by_raylet[RayletOf(search.bring ? self_.node : search.node)].push_back(
          {stored, object->location, object->size});
    } else {
      search.node = self_.node;
      lookups.push_back(stored);
    }
  }
  for (const auto& [raylet, wanted] : by_raylet) {
    for (size_t at = 0; at < wanted.size(); at += kMaxStoreItems) {
      const auto some = std::span(wanted).subspan(at, std::min(kMaxStoreItems, wanted.size() - at));
      transport_.To(raylet).Send(Lane::kControl, kStoreFetch, ItemsAsBytes(some));
    }
  }
  if (!lookups.empty()) look_up_(lookups);
  for (const auto& [stored, bring] : silent) {
    // The raylet of this node knows nothing bad of it: it is not lost, only out of reach.
    const Error why =
        bring ? Error{ErrorKind::kTimeout,
                      absl::StrCat("the raylet of this node has said nothing about the object ",
                                   stored.ToHex(), " for ", kSearchLimit / kSecond,
                                   " s; the next get asks again"),
                      {}}
              : Error{ErrorKind::kObjectLost,
                      absl::StrCat("the node of the object ", stored.ToHex(), " does not answer"),
                      {}};
    OnLocated(stored, nullptr, why);
  }
}

}  // namespace sheaf
