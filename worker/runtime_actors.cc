// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Actors as users see them: made, named, found, ended.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "worker/owner/argument_codec.h"
#include "worker/runtime_impl.h"
#include "worker/wire.h"

namespace sheaf {
namespace {

constexpr Nanos kGcsWait = 30 * kSecond;
constexpr Nanos kMakerWait = 2 * kSecond;  // For its word on an actor whose name is refused.
constexpr Nanos kLongestPause = 100 * kMillisecond;  // Between questions who has a name.

}  // namespace

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
  const ActorId id = ActorOf(handle);
  // From here on others find it: by its name they may know it before this thread hears of it.
  owner_->references.List(*handle.entry());
  owner_->created_actors.Enter(*task);
  if (!options.name().empty()) {
    // Durable before the caller hears of it.
    proto::GcsRequest request;
    proto::RegisterActor& named = *request.mutable_register_actor();
    named.set_actor_id(id.Binary());
    named.set_name(options.name());
    named.set_name_space(name_space);
    named.set_job(job());
    named.set_class_name(creation->spec.name());
    named.set_max_restarts(options.max_restarts());
    named.set_get_if_exists(options.get_if_exists());
    named.set_handle(creation->wire);
    absl::StatusOr<ObjectHandle> holder = TakeName(lock, request, id);
    const bool killed = !owner_->created_actors.Manages(id);  // Meanwhile, and `task` went then.
    if (!holder.ok() || holder->id() != handle.id()) {
      const std::string why(holder.status().message());
      if (!killed) owner_->created_actors.GiveUp(*task, {ErrorKind::kActorNameTaken, why, {}});
      return holder;
    }
    if (killed) return handle;
  }
  owner_->created_actors.Begin(*task);
  return handle;
}

// Who has the name of `registration` from now on: `id`, or another actor, if the options say so and
// it is there. A name is free once its actor has ended here, which the GCS may hear of a little
// later.
absl::StatusOr<ObjectHandle> RuntimeImpl::TakeName(Lock& lock,
                                                   const proto::GcsRequest& registration,
                                                   ActorId id) {
  const std::string& name = registration.register_actor().name();
  const Nanos deadline = Deadline(clock_.Now(), kGcsWait);
  for (Nanos pause = kMillisecond;; pause = std::min(2 * pause, kLongestPause)) {
    proto::GcsRequest request = registration;
    lock.Unlock();
    absl::StatusOr<proto::GcsReply> reply = AskGcs(std::move(request), deadline);
    lock.Relock();
    if (!reply.ok()) {
      WithdrawActor(id);
      return reply.status();
    }
    const absl::Status refused = ErrorOf(*reply);
    const bool taken = absl::IsAlreadyExists(refused);  // And the reply says by whom.
    if (!refused.ok() && !taken) return refused;
    if (reply->actor().actor_id() == id.Binary() || reply->actor().detached()) {
      if (taken) return refused;
      return HandleOfActor(reply->actor());
    }
    // Whose maker stands still is there, as far as a refusal goes.
    const Nanos until = taken ? std::min(deadline, clock_.Now() + kMakerWait) : deadline;
    absl::StatusOr<ObjectHandle> holder = HandleIfThere(lock, reply->actor(), until);
    if (taken && (holder.ok() ? static_cast<bool>(*holder) : absl::IsUnavailable(holder.status())))
      return refused;
    if (!holder.ok() || *holder) return holder;
    // It has ended. The GCS hears of that soon, and then the name is free.
    const Nanos now = clock_.Now();
    if (now >= deadline) {
      return absl::UnavailableError(absl::StrCat(
          "the actor that had the name '", name,
          "' has ended, but the GCS has not heard of that in time, so that it is not free"));
    }
    const absl::Status waited =
        DriveUntil(lock, std::min(deadline, now + pause), [] { return false; });
    if (!absl::IsDeadlineExceeded(waited)) return waited;
  }
}

// A handle of a living actor that another process made, or a thread of this one, once its creator
// counts it: then it stays for as long as the handle. An empty one: it has ended.
absl::StatusOr<ObjectHandle> RuntimeImpl::HandleIfThere(Lock& lock, const proto::ActorInfo& actor,
                                                        Nanos deadline) {
  const ActorId id = ActorId::FromBinary(actor.actor_id()).value_or(ActorId());
  if (id.maker() == self_) {
    return owner_->created_actors.Manages(id) ? HandleOfActor(actor) : ObjectHandle();
  }
  ObjectHandle handle = HandleOfActor(actor);
  ObjectEntry& entry = *handle.entry();
  ActorClient& client = owner_->actors.ClientOf(entry);
  const auto has_ended = [&client] { return client.state == proto::ActorAnswer::DEAD; };
  owner_->references.Flush();
  absl::Status status = DriveUntil(lock, deadline, [&] { return entry.registered || has_ended(); });
  bool asked = false;
  while (status.ok() && !has_ended() && !(asked && client.answered)) {
    owner_->actors.Inquire(client);
    asked = true;
    const Nanos until = std::min(deadline, clock_.Now() + kSecond);  // Then once more.
    status = DriveUntil(lock, until, [&] { return client.answered || has_ended(); });
    if (absl::IsDeadlineExceeded(status) && clock_.Now() < deadline) status = absl::OkStatus();
  }
  if (absl::IsDeadlineExceeded(status)) {
    return absl::UnavailableError(absl::StrCat("process ", id.maker().ToString(),
                                               ", which made the actor '", actor.name(),
                                               "', did not answer in time"));
  }
  if (!status.ok()) return status;
  return has_ended() ? ObjectHandle() : handle;
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
  Lock lock(*this);
  absl::StatusOr<ObjectHandle> made = TakeName(lock, std::move(request), id);
  if (made.ok() && ActorOf(*made) == id && !nested.empty())
    detached_arguments_[id].assign(nested.begin(), nested.end());
  return made;
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
  const ActorId id = ActorId::FromBinary(reply->actor().actor_id()).value_or(ActorId());
  if (!reply->actor().detached() && id.maker() == self_ && !owner_->created_actors.Manages(id)) {
    return absl::NotFoundError(absl::StrCat(
        "the actor that was named '", absl::string_view(name.data(), name.size()), "' has ended"));
  }
  return HandleOfActor(reply->actor());
}

// Detached actors: where they are, the GCS knows. Under the lock;
// TakeActorLookups takes the answer.
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
  const ActorId id = ActorOf(actor);
  absl::Status ended =
      EndActor(id, IsDetachedActorHandle(actor.id()), no_restart, "kill was called");
  if (!ended.ok() || !no_restart) return ended;
  Lock lock(*this);
  owner_->actors.RefuseFromNowOn(
      owner_->actors.ClientOf(*actor.entry()),
      {ErrorKind::kActorDied,
       absl::StrCat("the actor (", id.ToHex(), ") was ended: kill was called"),
       {}});
  return ended;
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
    if (owner_->created_actors.Manages(id)) {
      owner_->created_actors.Kill(id, no_restart, words);
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

}  // namespace sheaf
