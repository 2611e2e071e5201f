// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "worker/object_resolver.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "worker/wire.h"

namespace sheaf {
namespace {

constexpr Nanos kAskAgain = kSecond;

std::span<const ObjectId> IdsOf(std::string_view blob) {
  return {reinterpret_cast<const ObjectId*>(blob.data()), blob.size() / sizeof(ObjectId)};
}

Error OwnerDied(const ObjectEntry& object) {
  return {ErrorKind::kOwnerDied,
          absl::StrCat("the process ", object.id.maker().ToString(), " that owned the object ",
                       object.id.ToHex(), " has died, and no copy of it is left on this node"),
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
  if (dead_.contains(owner) || owner == kGcs) {
    proto::AdoptedQuery query;
    query.set_request(next_request_++);
    query.set_ids(std::string(AsBytes(object.id)));
    SendMessage(transport_.To(RayletOf(self_.node)), FrameKind::kAdoptedQuery, query);
    return;
  }
  transport_.To(owner).Send(Lane::kControl, FrameKind::kObjectQuery,
                            AsBytes(ObjectQueryHead{1, lost}), AsBytes(object.id));
}

void ObjectResolver::Missing(ObjectEntry& object) {
  const ObjectId stored =
      object.extra && !object.extra->stored_as.is_nil() ? object.extra->stored_as : object.id;
  auto [looking, fresh] = looking_up_.try_emplace(stored, clock_.Now());
  if (!fresh) return;
  references_.List(object);  // The answer names it by id.
  if (stored != object.id) stored_names_[stored] = object.id;
  look_up_({&stored, 1});
}

void ObjectResolver::OnLocated(ObjectId stored, const ObjectLocation* location,
                               const Error& why_not) {
  looking_up_.erase(stored);
  ObjectId id = stored;
  if (auto named = stored_names_.find(stored); named != stored_names_.end()) {
    id = named->second;
    stored_names_.erase(named);
  }
  ObjectEntry* object = references_.Find(id);
  if (object == nullptr || object->state != ObjectState::kStore) return;
  if (location != nullptr) {
    object->location = *location;
    return;
  }
  if (why_not.kind == ErrorKind::kObjectStoreFull) {
    ObjectExtra& extra = object->more();
    extra.unreachable = true;
    if (extra.error.kind == ErrorKind::kNone) extra.error = why_not;
    return;
  }
  Lost(*object, why_not);
}

// No copy on this node. The owner can make it again; a borrower tells the owner.
void ObjectResolver::Lost(ObjectEntry& object, const Error& why) {
  if (!object.owned) {
    references_.SetPending(object);
    Ask(object, true);
    return;
  }
  if (tasks_.Reconstruct(object, submitter_)) return;
  references_.SetPending(object);
  references_.SetError(object, why);
}

void ObjectResolver::OnQuery(ProcessId from, std::string_view body) {
  WireReader in(body);
  const auto* head = in.Struct<ObjectQueryHead>();
  const ObjectId* ids = head == nullptr ? nullptr : in.Structs<ObjectId>(head->count);
  if (ids == nullptr) return;
  for (uint64_t i = 0; i < head->count; ++i) {
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
    if (head->lost != 0 && object->state == ObjectState::kStore) Missing(*object);
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
  const auto* value = in.Struct<ReturnHead>();
  if (value == nullptr) return;
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
  if (object == nullptr || object->owned || object->id.maker() != from) {
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
  for (size_t i = 0; i < ids.size() && i < static_cast<size_t>(answer.adopted_size()); ++i) {
    asked_.erase(ids[i]);
    ObjectEntry* object = references_.Find(ids[i]);
    if (object == nullptr || object->owned || object->ready()) continue;
    if (answer.adopted(static_cast<int>(i))) {
      references_.SetStored(*object, {}, 0);  // Where in the store, a lookup says.
    } else {
      references_.SetError(*object, OwnerDied(*object));
    }
  }
}

void ObjectResolver::OnOrphans(std::string_view ids) {
  for (ObjectId id : IdsOf(ids)) {
    dead_.insert(id.maker());
    ObjectEntry* object = references_.Find(id);
    if (object != nullptr && !object->owned && !object->ready()) Ask(*object, false);
  }
}

void ObjectResolver::OnProcessDied(ProcessId process) {
  dead_.insert(process);
  for (ObjectEntry* object : references_.BorrowedFrom(process)) {
    if (!object->ready()) Ask(*object, false);
  }
}

Nanos ObjectResolver::Tick() {
  const Nanos now = clock_.Now();
  Nanos next = kForever;
  std::vector<ObjectId> again, gone;
  for (auto& [id, question] : asked_) {
    if (now - question.asked_at >= kAskAgain) again.push_back(id);
    next = std::min(next, question.asked_at + kAskAgain);
  }
  for (ObjectId id : again) {
    ObjectEntry* object = references_.Find(id);
    if (object == nullptr || object->ready()) {
      asked_.erase(id);
    } else {
      Ask(*object, asked_[id].lost);
    }
  }
  std::vector<ObjectId> lookups;
  for (auto& [stored, asked_at] : looking_up_) {
    if (now - asked_at >= kAskAgain) {
      lookups.push_back(stored);
      asked_at = now;
    }
    next = std::min(next, asked_at + kAskAgain);
  }
  if (!lookups.empty()) look_up_(lookups);
  return next;
}

}  // namespace sheaf
