// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What user code may call, in the order of steps of worker/runtime_calls.cc, runtime_objects.cc and
// runtime_node.cc.
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/sim/process.h"
#include "worker/wire.h"

namespace sheaf::sim {

void Arguments::AddValue(std::string_view bytes, std::span<const ObjectHandle> nested) {
  WireWriter out(encoded_);
  out.Struct(ArgumentHead{ArgumentKind::kValue, static_cast<uint32_t>(bytes.size())});
  out.Bytes(bytes);
  nested_.insert(nested_.end(), nested.begin(), nested.end());
}

void Arguments::AddReference(const ObjectHandle& object) {
  references_.emplace_back(object, static_cast<uint32_t>(encoded_.size()));
  WireWriter(encoded_).Struct(ArgumentHead{ArgumentKind::kValue, 0});
}

TemplateRecord& Process::Template(const std::string& key,
                                  const std::function<void(proto::TaskTemplate*)>& fill) {
  std::unique_ptr<TemplateRecord>& made = templates_[key];
  if (!made) {
    made = std::make_unique<TemplateRecord>();
    fill(&made->spec);
    made->spec.set_name(key);
    if (made->spec.lease().name().empty()) made->spec.mutable_lease()->set_name(key);
    if (made->spec.kind() == proto::TaskTemplate::ACTOR_CREATION)
      made->spec.mutable_lease()->set_actor(true);
    made->spec.set_number(static_cast<uint32_t>(templates_.size()));
    made->wire = made->spec.SerializeAsString();
  }
  return *made;
}

ObjectHandle Process::Put(std::string_view bytes, std::span<const ObjectHandle> nested) {
  ObjectEntry* entry =
      owner_->references.NewOwned(ObjectId::Make(self, owner_->references.NextSequence(), 1));
  ObjectHandle handle(entry);
  std::vector<ObjectEntry*> uses;
  for (const ObjectHandle& inner : nested) {
    owner_->references.AddUse(*inner.entry());
    uses.push_back(inner.entry());
  }
  owner_->references.SetValue(*entry, bytes, std::move(uses));
  return handle;
}

Async<bool> Process::CreateNamed(Context context, ObjectSpec spec, MutableBuffer* buffer,
                                 Error* why) {
  store_dirty_ = true;
  absl::StatusOr<MutableBuffer> made = store_->Create(spec);
  if (!made.ok() && absl::IsUnavailable(made.status())) {
    store_->Flush();
    uint64_t seen = store_->room_version();
    const auto looked = [&] {
      if (store_->room_version() == seen) return false;
      seen = store_->room_version();
      made = store_->Create(spec);
      return made.ok() || !absl::IsUnavailable(made.status());
    };
    co_await Until(*this, context, kForever, looked, {Awaited::Kind::kRoom, {}});
  }
  if (!made.ok()) {
    store_->CancelCreate(spec.id);
    if (!absl::IsUnavailable(made.status())) {
      *why = {StoreErrorKind(made.status()), std::string(made.status().message()), {}};
      if (!world_.oracle.stores_may_be_full())
        world_.oracle.Fail("O1", absl::StrCat("process ", self.ToString(),
                                              " gets no room in a store that has some, or a disk: ",
                                              made.status().message()));
    }
    co_return false;
  }
  *buffer = *std::move(made);
  co_return true;
}

Async<ObjectHandle> Process::PutLarge(Context context, std::string bytes) {
  ObjectSpec spec;
  spec.id = NextStoredName();
  spec.size_bytes = bytes.size();
  spec.wait = 30 * kSecond;
  MutableBuffer buffer;
  Error why;
  if (!co_await CreateNamed(context, spec, &buffer, &why)) co_return ObjectHandle();
  // User code takes its time between the two.
  co_await Sleep(context, world_.Between(0, kMillisecond));
  std::memcpy(buffer.data(), bytes.data(), bytes.size());
  ObjectEntry* entry = owner_->references.NewOwned(spec.id);
  ObjectHandle handle(entry);
  const ObjectLocation location = store_->Seal(std::move(buffer));
  store_dirty_ = true;
  owner_->references.SetStored(*entry, location, bytes.size());
  co_return handle;
}

TaskRecord* Process::AddTask(const TemplateRecord& spec, Arguments* arguments,
                             const Context& context) {
  std::unique_ptr<TaskReferences> references;
  if (!arguments->references_.empty() || !arguments->nested_.empty()) {
    references = std::make_unique<TaskReferences>();
    for (auto& [object, position] : arguments->references_) {
      owner_->references.AddUse(*object.entry());
      references->arguments.push_back({object.entry(), position, false});
    }
    for (const ObjectHandle& nested : arguments->nested_) {
      owner_->references.AddUse(*nested.entry());
      references->nested.push_back(nested.entry());
    }
  }
  for (size_t i = 0; references && i < references->arguments.size(); ++i) {
    ObjectEntry& object = *references->arguments[i].object;
    if (!object.ready()) owner_->resolver.Want(object);
  }
  return owner_->tasks.Add(spec, InlineBytes(arguments->encoded_), std::move(references),
                           context.task);
}

std::vector<ObjectHandle> Process::Submit(const TemplateRecord& spec, Arguments arguments,
                                          const Context& context) {
  TaskRecord* task = AddTask(spec, &arguments, context);
  std::vector<ObjectHandle> handles{ObjectHandle(task->first_return)};
  if (task->references) {
    for (ObjectEntry* more : task->references->more_returns) handles.emplace_back(more);
  }
  owner_->submitter.Submit(*task);
  return handles;
}

ObjectHandle Process::CreateActor(const TemplateRecord& spec, Arguments arguments,
                                  const Context& context) {
  TaskRecord* task = AddTask(spec, &arguments, context);
  ObjectHandle handle(task->first_return);
  owner_->references.List(*handle.entry());
  owner_->created_actors.Create(*task);
  return handle;
}

Async<bool> Process::WaitForCredits(Context context, ObjectHandle actor) {
  const ActorClient& client = owner_->actors.ClientOf(*actor.entry());
  const auto may_call = [&] {
    return client.state == proto::ActorAnswer::DEAD ||
           owner_->actors.pending_bytes(client) < world_.limits.max_pending;
  };
  const Waited waited =
      co_await Until(*this, context, kForever, may_call, {Awaited::Kind::kCredits, {}});
  co_return waited == Waited::kDone;
}

ObjectHandle Process::SubmitToActor(const ObjectHandle& actor, const TemplateRecord& spec,
                                    Arguments arguments, const Context& context) {
  ActorClient& client = owner_->actors.ClientOf(*actor.entry());
  TaskRecord* task = AddTask(spec, &arguments, context);
  ObjectHandle handle(task->first_return);
  owner_->actors.Submit(client, *actor.entry(), *task);
  return handle;
}

void Process::Kill(const ObjectHandle& actor, bool no_restart) {
  const ActorId id = ActorOf(actor);
  if (IsDetachedActorHandle(actor.id())) {
    EndDetachedActor(id, no_restart);
  } else if (owner_->created_actors.Manages(id)) {
    owner_->created_actors.Kill(id, no_restart, "kill was called");
  } else if (id.maker() != self) {
    proto::ActorControl control;
    control.set_actor_id(id.Binary());
    control.set_kill(true);
    control.set_no_restart(no_restart);
    SendMessage(remote_->To(id.maker()), FrameKind::kActorControl, control);
  }
}

void Process::EndDetachedActor(ActorId actor, bool no_restart) {
  proto::GcsRequest request;
  request.mutable_end_actor()->set_actor_id(actor.Binary());
  request.mutable_end_actor()->set_restart(!no_restart);
  request.mutable_end_actor()->mutable_death()->set_cause(proto::Death::KILLED);
  gcs_->Tell(std::move(request));
}

void Process::Cancel(const ObjectHandle& object, bool force, bool recursive) {
  world_.oracle.Cancelled(TaskIdOf(object), recursive);
  owner_->Cancel(*object.entry(), force, recursive);
}

bool Process::TryView(const ObjectHandle& object, ObjectView* view) {
  ObjectEntry& entry = *object.entry();
  switch (entry.state) {
    case ObjectState::kPending:
      owner_->resolver.Want(entry);
      return entry.ready() && TryView(object, view);
    case ObjectState::kValue:
      entry.viewed = true;
      view->bytes = entry.value;
      view->handle = object;
      break;
    case ObjectState::kError:
      view->error = &entry.extra->error;
      view->handle = object;
      return true;
    case ObjectState::kStore: {
      const ObjectId stored =
          entry.extra && !entry.extra->stored_as.is_nil() ? entry.extra->stored_as : entry.id;
      absl::StatusOr<StoredObject> found = store_->Get(stored, entry.location);
      if (!found.ok()) {
        owner_->resolver.Missing(entry);
        return false;
      }
      if (!found->nested.empty() && (!entry.extra || entry.extra->nested.empty())) {
        std::vector<NestedReference> references;
        for (ObjectId id : found->nested) references.push_back({id, {}});
        entry.more().nested = owner_->references.IncomingAll(references);
      }
      view->bytes = found->bytes.view();
      view->keep = std::move(found->bytes);
      view->handle = object;
      break;
    }
  }
  if (entry.extra) {
    view->nested.clear();
    for (ObjectEntry* inner : entry.extra->nested) view->nested.emplace_back(inner);
  }
  return true;
}

Async<bool> Process::Get(Context context, ObjectHandle object, ObjectView* view) {
  const Waited waited =
      co_await Until(*this, context, kForever, [&] { return TryView(object, view); },
                     {Awaited::Kind::kObject, object.id()});
  co_return waited == Waited::kDone;
}

Async<> Process::Sleep(Context context, Nanos duration) {
  Context own = context;
  own.task = {};  // User code that runs: nobody is told that it waits.
  co_await Until(*this, own, world_.now() + duration, [] { return false; });
}

Async<bool> Process::NextItem(Context context, ObjectHandle stream, ObjectHandle* item) {
  const auto came = [&] {
    return owner_->tasks.NextItem(*stream.entry(), item) != TaskTable::StreamNext::kPending;
  };
  const Waited waited = co_await Until(*this, context, kForever, came, {Awaited::Kind::kItem, {}});
  co_return waited == Waited::kDone;
}

Async<proto::GcsReply> Process::AskGcs(Context context, proto::GcsRequest request) {
  const uint64_t sequence = gcs_->Begin(std::move(request));
  proto::GcsReply reply;
  const Waited waited =
      co_await Until(*this, context, kForever, [&] { return gcs_->Take(sequence, &reply); },
                     {Awaited::Kind::kGcs, {}});
  if (waited != Waited::kDone) {
    gcs_->Abandon(sequence);
    reply.set_error(static_cast<uint32_t>(ErrorKind::kSystem));
  }
  co_return reply;
}

void Process::AskState(const proto::StateQuery& query) {
  SendMessage(transport_->To(RayletOf(self.node)), FrameKind::kStateQuery, query);
}

PlacementGroupId Process::CreateGroup(proto::GroupRequest request) {
  const auto id = PlacementGroupId::Make(self, owner_->references.NextSequence());
  request.set_action(proto::GroupRequest::CREATE);
  request.set_id(id.Binary());
  dispatch_->groups()[id].set_state(proto::GroupState::PENDING);
  SendMessage(transport_->To(RayletOf(self.node)), FrameKind::kGroupRequest, request);
  return id;
}

void Process::RemoveGroup(PlacementGroupId group) {
  proto::GroupRequest request;
  request.set_action(proto::GroupRequest::REMOVE);
  request.set_id(group.Binary());
  dispatch_->groups().erase(group);
  SendMessage(transport_->To(RayletOf(self.node)), FrameKind::kGroupRequest, request);
}

proto::GroupState* Process::FindGroup(PlacementGroupId group) {
  auto found = dispatch_->groups().find(group);
  return found == dispatch_->groups().end() ? nullptr : &found->second;
}

Async<proto::GcsReply> Process::RegisterDetached(Context context, const TemplateRecord& spec,
                                                 Arguments arguments, const std::string& name,
                                                 bool get_if_exists, ActorId* id) {
  *id = ActorId::Make(self, owner_->references.NextSequence());
  PushTaskHead head{};
  head.task_sequence_bits = id->sequence_bits;
  head.flags = kTemplateInline;
  head.argument_bytes = static_cast<uint32_t>(arguments.encoded_.size());
  proto::GcsRequest request;
  proto::RegisterActor& detached = *request.mutable_register_actor();
  detached.set_actor_id(id->Binary());
  detached.set_name(name);
  detached.set_name_space("all");
  detached.set_get_if_exists(get_if_exists);
  detached.set_job(job());
  detached.set_class_name(spec.spec.name());
  detached.set_detached(true);
  detached.set_max_restarts(spec.spec.actor().max_restarts());
  detached.set_creation(absl::StrCat(std::string(AsBytes(head)), arguments.encoded_, spec.wire));
  *detached.mutable_lease() = spec.spec.lease();
  detached.mutable_lease()->set_actor(true);
  detached.mutable_lease()->set_actor_id(id->Binary());
  detached.set_handle(spec.wire);
  co_return co_await AskGcs(context, std::move(request));
}

ObjectHandle Process::HandleOfActor(const proto::ActorInfo& actor) {
  const ActorId id = ActorId::FromBinary(actor.actor_id()).value_or(ActorId());
  const ObjectId creation =
      actor.detached() ? DetachedActorHandle(id) : ReturnOf({id.maker_bits, id.sequence_bits}, 0);
  return ObjectHandle(owner_->references.Incoming({creation, {}}));
}

void Process::AskGcsAboutActor(ActorId actor) {
  if (actor_lookups_.contains(actor)) return;
  proto::GcsRequest request;
  request.mutable_lookup_actor()->set_actor_id(actor.Binary());
  actor_lookups_[actor] = gcs_->Begin(std::move(request));
}

void Process::TakeActorLookups() {
  for (auto lookup = actor_lookups_.begin(); lookup != actor_lookups_.end();) {
    proto::GcsReply reply;
    if (!gcs_->Take(lookup->second, &reply)) {
      ++lookup;
      continue;
    }
    proto::ActorAnswer answer;
    answer.set_actor_id(lookup->first.Binary());
    const proto::ActorInfo& info = reply.actor();
    answer.set_incarnation(info.incarnation());
    proto::TaskTemplate creation;
    if (creation.ParseFromString(info.handle()))
      answer.set_max_task_retries(creation.actor().max_task_retries());
    if (reply.error() != 0 || info.state() == proto::ActorInfo::DEAD) {
      answer.set_state(proto::ActorAnswer::DEAD);
      answer.set_incarnation(UINT32_MAX);
      answer.set_message(reply.error() != 0 ? reply.message() : "the detached actor is dead");
    } else if (info.state() == proto::ActorInfo::ALIVE) {
      answer.set_state(proto::ActorAnswer::ALIVE);
      answer.set_process(info.process());
    } else {
      answer.set_state(info.state() == proto::ActorInfo::RESTARTING ? proto::ActorAnswer::RESTARTING
                                                                    : proto::ActorAnswer::PENDING);
    }
    actor_lookups_.erase(lookup++);
    owner_->actors.OnAnswer(answer);
  }
}

void Process::Leave() {
  owner_->submitter.ReturnAll();
  SendMessage(transport_->To(RayletOf(self.node)), FrameKind::kGoodbye, proto::Goodbye());
  Flush();
  leaving_ = true;
  EndTurn();
}

}  // namespace sheaf::sim
