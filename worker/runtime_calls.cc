// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "worker/argument_codec.h"
#include "worker/limits.h"
#include "worker/runtime_impl.h"
#include "worker/wire.h"

namespace sheaf {
namespace {

constexpr size_t kMaxQueuedCalls = 4'000'000;
constexpr size_t kMaxChannelBytes =
    64 * 1024 * 1024;  // Accepted by a channel and not yet visible to its peer.
constexpr Nanos kBackPressure = 30 * kSecond;
constexpr Nanos kGcsWait = 30 * kSecond;

absl::Status CheckTemplate(const proto::TaskTemplate& spec) {
  if (spec.num_returns() > kMaxReturns) {
    return absl::InvalidArgumentError(absl::StrCat(spec.num_returns(), " results, at most ",
                                                   kMaxReturns, "; return them as one list"));
  }
  for (const std::string* name :
       {&spec.name(), &spec.call_name(), &spec.actor().name(), &spec.actor().name_space(),
        &spec.concurrency_group()}) {
    if (name->size() > kMaxNameBytes)
      return TooLarge("a name", name->size(), kMaxNameBytes, "choose a shorter one");
  }
  const proto::LeaseSpec& lease = spec.lease();
  const size_t placement = lease.resources().ByteSizeLong() + lease.running().ByteSizeLong() +
                           lease.strategy().ByteSizeLong();
  if (placement > kMaxPlacementBytes) {
    return TooLarge(absl::StrCat("what says where '", spec.name().substr(0, 200),
                                 "' may run (", lease.resources().amounts_size(),
                                 " resources, and labels)"),
                    placement, kMaxPlacementBytes, "ask for fewer");
  }
  if (const size_t size = spec.ByteSizeLong(); size > kMaxTemplateBytes) {
    return TooLarge(absl::StrCat("the definition of '", spec.name().substr(0, 200),
                                 "', with its options and environment,"),
                    size, kMaxTemplateBytes, "put what it captures into the object store (put)");
  }
  return absl::OkStatus();
}

thread_local TaskId running_task;                                // On this thread.
thread_local const std::atomic<bool>* running_cancel = nullptr;  // Of the call that it runs.
thread_local bool never_waits = false;                           // WithoutWaiting.

}  // namespace

WithoutWaiting::WithoutWaiting() : outer_(std::exchange(never_waits, true)) {}
WithoutWaiting::~WithoutWaiting() { never_waits = outer_; }

absl::StatusOr<TemplateHandle> RuntimeImpl::MakeTemplate(proto::TaskTemplate spec) {
  if (absl::Status sized = CheckTemplate(spec); !sized.ok()) return sized;
  if (spec.kind() == proto::TaskTemplate::ACTOR_CREATION) {
    spec.mutable_lease()->set_actor(true);
    if (spec.lease().name().empty()) spec.mutable_lease()->set_name(spec.name());
  } else if (spec.kind() == proto::TaskTemplate::TASK && spec.lease().name().empty()) {
    spec.mutable_lease()->set_name(spec.name());
  }
  Lock lock(*this);
  return owner_->templates.Make(std::move(spec));
}

// Back-pressure: only here, where a user's thread makes calls, and with a bound. kUnavailable:
// there is no room, and the thread is WithoutWaiting.
absl::Status RuntimeImpl::WaitForRoom(Lock& lock, absl::FunctionRef<bool()> has_room,
                                      const char* what) {
  if (has_room()) [[likely]]
    return absl::OkStatus();
  if (never_waits) return absl::UnavailableError(what);
  const absl::Status status = DriveUntil(lock, Deadline(clock_.Now(), kBackPressure), has_room);
  if (absl::IsDeadlineExceeded(status)) {
    return absl::ResourceExhaustedError(
        absl::StrCat(what, " and stayed so for ", kBackPressure / kSecond,
                     " s; make fewer calls at once, or wait for some"));
  }
  return status;
}

TaskRecord* RuntimeImpl::AddTask(const TemplateHandle& spec, ArgumentList* arguments) {
  std::unique_ptr<TaskReferences> references =
      ArgumentCodec::TakeReferences(owner_->references, *arguments);
  for (size_t i = 0; references && i < references->arguments.size(); ++i) {
    ObjectEntry& object = *references->arguments[i].object;
    if (!object.ready()) owner_->resolver.Want(object);
  }
  return owner_->tasks.Add(*spec, ArgumentCodec::TakeBytes(*arguments), std::move(references),
                           running_task);
}

std::vector<ObjectHandle> RuntimeImpl::HandlesOf(const TaskRecord& task) {
  std::vector<ObjectHandle> handles{ObjectHandle(task.first_return)};
  if (task.references) {
    for (ObjectEntry* more : task.references->more_returns) handles.emplace_back(more);
  }
  return handles;
}

absl::Status RuntimeImpl::CheckRoom(Lock& lock) {
  if (raylet_dead_) return absl::AbortedError(raylet_death_);
  return WaitForRoom(
      lock, [&] { return owner_->tasks.size() < kMaxQueuedCalls; }, "4,000,000 calls are queued");
}

absl::StatusOr<std::vector<ObjectHandle>> RuntimeImpl::Submit(const TemplateHandle& spec,
                                                              ArgumentList&& arguments) {
  if (absl::Status moved = MoveLargeArguments(&arguments); !moved.ok()) return moved;
  Lock lock(*this);
  if (absl::Status room = CheckRoom(lock); !room.ok()) return room;
  TaskRecord* task = AddTask(spec, &arguments);
  std::vector<ObjectHandle> handles = HandlesOf(*task);
  owner_->submitter.Submit(*task);
  return handles;
}

absl::StatusOr<ObjectHandle> RuntimeImpl::SubmitOne(const TemplateHandle& spec,
                                                    ArgumentList&& arguments) {
  if (absl::Status moved = MoveLargeArguments(&arguments); !moved.ok()) return moved;
  Lock lock(*this);
  if (absl::Status room = CheckRoom(lock); !room.ok()) return room;
  TaskRecord* task = AddTask(spec, &arguments);
  ObjectHandle handle(task->first_return);
  owner_->submitter.Submit(*task);
  return handle;
}

absl::Status RuntimeImpl::CheckRoom(Lock& lock, const ActorClient& client) {
  if (raylet_dead_) return absl::AbortedError(raylet_death_);
  const int64_t bound = client.max_pending_calls;
  if (bound > 0 && owner_->actors.pending(client) >= static_cast<size_t>(bound)) {
    return absl::ResourceExhaustedError(
        absl::StrCat(bound, " calls to the actor are pending, its max_pending_calls"));
  }
  return WaitForRoom(
      lock,
      [&] {
        return client.peer == nullptr || client.peer->channel->queued_bytes() < kMaxChannelBytes;
      },
      "the actor takes no more calls (64 MiB wait for it)");
}

absl::StatusOr<std::vector<ObjectHandle>> RuntimeImpl::SubmitToActor(const ObjectHandle& actor,
                                                                     const TemplateHandle& method,
                                                                     ArgumentList&& arguments) {
  if (absl::Status moved = MoveLargeArguments(&arguments); !moved.ok()) return moved;
  Lock lock(*this);
  ActorClient& client = owner_->actors.ClientOf(*actor.entry());
  if (absl::Status room = CheckRoom(lock, client); !room.ok()) return room;
  TaskRecord* task = AddTask(method, &arguments);
  std::vector<ObjectHandle> handles = HandlesOf(*task);
  owner_->actors.Submit(client, *actor.entry(), *task);
  return handles;
}

absl::StatusOr<ObjectHandle> RuntimeImpl::SubmitOneToActor(const ObjectHandle& actor,
                                                           const TemplateHandle& method,
                                                           ArgumentList&& arguments) {
  if (absl::Status moved = MoveLargeArguments(&arguments); !moved.ok()) return moved;
  Lock lock(*this);
  ActorClient& client = owner_->actors.ClientOf(*actor.entry());
  if (absl::Status room = CheckRoom(lock, client); !room.ok()) return room;
  TaskRecord* task = AddTask(method, &arguments);
  ObjectHandle handle(task->first_return);
  owner_->actors.Submit(client, *actor.entry(), *task);
  return handle;
}

absl::StatusOr<std::optional<ObjectHandle>> RuntimeImpl::NextItem(const ObjectHandle& stream,
                                                                  Nanos deadline) {
  Lock lock(*this);
  if (!stream.entry()->stream) return absl::InvalidArgumentError("not the stream of a generator");
  ObjectHandle item;
  TaskTable::StreamNext next = TaskTable::StreamNext::kPending;
  const absl::Status status = DriveUntil(lock, deadline, [&] {
    next = owner_->tasks.NextItem(*stream.entry(), &item);
    return next != TaskTable::StreamNext::kPending;
  });
  if (!status.ok()) return status;
  if (next == TaskTable::StreamNext::kEnd) return std::optional<ObjectHandle>();
  return std::optional<ObjectHandle>(std::move(item));
}

absl::Status RuntimeImpl::Cancel(const ObjectHandle& object, bool force, bool recursive) {
  if (!object) return absl::InvalidArgumentError("an empty reference names no call");
  Lock lock(*this);
  owner_->Cancel(*object.entry(), force, recursive);
  return absl::OkStatus();
}

absl::StatusOr<proto::GcsReply> RuntimeImpl::AskGcs(proto::GcsRequest request, Nanos deadline) {
  if (const size_t size = request.ByteSizeLong(); size > kMaxSentBytes) {
    return TooLarge("a request to the GCS", size, kMaxSentBytes,
                    "values of that size belong into the object store (put)");
  }
  Lock lock(*this);
  const uint64_t sequence = gcs_->Begin(std::move(request));
  proto::GcsReply reply;
  const absl::Status status =
      DriveUntil(lock, deadline, [&] { return gcs_->Take(sequence, &reply); });
  if (!status.ok()) {
    gcs_->Abandon(sequence);
    if (absl::IsDeadlineExceeded(status))
      return absl::UnavailableError("the GCS did not answer in time");
    return status;
  }
  return reply;
}

absl::StatusOr<ObjectHandle> RuntimeImpl::CreateActor(const TemplateHandle& creation,
                                                      ArgumentList arguments) {
  const proto::ActorOptions& options = creation->spec.actor();
  const std::string name_space =
      options.name_space().empty() ? dispatch_->job().name_space : options.name_space();
  if (options.detached()) return CreateDetached(creation, arguments, name_space);
  if (absl::Status moved = MoveLargeArguments(&arguments); !moved.ok()) return moved;
  Lock lock(*this);
  if (raylet_dead_) return absl::AbortedError(raylet_death_);
  TaskRecord* task = AddTask(creation, &arguments);
  ObjectHandle handle(task->first_return);
  if (!options.name().empty()) {
    // Durable before the caller hears of it.
    proto::GcsRequest request;
    proto::RegisterActor& named = *request.mutable_register_actor();
    named.set_actor_id(ActorOf(handle).Binary());
    named.set_name(options.name());
    named.set_name_space(name_space);
    named.set_job(job());
    named.set_class_name(creation->spec.name());
    named.set_max_restarts(options.max_restarts());
    named.set_get_if_exists(options.get_if_exists());
    named.set_handle(creation->wire);
    lock.Unlock();
    absl::StatusOr<proto::GcsReply> reply =
        AskGcs(std::move(request), Deadline(clock_.Now(), kGcsWait));
    absl::Status status = reply.ok() ? ErrorOf(*reply) : reply.status();
    lock.Relock();
    const bool mine = status.ok() && reply->actor().actor_id() == ActorOf(handle).Binary();
    if (!mine) {
      if (!reply.ok()) WithdrawActor(ActorOf(handle));
      owner_->tasks.Fail(*task, {ErrorKind::kActorNameTaken, std::string(status.message()), {}});
      if (!status.ok()) return status;
      return HandleOfActor(reply->actor());
    }
  }
  owner_->references.List(*handle.entry());
  owner_->actor_manager.Create(*task);
  return handle;
}

// Nobody waited for the answer to its registration, which may still be heard: its name would stay
// taken. What is said now comes behind it. Under the lock.
void RuntimeImpl::WithdrawActor(ActorId actor) {
  if (raylet_dead_) return;
  proto::GcsRequest request;
  request.mutable_end_actor()->set_actor_id(actor.Binary());
  request.mutable_end_actor()->mutable_death()->set_cause(proto::Death::KILLED);
  request.mutable_end_actor()->mutable_death()->set_message("its creation was given up");
  gcs_->Tell(std::move(request));
}

// The GCS keeps the creation task and has it started wherever there is room.
absl::StatusOr<ObjectHandle> RuntimeImpl::CreateDetached(const TemplateHandle& creation,
                                                         const ArgumentList& given,
                                                         const std::string& name_space) {
  absl::StatusOr<ArgumentList> values = ValuesOf(given);
  if (!values.ok()) return values.status();
  const ArgumentList& arguments = *values;
  const proto::ActorOptions& options = creation->spec.actor();
  const std::span<const ObjectHandle> nested = ArgumentCodec::Nested(arguments);
  ActorId id;
  std::string references;  // Inside the values.
  {
    Lock lock(*this);
    id = ActorId::Make(self_, owner_->references.NextSequence());
    for (const ObjectHandle& inner : nested)
      references.append(AsBytes(owner_->references.Outgoing(*inner.entry())));
  }
  PushTaskHead head{};
  head.task_sequence_bits = id.sequence_bits;
  head.flags = kTemplateInline;
  head.nested_count = static_cast<uint32_t>(nested.size());
  head.argument_bytes = static_cast<uint32_t>(arguments.bytes());
  proto::GcsRequest request;
  proto::RegisterActor& detached = *request.mutable_register_actor();
  detached.set_actor_id(id.Binary());
  detached.set_name(options.name());
  detached.set_name_space(name_space);
  detached.set_job(job());
  detached.set_class_name(creation->spec.name());
  detached.set_detached(true);
  detached.set_max_restarts(options.max_restarts());
  detached.set_get_if_exists(options.get_if_exists());
  detached.set_creation(std::string(AsBytes(head))
                            .append(ArgumentCodec::Bytes(arguments))
                            .append(references)
                            .append(creation->wire));
  *detached.mutable_lease() = creation->spec.lease();
  detached.mutable_lease()->set_actor(true);
  detached.mutable_lease()->set_actor_id(id.Binary());
  detached.set_handle(creation->wire);
  absl::StatusOr<proto::GcsReply> reply =
      AskGcs(std::move(request), Deadline(clock_.Now(), kGcsWait));
  Lock lock(*this);
  if (!reply.ok()) {
    WithdrawActor(id);
    return reply.status();
  }
  if (absl::Status status = ErrorOf(*reply); !status.ok()) return status;
  if (!nested.empty() && reply->actor().actor_id() == id.Binary())
    detached_arguments_[id].assign(nested.begin(), nested.end());
  return HandleOfActor(reply->actor());
}

// A handle made from what the GCS says. Under the lock.
ObjectHandle RuntimeImpl::HandleOfActor(const proto::ActorInfo& actor) {
  const ActorId id = ActorId::FromBinary(actor.actor_id()).value_or(ActorId());
  const ObjectId creation =
      actor.detached() ? DetachedActorHandle(id) : ReturnOf({id.maker_bits, id.sequence_bits}, 0);
  return ObjectHandle(owner_->references.Incoming({creation, {}}));
}

absl::StatusOr<ObjectHandle> RuntimeImpl::GetActor(std::string_view name,
                                                   std::string_view name_space,
                                                   proto::TaskTemplate* creation) {
  proto::GcsRequest request;
  request.mutable_lookup_actor()->set_name(std::string(name));
  request.mutable_lookup_actor()->set_name_space(name_space.empty() ? dispatch_->job().name_space
                                                                    : std::string(name_space));
  absl::StatusOr<proto::GcsReply> reply =
      AskGcs(std::move(request), Deadline(clock_.Now(), kGcsWait));
  if (!reply.ok()) return reply.status();
  if (absl::Status status = ErrorOf(*reply); !status.ok()) return status;
  if (creation != nullptr && !creation->ParseFromString(reply->actor().handle())) {
    return absl::InternalError(absl::StrCat("what the GCS keeps of the actor '",
                                            absl::string_view(name.data(), name.size()),
                                            "' does not parse"));
  }
  Lock lock(*this);
  return HandleOfActor(reply->actor());
}

// Detached actors: where they are, the GCS knows. Under the lock; the answer comes through
// PollLookups.
void RuntimeImpl::AskGcsAboutActor(ActorId actor) {
  if (actor_lookups_.contains(actor)) return;
  proto::GcsRequest request;
  request.mutable_lookup_actor()->set_actor_id(actor.Binary());
  actor_lookups_[actor] = gcs_->Begin(std::move(request));
}

void RuntimeImpl::TakeActorLookups() {
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
    if (creation.ParseFromString(info.handle())) {
      answer.set_max_task_retries(creation.actor().max_task_retries());
      answer.set_max_pending_calls(creation.actor().max_pending_calls());
    }
    if (reply.error() != 0 || info.state() == proto::ActorInfo::DEAD) {
      answer.set_state(proto::ActorAnswer::DEAD);
      answer.set_incarnation(UINT32_MAX);
      detached_arguments_.erase(lookup->first);
      answer.set_message(reply.error() != 0
                             ? reply.message()
                             : absl::StrCat("the actor ", info.name(), " is dead: its process ",
                                            DescribeDeath(info.death())));
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

absl::Status RuntimeImpl::Kill(const ObjectHandle& actor, bool no_restart) {
  if (!actor) return absl::InvalidArgumentError("an empty handle names no actor");
  return EndActor(ActorOf(actor), IsDetachedActorHandle(actor.id()), no_restart, "kill was called");
}

absl::Status RuntimeImpl::ExitActor() {
  ActorId id;
  bool detached = false;
  {
    Lock lock(*this);
    id = executor_->actor_id();
    detached = ProcessId::Unpack(executor_->lease().owner()).is_raylet();
  }
  if (id.is_nil()) return absl::FailedPreconditionError("this process is no actor");
  return EndActor(id, detached, /*no_restart=*/true, "it asked for its end");
}

absl::StatusOr<ObjectHandle> RuntimeImpl::OwnActor() {
  Lock lock(*this);
  const ActorId id = executor_->actor_id();
  if (id.is_nil()) return absl::FailedPreconditionError("this process is no actor");
  const bool detached = ProcessId::Unpack(executor_->lease().owner()).is_raylet();
  const ObjectId creation =
      detached ? DetachedActorHandle(id) : ReturnOf({id.maker_bits, id.sequence_bits}, 0);
  return ObjectHandle(owner_->references.Incoming({creation, {}}));
}

absl::Status RuntimeImpl::EndActor(ActorId id, bool detached, bool no_restart, const char* words) {
  if (!detached) {
    Lock lock(*this);
    if (owner_->actor_manager.Manages(id)) {
      owner_->actor_manager.Kill(id, no_restart, words);
    } else if (id.maker() != self_) {
      proto::ActorControl control;
      control.set_actor_id(id.Binary());
      control.set_kill(true);
      control.set_no_restart(no_restart);
      SendMessage(transport_->To(id.maker()), FrameKind::kActorControl, control);
    }
    return absl::OkStatus();
  }
  proto::GcsRequest request;
  request.mutable_end_actor()->set_actor_id(id.Binary());
  request.mutable_end_actor()->set_restart(!no_restart);
  request.mutable_end_actor()->mutable_death()->set_cause(proto::Death::KILLED);
  request.mutable_end_actor()->mutable_death()->set_message(words);
  absl::StatusOr<proto::GcsReply> reply =
      AskGcs(std::move(request), Deadline(clock_.Now(), kGcsWait));
  return reply.ok() ? ErrorOf(*reply) : reply.status();
}

TaskId RuntimeImpl::current_task() const { return running_task; }
void RuntimeImpl::SetCurrentTask(TaskId task) { running_task = task; }
ActorId RuntimeImpl::current_actor() const {
  Lock lock(*this);
  return executor_->actor_id();
}
bool RuntimeImpl::Cancelled() const {
  return running_cancel != nullptr && running_cancel->load(std::memory_order_relaxed);
}
void RuntimeImpl::SetCancelFlag(const std::atomic<bool>* flag) { running_cancel = flag; }
bool RuntimeImpl::RunsUserCode() const { return !options_.driver && !running_task.is_nil(); }

}  // namespace sheaf
