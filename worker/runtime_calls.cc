// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "worker/runtime_impl.h"
#include "worker/wire.h"

namespace sheaf {
namespace {

constexpr size_t kInlineArguments =
    64 * 1024;                               // Of one call in sum; larger values go by the store.
constexpr size_t kSmallArgument = 4 * 1024;  // Never moved to the store.
constexpr size_t kMaxQueuedCalls = 4'000'000;
constexpr size_t kMaxChannelBytes =
    64 * 1024 * 1024;  // Accepted by a channel and not yet visible to its peer.
constexpr Nanos kBackPressure = 30 * kSecond;
constexpr Nanos kGcsWait = 30 * kSecond;

thread_local TaskId running_task;                                // On this thread.
thread_local const std::atomic<bool>* running_cancel = nullptr;  // Of the call that it runs.

}  // namespace

// Gives the reference table's entries of a finished ArgumentList to a task.
class ArgumentCodec {
 public:
  static InlineBytes TakeBytes(ArgumentList& list) { return std::move(list.encoded_); }
  static std::string_view Bytes(const ArgumentList& list) { return list.encoded_; }
  static std::unique_ptr<TaskReferences> TakeReferences(ReferenceTable& table, ArgumentList& list) {
    if (list.references_.empty() && list.nested_.empty()) return nullptr;
    auto out = std::make_unique<TaskReferences>();
    for (const auto& reference : list.references_) {
      table.AddUse(*reference.object.entry());
      out->arguments.push_back({reference.object.entry(), reference.position});
    }
    for (const ObjectHandle& nested : list.nested_) {
      table.AddUse(*nested.entry());
      out->nested.push_back(nested.entry());
    }
    return out;
  }
  static std::vector<ObjectEntry*> ReferencedEntries(const ArgumentList& list) {
    std::vector<ObjectEntry*> out;
    for (const auto& reference : list.references_) out.push_back(reference.object.entry());
    return out;
  }
  static bool has_nested(const ArgumentList& list) { return !list.nested_.empty(); }
};

void ArgumentList::AddValue(std::string_view bytes, std::span<const ObjectHandle> nested) {
  char* to = AddValueInPlace(bytes.size());
  std::memcpy(to, bytes.data(), bytes.size());
  nested_.insert(nested_.end(), nested.begin(), nested.end());
}

char* ArgumentList::AddValueInPlace(size_t size) {
  const size_t padded = Aligned8(size);
  char* at = encoded_.Extend(sizeof(ArgumentHead) + padded);
  const ArgumentHead head{ArgumentKind::kValue, static_cast<uint32_t>(size)};
  std::memcpy(at, &head, sizeof head);
  if (padded != size)
    std::memset(at + sizeof head + padded - 8, 0, 8);  // What is padding travels as zeros.
  ++count_;
  return at + sizeof head;
}

void ArgumentList::AddReference(const ObjectHandle& object) {
  references_.push_back({object, static_cast<uint32_t>(encoded_.size())});
  const ArgumentHead head{ArgumentKind::kValue, 0};  // Replaced when the call is pushed.
  encoded_.append(AsBytes(head));
  ++count_;
}

TemplateHandle RuntimeImpl::MakeTemplate(proto::TaskTemplate spec) {
  spec.set_number(0);
  if (spec.kind() == proto::TaskTemplate::ACTOR_CREATION) {
    spec.mutable_lease()->set_actor(true);
    if (spec.lease().name().empty()) spec.mutable_lease()->set_name(spec.name());
  } else if (spec.kind() == proto::TaskTemplate::TASK && spec.lease().name().empty()) {
    spec.mutable_lease()->set_name(spec.name());
  }
  const std::string key = spec.SerializeAsString();
  Lock lock(*this);
  TemplateHandle& made = template_by_spec_[key];
  if (!made) {
    auto record = std::make_shared<TemplateRecord>();
    record->spec = std::move(spec);
    record->spec.set_number(static_cast<uint32_t>(template_by_spec_.size()));
    record->wire = record->spec.SerializeAsString();
    made = std::move(record);
  }
  return made;
}

// Values that are too large for a frame travel as objects of the store. Without the lock.
absl::Status RuntimeImpl::MoveLargeArguments(ArgumentList* arguments) {
  if (arguments->bytes() <= kInlineArguments) [[likely]]
    return absl::OkStatus();
  if (ArgumentCodec::has_nested(*arguments))
    return absl::OkStatus();  // The frame is split instead.
  ArgumentList moved;
  WireReader in(ArgumentCodec::Bytes(*arguments));
  const std::vector<ObjectEntry*> references = ArgumentCodec::ReferencedEntries(*arguments);
  size_t next_reference = 0;
  for (size_t i = 0; i < arguments->count(); ++i) {
    const auto* head = in.Struct<ArgumentHead>();
    const std::string_view bytes = in.Bytes(head->bytes);
    if (next_reference < references.size() &&
        arguments->reference_position(next_reference) ==
            static_cast<size_t>(reinterpret_cast<const char*>(head) -
                                ArgumentCodec::Bytes(*arguments).data())) {
      moved.AddReference(ObjectHandle(references[next_reference++]));
    } else if (bytes.size() <= kSmallArgument) {
      moved.AddValue(bytes);
    } else {
      const ObjectId id = NextStoredName();
      absl::StatusOr<ObjectLocation> location = StoreValue(id, 0, bytes, {});
      if (!location.ok()) return location.status();
      Lock lock(*this);
      ObjectEntry* entry = owner_->references.NewOwned(id);
      const ObjectHandle handle(entry);
      owner_->references.SetStored(*entry, *location, bytes.size());
      moved.AddReference(handle);
    }
  }
  *arguments = std::move(moved);
  return absl::OkStatus();
}

// Back-pressure: only here, where a user's thread makes calls, and with a bound.
absl::Status RuntimeImpl::WaitForRoom(Lock& lock, absl::FunctionRef<bool()> has_room,
                                      const char* what) {
  if (has_room()) [[likely]]
    return absl::OkStatus();
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
                                                              ArgumentList arguments) {
  if (absl::Status moved = MoveLargeArguments(&arguments); !moved.ok()) return moved;
  Lock lock(*this);
  if (absl::Status room = CheckRoom(lock); !room.ok()) return room;
  TaskRecord* task = AddTask(spec, &arguments);
  std::vector<ObjectHandle> handles = HandlesOf(*task);
  owner_->submitter.Submit(*task);
  return handles;
}

absl::StatusOr<ObjectHandle> RuntimeImpl::SubmitOne(const TemplateHandle& spec,
                                                    ArgumentList arguments) {
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
                                                                     ArgumentList arguments) {
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
                                                           ArgumentList arguments) {
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
  if (absl::Status moved = MoveLargeArguments(&arguments); !moved.ok()) return moved;
  const proto::ActorOptions& options = creation->spec.actor();
  const std::string name_space =
      options.name_space().empty() ? dispatch_->job().name_space : options.name_space();
  if (options.detached()) return CreateDetached(creation, std::move(arguments), name_space);
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
      owner_->tasks.Fail(*task, {ErrorKind::kActorNameTaken, std::string(status.message()), {}});
      if (!status.ok()) return status;
      return HandleOfActor(reply->actor());
    }
  }
  owner_->references.List(*handle.entry());
  owner_->actor_manager.Create(*task);
  return handle;
}

// The GCS keeps the creation task and has it started wherever there is room.
absl::StatusOr<ObjectHandle> RuntimeImpl::CreateDetached(const TemplateHandle& creation,
                                                         ArgumentList arguments,
                                                         const std::string& name_space) {
  const std::vector<ObjectEntry*> references = ArgumentCodec::ReferencedEntries(arguments);
  if (!references.empty() || ArgumentCodec::has_nested(arguments)) {
    return absl::InvalidArgumentError(
        "the constructor of a detached actor takes values, no references: it may run again when "
        "their owner is gone");
  }
  const proto::ActorOptions& options = creation->spec.actor();
  ActorId id;
  {
    Lock lock(*this);
    id = ActorId::Make(self_, owner_->references.NextSequence());
  }
  PushTaskHead head{};
  head.task_sequence_bits = id.sequence_bits;
  head.flags = kTemplateInline;
  head.argument_count = static_cast<uint16_t>(arguments.count());
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
  detached.set_creation(
      std::string(AsBytes(head)).append(ArgumentCodec::Bytes(arguments)).append(creation->wire));
  *detached.mutable_lease() = creation->spec.lease();
  detached.mutable_lease()->set_actor(true);
  detached.mutable_lease()->set_actor_id(id.Binary());
  detached.set_handle(creation->wire);
  absl::StatusOr<proto::GcsReply> reply =
      AskGcs(std::move(request), Deadline(clock_.Now(), kGcsWait));
  if (!reply.ok()) return reply.status();
  if (absl::Status status = ErrorOf(*reply); !status.ok()) return status;
  Lock lock(*this);
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
