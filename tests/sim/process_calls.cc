// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What user code may call: the waits of worker/runtime_calls.cc, runtime_objects.cc and
// runtime_node.cc.
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/sim/process.h"
#include "worker/core/object_creation.h"
#include "worker/core/part_gathering.h"

namespace sheaf::sim {
namespace {

constexpr Nanos kStoreWait = 30 * kSecond;  // As in worker/runtime_objects.cc.

}  // namespace

const TemplateHandle& Process::Template(const std::string& key,
                                        const std::function<void(proto::TaskTemplate*)>& fill) {
  TemplateHandle& made = templates_[key];
  if (!made) {
    proto::TaskTemplate spec;
    fill(&spec);
    spec.set_name(key);
    made = core_->MakeTemplate(std::move(spec));
  }
  return made;
}

ObjectHandle Process::Put(std::string_view bytes, std::span<const ObjectHandle> nested) {
  return core_->PutValue(bytes, nested);
}

Async<absl::StatusOr<MutableBuffer>> Process::CreateNamed(Context context, ObjectSpec spec) {
  spec.wait = kStoreWait;
  ObjectCreation creation(*core_, spec, {});
  const Waited waited = co_await Until(*this, context, kForever, [&] { return creation.Look(); },
                                       {Awaited::Kind::kRoom, {}});
  if (waited != Waited::kDone)
    co_return creation.End(absl::CancelledError("cancelled while it waited for room"));
  absl::StatusOr<MutableBuffer> made = creation.End(absl::OkStatus());
  if (!made.ok() && !world_.oracle.stores_may_be_full()) {
    world_.oracle.Fail("O1", absl::StrCat("process ", self.ToString(),
                                          " gets no room in a store that has some, or a disk: ",
                                          made.status().message()));
  }
  co_return made;
}

Async<ObjectHandle> Process::PutLarge(Context context, std::string bytes) {
  ObjectSpec spec;
  spec.id = core_->NextName();
  spec.size_bytes = bytes.size();
  absl::StatusOr<MutableBuffer> buffer = co_await CreateNamed(context, spec);
  if (!buffer.ok()) co_return ObjectHandle();
  // User code takes its time between the two.
  co_await Sleep(context, world_.Between(0, kMillisecond));
  std::memcpy(buffer->data(), bytes.data(), bytes.size());
  co_return core_->SealOwned(*std::move(buffer), {});
}

ObjectHandle Process::Submit(const TemplateHandle& spec, ArgumentList arguments,
                             const Context& context) {
  return core_->SubmitOne(spec, &arguments, {context.task});
}

ObjectHandle Process::CreateActor(const TemplateHandle& spec, ArgumentList arguments,
                                  const Context& context) {
  TaskRecord* task = core_->AddTask(spec, &arguments, {context.task});
  ObjectHandle handle(task->first_return);
  owner().references.List(*handle.entry());
  owner().created_actors.Create(*task);
  return handle;
}

Async<bool> Process::WaitForCredits(Context context, ObjectHandle actor) {
  const ActorClient& client = owner().actors.ClientOf(*actor.entry());
  if (owner().actors.has_credits(client)) co_return true;
  const Waited waited =
      co_await Until(*this, context, kForever, [&] { return owner().actors.may_go_on(client); },
                     {Awaited::Kind::kCredits, {}});
  co_return waited == Waited::kDone;
}

ObjectHandle Process::SubmitToActor(const ObjectHandle& actor, const TemplateHandle& spec,
                                    ArgumentList arguments, const Context& context) {
  ActorClient& client = owner().actors.ClientOf(*actor.entry());
  return core_->SubmitOneToActor(client, actor, spec, &arguments, {context.task});
}

void Process::Kill(const ObjectHandle& actor, bool no_restart) {
  if (IsDetachedActorHandle(actor.id())) {
    EndDetachedActor(ActorOf(actor), no_restart);
  } else {
    core_->actor_directory.End(ActorOf(actor), no_restart, "kill was called");
  }
  if (no_restart) core_->actor_directory.NoteKilled(actor);
}

void Process::EndDetachedActor(ActorId actor, bool no_restart) {
  core_->gcs.Tell(ActorDirectory::EndOfDetached(actor, no_restart, "kill was called"));
}

void Process::Cancel(const ObjectHandle& object, bool force, bool recursive) {
  world_.oracle.Cancelled(TaskIdOf(object), recursive);
  owner().Cancel(*object.entry(), force, recursive);
}

Async<bool> Process::Get(Context context, ObjectHandle object, ObjectView* view) {
  const Waited waited =
      co_await Until(*this, context, kForever, [&] { return core_->TryView(object, view); },
                     {Awaited::Kind::kObject, object.id()});
  co_return waited == Waited::kDone;
}

Async<bool> Process::GetPart(Context context, ObjectPart part, ObjectView* view) {
  std::vector<ObjectView> views;
  PartGathering gathering(*core_, {&part, 1}, &views);
  const Waited waited = co_await Until(*this, context, kForever, [&] { return gathering.Look(); },
                                       {Awaited::Kind::kObject, part.object.id()});
  if (waited != Waited::kDone) co_return false;
  *view = std::move(views[0]);
  co_return true;
}

Async<> Process::Sleep(Context context, Nanos duration) {
  Context own = context;
  own.task = {};  // User code that runs: nobody is told that it waits.
  co_await Until(*this, own, world_.now() + duration, [] { return false; });
}

Async<bool> Process::NextItem(Context context, ObjectHandle stream, ObjectHandle* item) {
  const auto came = [&] {
    return owner().tasks.NextItem(*stream.entry(), item) != TaskTable::StreamNext::kPending;
  };
  const Waited waited = co_await Until(*this, context, kForever, came, {Awaited::Kind::kItem, {}});
  co_return waited == Waited::kDone;
}

Async<proto::GcsReply> Process::AskGcs(Context context, proto::GcsRequest request) {
  const uint64_t sequence = core_->gcs.Begin(std::move(request));
  proto::GcsReply reply;
  const Waited waited =
      co_await Until(*this, context, kForever, [&] { return core_->gcs.Take(sequence, &reply); },
                     {Awaited::Kind::kGcs, {}});
  if (waited != Waited::kDone) {
    core_->gcs.Abandon(sequence);
    reply.set_error(static_cast<uint32_t>(ErrorKind::kSystem));
  }
  co_return reply;
}

void Process::AskState(const proto::StateQuery& query) {
  SendMessage(core_->raylet(), FrameKind::kStateQuery, query);
}

PlacementGroupId Process::CreateGroup(proto::GroupRequest request) {
  return core_->groups.Create(std::move(request), owner().references.NextSequence()).value();
}

void Process::RemoveGroup(PlacementGroupId group) { core_->groups.Remove(group); }

Async<proto::GcsReply> Process::RegisterDetached(Context context, TemplateHandle spec,
                                                 ArgumentList arguments, ActorId* id) {
  proto::GcsRequest request =
      core_->actor_directory.Detached(*spec, arguments, spec->spec.actor().name_space(), job());
  *id = ActorId::FromBinary(request.register_actor().actor_id()).value();
  co_return co_await AskGcs(context, std::move(request));
}

void Process::Leave() {
  owner().submitter.ReturnAll();
  SendMessage(core_->raylet(), FrameKind::kGoodbye, proto::Goodbye());
  core_->Flush();
  leaving_ = true;
  EndTurn();
}

}  // namespace sheaf::sim
