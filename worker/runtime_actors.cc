// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Actors as users see them: made, named, found, ended.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "worker/current_call.h"
#include "worker/owner/argument_codec.h"
#include "worker/runtime_impl.h"

namespace sheaf {
namespace {

constexpr Nanos kGcsWait = 30 * kSecond;
constexpr Nanos kMakerWait = 2 * kSecond;    // For its word on an actor whose name is refused.
constexpr Nanos kStorageFullWait = kSecond;  // Until the GCS is asked again.
constexpr Nanos kOthersWait = 30 * kSecond;  // For other calls of an actor that leaves.
constexpr Nanos kLongestPause = 100 * kMillisecond;  // Between questions who has a name.
constexpr char kAskedForEnd[] = "it asked for its end";

}  // namespace

absl::StatusOr<ObjectHandle> RuntimeImpl::CreateActor(const TemplateHandle& creation,
                                                      ArgumentList arguments) {
  const proto::ActorOptions& options = creation->spec.actor();
  const std::string name_space =
      options.name_space().empty() ? core_->dispatch.job().name_space : options.name_space();
  if (options.detached()) return CreateDetached(creation, arguments, name_space);
  if (absl::Status moved = MoveLargeArguments(&arguments); !moved.ok()) return moved;
  Lock lock(*driver_);
  if (absl::Status stored = departures_->Store(lock, arguments); !stored.ok()) return stored;
  if (driver_->ended()) return driver_->end();
  TaskRecord* task = core_->AddTask(creation, &arguments, current_call.origin);
  ObjectHandle handle(task->first_return);
  const ActorId id = ActorOf(handle);
  // From here on others find it: by its name they may know it before this thread hears of it.
  core_->owner.references.List(*handle.entry());
  core_->owner.created_actors.Enter(*task);
  if (!options.name().empty()) {
    // Durable before the caller hears of it.
    absl::StatusOr<ObjectHandle> holder =
        TakeName(lock, ActorDirectory::Named(id, *creation, name_space, job()));
    const bool killed =
        !core_->owner.created_actors.Manages(id);  // Meanwhile, and `task` went then.
    if (!holder.ok() || holder->id() != handle.id()) {
      const std::string why(holder.status().message());
      if (!killed) core_->owner.created_actors.GiveUp(*task, {ErrorKind::kActorNameTaken, why, {}});
      return holder;
    }
    if (killed) return handle;
  }
  core_->owner.created_actors.Begin(*task);
  return handle;
}

// Who has the name of `registration` from now on: its actor, or another one, if the options say so
// and it is there. A name is free once its actor has ended here, which the GCS may hear of a little
// later.
absl::StatusOr<ObjectHandle> RuntimeImpl::TakeName(Lock& lock,
                                                   const proto::GcsRequest& registration) {
  const std::string& name = registration.register_actor().name();
  const std::string& id = registration.register_actor().actor_id();
  const Nanos deadline = Deadline(clock_.Now(), kGcsWait);
  for (Nanos pause = kMillisecond;; pause = std::min(2 * pause, kLongestPause)) {
    proto::GcsRequest request = registration;
    lock.Unlock();
    absl::StatusOr<proto::GcsReply> reply = AskGcs(std::move(request), deadline);
    lock.Relock();
    if (!reply.ok()) {
      if (!driver_->ended())
        core_->actor_directory.Withdraw(ActorId::FromBinary(id).value_or(ActorId()));
      return reply.status();
    }
    const absl::Status refused = ErrorOf(*reply);
    const bool taken = absl::IsAlreadyExists(refused);  // And the reply says by whom.
    if (!refused.ok() && !taken) return refused;
    if (reply->actor().actor_id() == id || reply->actor().detached()) {
      if (taken) return refused;
      return core_->actor_directory.HandleOf(reply->actor());
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
        driver_->DriveUntil(lock, std::min(deadline, now + pause), [] { return false; });
    if (!absl::IsDeadlineExceeded(waited)) return waited;
  }
}

// A handle of a living actor that another process made, or a thread of this one, once its creator
// counts it: then it stays for as long as the handle. An empty one: it has ended.
absl::StatusOr<ObjectHandle> RuntimeImpl::HandleIfThere(Lock& lock, const proto::ActorInfo& actor,
                                                        Nanos deadline) {
  const ActorId id = ActorId::FromBinary(actor.actor_id()).value_or(ActorId());
  if (id.maker() == self_) {
    return core_->owner.created_actors.Manages(id) ? core_->actor_directory.HandleOf(actor)
                                                   : ObjectHandle();
  }
  ObjectHandle handle = core_->actor_directory.HandleOf(actor);
  ObjectEntry& entry = *handle.entry();
  ActorClient& client = core_->owner.actors.ClientOf(entry);
  const auto has_ended = [&client] { return client.state == proto::ActorAnswer::DEAD; };
  core_->owner.references.Flush();
  absl::Status status =
      driver_->DriveUntil(lock, deadline, [&] { return entry.registered || has_ended(); });
  bool asked = false;
  while (status.ok() && !has_ended() && !(asked && client.answered)) {
    core_->owner.actors.Inquire(client);
    asked = true;
    const Nanos until = std::min(deadline, clock_.Now() + kSecond);  // Then once more.
    status = driver_->DriveUntil(lock, until, [&] { return client.answered || has_ended(); });
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

// The GCS keeps the creation task and has it started wherever there is room.
absl::StatusOr<ObjectHandle> RuntimeImpl::CreateDetached(const TemplateHandle& creation,
                                                         const ArgumentList& given,
                                                         const std::string& name_space) {
  absl::StatusOr<ArgumentList> values = ValuesOf(given);
  if (!values.ok()) return values.status();
  Lock lock(*driver_);
  if (absl::Status stored = departures_->Store(lock, *values); !stored.ok()) return stored;
  const proto::GcsRequest request =
      core_->actor_directory.Detached(*creation, *values, name_space, job());
  absl::StatusOr<ObjectHandle> made = TakeName(lock, request);
  if (!made.ok()) return made;
  const ActorId id = ActorOf(*made);
  if (id.Binary() == request.register_actor().actor_id())
    core_->actor_directory.KeepArguments(id, ArgumentCodec::Nested(*values));
  return made;
}

absl::StatusOr<ObjectHandle> RuntimeImpl::GetActor(std::string_view name,
                                                   std::string_view name_space,
                                                   proto::TaskTemplate* creation) {
  proto::GcsRequest request;
  request.mutable_lookup_actor()->set_name(std::string(name));
  request.mutable_lookup_actor()->set_name_space(
      name_space.empty() ? core_->dispatch.job().name_space : std::string(name_space));
  absl::StatusOr<proto::GcsReply> reply =
      AskGcs(std::move(request), Deadline(clock_.Now(), kGcsWait));
  if (!reply.ok()) return reply.status();
  if (absl::Status status = ErrorOf(*reply); !status.ok()) return status;
  if (creation != nullptr && !creation->ParseFromString(reply->actor().handle())) {
    return absl::InternalError(absl::StrCat("what the GCS keeps of the actor '",
                                            absl::string_view(name.data(), name.size()),
                                            "' does not parse"));
  }
  Lock lock(*driver_);
  const ActorId id = ActorId::FromBinary(reply->actor().actor_id()).value_or(ActorId());
  if (!reply->actor().detached() && id.maker() == self_ &&
      !core_->owner.created_actors.Manages(id)) {
    return absl::NotFoundError(absl::StrCat(
        "the actor that was named '", absl::string_view(name.data(), name.size()), "' has ended"));
  }
  return core_->actor_directory.HandleOf(reply->actor());
}

absl::Status RuntimeImpl::Kill(const ObjectHandle& actor, bool no_restart) {
  if (!actor) return absl::InvalidArgumentError("an empty handle names no actor");
  const ActorId id = ActorOf(actor);
  constexpr char kReason[] = "kill was called";
  if (IsDetachedActorHandle(actor.id())) {
    const absl::StatusOr<proto::GcsReply> reply = AskGcs(
        ActorDirectory::EndOfDetached(id, no_restart, kReason), Deadline(clock_.Now(), kGcsWait));
    const absl::Status ended = reply.ok() ? ErrorOf(*reply) : reply.status();
    if (!ended.ok()) return ended;
  }
  Lock lock(*driver_);
  if (!IsDetachedActorHandle(actor.id())) core_->actor_directory.End(id, no_restart, kReason);
  if (no_restart) core_->actor_directory.NoteKilled(actor);
  return absl::OkStatus();
}

absl::Status RuntimeImpl::ExitActor(Nanos patience, absl::FunctionRef<void()> before) {
  const Nanos deadline = Deadline(clock_.Now(), patience);
  Lock lock(*driver_);
  const ActorId id = core_->executor.actor_id();
  if (id.is_nil()) return absl::FailedPreconditionError("this process is no actor");
  const bool detached = core_->executor.is_detached_actor();
  core_->executor.RefuseCalls(
      {ErrorKind::kActorDied,
       absl::StrCat("the actor (", id.ToHex(), ") was ended: ", kAskedForEnd),
       {}});
  core_->actor_directory.Leave(id, detached);
  // A call counts as running until its answer has left.
  const auto is_alone = [this, own = current_call.origin.task] {
    bool alone = true;
    core_->executor.ForEachRunning(
        [&](const CallExecution& call) { alone = alone && call.task() == own; });
    return alone;
  };
  actor_leaves_ = true;
  (void)driver_->DriveUntil(lock, std::min(deadline, clock_.Now() + kOthersWait), is_alone);
  lock.Unlock();
  before();
  lock.Relock();
  departures_->AwaitCalls(lock, deadline);
  departures_->Await(lock);
  core_->owner.submitter.ReturnIdle();
  if (!detached) {
    core_->actor_directory.End(id, /*no_restart=*/true, kAskedForEnd);
    return absl::OkStatus();
  }
  // However long the GCS is away, or cannot write: what refuses all calls must not keep its name and
  // its resources.
  while (true) {
    lock.Unlock();
    const absl::StatusOr<proto::GcsReply> reply =
        AskGcs(ActorDirectory::EndOfDetached(id, /*no_restart=*/true, kAskedForEnd), kForever);
    lock.Relock();
    const absl::Status ended = reply.ok() ? ErrorOf(*reply) : reply.status();
    if (!absl::IsResourceExhausted(ended)) return ended;
    const absl::Status waited =
        driver_->DriveUntil(lock, Deadline(clock_.Now(), kStorageFullWait), [] { return false; });
    if (!absl::IsDeadlineExceeded(waited)) return waited;
  }
}

absl::StatusOr<ObjectHandle> RuntimeImpl::OwnActor() {
  Lock lock(*driver_);
  const ActorId id = core_->executor.actor_id();
  if (id.is_nil()) return absl::FailedPreconditionError("this process is no actor");
  return core_->actor_directory.HandleOf(id, core_->executor.is_detached_actor());
}

void RuntimeImpl::EndCalls(Nanos patience, absl::FunctionRef<void()> before) {
  Lock lock(*driver_);
  core_->executor.Stop();
  lock.Unlock();
  before();
  lock.Relock();
  departures_->AwaitCalls(lock, Deadline(clock_.Now(), patience));
  departures_->Await(lock);
  core_->owner.submitter.ReturnIdle();
  core_->Flush();
}

}  // namespace sheaf
