// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The steps of a user's operations that never wait: values, calls and their results.
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "worker/core/process_core.h"
#include "worker/owner/argument_codec.h"
#include "worker/wire.h"

namespace sheaf {

// --- Objects. ---

// As a value holds the references inside it.
std::vector<ObjectEntry*> ProcessCore::UsesOf(std::span<const ObjectHandle> handles) {
  std::vector<ObjectEntry*> out;
  out.reserve(handles.size());
  for (const ObjectHandle& handle : handles) {
    owner.references.AddUse(*handle.entry());
    out.push_back(handle.entry());
  }
  return out;
}

void ProcessCore::CountPut(uint64_t* puts, uint64_t bytes) {
  ++*puts;
  object_counts_.put_bytes += bytes;
  object_bytes_.ObserveUnderLock(static_cast<int64_t>(bytes));
}

ObjectHandle ProcessCore::PutValue(std::string_view bytes, std::span<const ObjectHandle> nested) {
  ObjectEntry* entry = owner.references.NewOwned(NextName());
  ObjectHandle handle(entry);
  owner.references.SetValue(*entry, bytes, UsesOf(nested));
  CountPut(&object_counts_.puts_private, bytes.size());
  return handle;
}

ObjectHandle ProcessCore::AddStored(ObjectId id, const ObjectLocation& location, uint64_t size,
                                    std::span<const ObjectHandle> nested) {
  ObjectEntry* entry = owner.references.NewOwned(id);
  ObjectHandle handle(entry);
  owner.references.SetStored(*entry, location, size, UsesOf(nested));
  return handle;
}

ObjectHandle ProcessCore::SealOwned(MutableBuffer buffer, std::span<const ObjectHandle> nested) {
  const ObjectId id = store->IdOf(buffer);
  const uint64_t size = buffer.size();
  const ObjectLocation location = Seal(std::move(buffer));
  return AddStored(id, location, size, nested);
}

ObjectLocation ProcessCore::Seal(MutableBuffer buffer) {
  CountPut(&object_counts_.puts_store, buffer.size());
  return store->Seal(std::move(buffer));
}

bool ProcessCore::TryView(const ObjectHandle& object, ObjectView* view) {
  ObjectEntry& entry = *object.entry();
  switch (entry.state) {
    case ObjectState::kPending:
      owner.resolver.Want(entry);
      return entry.ready() && TryView(object, view);
    case ObjectState::kValue:
      entry.viewed = true;
      view->bytes = entry.value;
      view->handle = object;
      ++object_counts_.gets_private;
      break;
    case ObjectState::kError:
      view->error = &entry.extra->error;
      view->handle = object;
      return true;
    case ObjectState::kStore: {
      if (entry.extra && std::exchange(entry.extra->unreachable, false)) {
        view->error = &entry.extra->error;
        view->handle = object;
        return true;
      }
      const ObjectId stored =
          entry.extra && !entry.extra->stored_as.is_nil() ? entry.extra->stored_as : entry.id;
      absl::StatusOr<StoredObject> found = store->Get(stored, entry.location);
      if (!found.ok()) {
        owner.resolver.Missing(entry);
        return false;
      }
      if (!found->nested.empty() && (!entry.extra || entry.extra->nested.empty())) {
        std::vector<NestedReference> references;
        for (ObjectId id : found->nested) references.push_back({id, {}});
        entry.more().nested = owner.references.IncomingAll(references);
      }
      view->bytes = found->bytes.view();
      view->keep = std::move(found->bytes);
      view->handle = object;
      ++object_counts_.gets_store;
      break;
    }
  }
  if (entry.extra) {
    view->nested.clear();
    for (ObjectEntry* inner : entry.extra->nested) view->nested.emplace_back(inner);
  }
  return true;
}

bool ProcessCore::TryViewPart(const ObjectPart& part, ObjectView* view) {
  ObjectEntry& entry = *part.object.entry();
  const bool here = entry.state == ObjectState::kValue ||
                    (entry.state == ObjectState::kStore && store->Has(entry.location));
  const bool viewed = here && TryView(part.object, view) && view->error == nullptr;
  // One that does not fit is refused where parts are fetched.
  if (!viewed || part.offset > view->bytes.size() ||
      part.bytes > view->bytes.size() - part.offset) {
    *view = {};
    return false;
  }
  view->bytes = view->bytes.substr(part.offset, part.bytes);
  view->nested.clear();
  return true;
}

std::string ProcessCore::WhatItWaitsFor(const ObjectEntry& object) const {
  const std::string name = absl::StrCat("the object ", object.id.ToHex());
  if (!object.owned)
    return absl::StrCat(name, " of process ", object.id.maker().ToString(), " is not there yet");
  if (object.task == nullptr) return absl::StrCat(name, " is being restored");
  return absl::StrCat(owner.tasks.Describe(*object.task), " ", owner.WordsOf(*object.task));
}

std::vector<NestedReference> ProcessCore::Outgoing(std::span<const ObjectHandle> nested) {
  std::vector<NestedReference> out;
  out.reserve(nested.size());
  for (const ObjectHandle& handle : nested)
    out.push_back(owner.references.Outgoing(*handle.entry()));
  return out;
}

// --- Calls. ---

TemplateHandle ProcessCore::MakeTemplate(proto::TaskTemplate spec) {
  if (spec.kind() == proto::TaskTemplate::ACTOR_CREATION) spec.mutable_lease()->set_actor(true);
  if (spec.kind() != proto::TaskTemplate::ACTOR_METHOD && spec.lease().name().empty())
    spec.mutable_lease()->set_name(spec.name());
  return owner.templates.Make(std::move(spec));
}

TaskRecord* ProcessCore::AddTask(const TemplateHandle& spec, ArgumentList* arguments,
                                 const CallOrigin& parent) {
  std::unique_ptr<TaskReferences> references =
      ArgumentCodec::TakeReferences(owner.references, *arguments);
  for (size_t i = 0; references && i < references->arguments.size(); ++i) {
    ObjectEntry& object = *references->arguments[i].object;
    if (!object.ready()) owner.resolver.Want(object);
  }
  return owner.tasks.Add(*spec, ArgumentCodec::TakeBytes(*arguments), std::move(references),
                         parent);
}

std::vector<ObjectHandle> ProcessCore::HandlesOf(const TaskRecord& task) {
  std::vector<ObjectHandle> handles{ObjectHandle(task.first_return)};
  if (task.references) {
    for (ObjectEntry* more : task.references->more_returns) handles.emplace_back(more);
  }
  return handles;
}

std::vector<ObjectHandle> ProcessCore::Submit(const TemplateHandle& spec, ArgumentList* arguments,
                                              const CallOrigin& parent) {
  TaskRecord* task = AddTask(spec, arguments, parent);
  std::vector<ObjectHandle> handles = HandlesOf(*task);
  owner.submitter.Submit(*task);
  return handles;
}

ObjectHandle ProcessCore::SubmitOne(const TemplateHandle& spec, ArgumentList* arguments,
                                    const CallOrigin& parent) {
  TaskRecord* task = AddTask(spec, arguments, parent);
  ObjectHandle handle(task->first_return);
  owner.submitter.Submit(*task);
  return handle;
}

std::vector<ObjectHandle> ProcessCore::SubmitToActor(ActorClient& client, const ObjectHandle& actor,
                                                     const TemplateHandle& method,
                                                     ArgumentList* arguments,
                                                     const CallOrigin& parent) {
  TaskRecord* task = AddTask(method, arguments, parent);
  std::vector<ObjectHandle> handles = HandlesOf(*task);
  owner.actors.Submit(client, *actor.entry(), *task);
  return handles;
}

ObjectHandle ProcessCore::SubmitOneToActor(ActorClient& client, const ObjectHandle& actor,
                                           const TemplateHandle& method, ArgumentList* arguments,
                                           const CallOrigin& parent) {
  TaskRecord* task = AddTask(method, arguments, parent);
  ObjectHandle handle(task->first_return);
  owner.actors.Submit(client, *actor.entry(), *task);
  return handle;
}

// --- Calls of others. ---

bool ProcessCore::MayStart(CallExecution& call, const absl::Status& fetched) {
  if (call.cancelled()) [[unlikely]] {
    call.Fail(CancelledBeforeStart(call.name()), false);
    return false;
  }
  if (fetched.ok()) [[likely]]
    return true;
  const ErrorKind kind =
      absl::IsResourceExhausted(fetched) ? ErrorKind::kObjectStoreFull : ErrorKind::kObjectLost;
  call.Fail({kind, std::string(fetched.message()), {}}, true);
  return false;
}

void ProcessCore::SendItem(CallExecution& call, std::string item,
                           std::span<const ObjectHandle> nested) {
  StreamItemHead head;
  ReturnHead value;
  std::memcpy(&head, item.data(), sizeof head);
  std::memcpy(&value, item.data() + sizeof head, sizeof value);
  call.NoteSent(value.kind == ReturnKind::kStore ? value.size : value.bytes);
  head.index = call.stream_sent++;
  head.transit =
      owner.transits.Hold(call.owner, std::vector<ObjectHandle>(nested.begin(), nested.end()));
  std::memcpy(item.data(), &head, sizeof head);
  transport.To(call.owner).Send(Lane::kControl, FrameKind::kStreamItem, item);
}

void ProcessCore::EndConstruction(const Error& failure, bool from_raylet) {
  executor.CountConstructed(failure);
  if (!from_raylet) return;
  proto::ActorReport report;
  report.mutable_actor()->set_actor_id(executor.actor_id().ToHex());
  report.mutable_actor()->set_state(failure.kind == ErrorKind::kNone ? "ALIVE" : "DEAD");
  report.mutable_actor()->set_process(self.packed());
  report.mutable_actor()->set_death(failure.message);
  SendMessage(raylet(), FrameKind::kActorReport, report);
}

}  // namespace sheaf
