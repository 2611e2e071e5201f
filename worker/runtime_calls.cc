// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "worker/current_call.h"
#include "worker/limits.h"
#include "worker/runtime_impl.h"

namespace sheaf {
namespace {

constexpr size_t kMaxQueuedCalls = 4'000'000;
constexpr Nanos kBackPressure = 30 * kSecond;

absl::Status CheckTemplate(const proto::TaskTemplate& spec) {
  if (spec.num_returns() > kMaxReturns) {
    return absl::InvalidArgumentError(absl::StrCat(spec.num_returns(), " results, at most ",
                                                   kMaxReturns, "; return them as one list"));
  }
  for (const std::string* name : {&spec.name(), &spec.call_name(), &spec.actor().name(),
                                  &spec.actor().name_space(), &spec.concurrency_group()}) {
    if (name->size() > kMaxNameBytes)
      return TooLarge("a name", name->size(), kMaxNameBytes, "choose a shorter one");
  }
  const proto::LeaseSpec& lease = spec.lease();
  const size_t placement = lease.resources().ByteSizeLong() + lease.running().ByteSizeLong() +
                           lease.strategy().ByteSizeLong();
  if (placement > kMaxPlacementBytes) {
    return TooLarge(absl::StrCat("what says where '", spec.name().substr(0, 200), "' may run (",
                                 lease.resources().amounts_size(), " resources, and labels)"),
                    placement, kMaxPlacementBytes, "ask for fewer");
  }
  if (const size_t size = spec.ByteSizeLong(); size > kMaxTemplateBytes) {
    return TooLarge(absl::StrCat("the definition of '", spec.name().substr(0, 200),
                                 "', with its options and environment,"),
                    size, kMaxTemplateBytes, "put what it captures into the object store (put)");
  }
  return absl::OkStatus();
}

thread_local bool never_waits = false;    // WithoutWaiting.
thread_local bool bounded_waits = false;  // WithBoundedWaits.

}  // namespace

WithoutWaiting::WithoutWaiting() : outer_(std::exchange(never_waits, true)) {}
WithoutWaiting::~WithoutWaiting() { never_waits = outer_; }
bool WithoutWaiting::IsOn() { return never_waits; }
WithBoundedWaits::WithBoundedWaits() : outer_(std::exchange(bounded_waits, true)) {}
WithBoundedWaits::~WithBoundedWaits() { bounded_waits = outer_; }

absl::StatusOr<TemplateHandle> RuntimeImpl::MakeTemplate(proto::TaskTemplate spec) {
  if (absl::Status sized = CheckTemplate(spec); !sized.ok()) return sized;
  Lock lock(*driver_);
  return core_->MakeTemplate(std::move(spec));
}

// Back-pressure: only where a user's thread makes calls, and with a bound. kUnavailable: there is
// no room, and the thread is WithoutWaiting.
absl::Status RuntimeImpl::WaitForRoom(Lock& lock, absl::FunctionRef<bool()> has_room,
                                      const char* what) {
  if (has_room()) [[likely]]
    return absl::OkStatus();
  if (never_waits) return absl::UnavailableError(what);
  const absl::Status status =
      driver_->DriveUntil(lock, Deadline(clock_.Now(), kBackPressure), has_room);
  if (absl::IsDeadlineExceeded(status)) {
    return absl::ResourceExhaustedError(
        absl::StrCat(what, " and stayed so for ", kBackPressure / kSecond,
                     " s; make fewer calls at once, or wait for some"));
  }
  return status;
}

absl::Status RuntimeImpl::CheckRoom(Lock& lock) {
  if (driver_->ended()) return driver_->end();
  return WaitForRoom(
      lock, [&] { return core_->owner.tasks.size() < kMaxQueuedCalls; },
      "4,000,000 calls are queued");
}

absl::StatusOr<std::vector<ObjectHandle>> RuntimeImpl::Submit(const TemplateHandle& spec,
                                                              ArgumentList&& arguments) {
  if (absl::Status moved = MoveLargeArguments(&arguments); !moved.ok()) return moved;
  Lock lock(*driver_);
  if (absl::Status stored = departures_->Store(lock, arguments); !stored.ok()) return stored;
  if (absl::Status room = CheckRoom(lock); !room.ok()) return room;
  return core_->Submit(spec, &arguments, current_call.origin);
}

absl::StatusOr<ObjectHandle> RuntimeImpl::SubmitOne(const TemplateHandle& spec,
                                                    ArgumentList&& arguments) {
  if (absl::Status moved = MoveLargeArguments(&arguments); !moved.ok()) return moved;
  Lock lock(*driver_);
  if (absl::Status stored = departures_->Store(lock, arguments); !stored.ok()) return stored;
  if (absl::Status room = CheckRoom(lock); !room.ok()) return room;
  return core_->SubmitOne(spec, &arguments, current_call.origin);
}

absl::Status RuntimeImpl::CheckRoom(Lock& lock, const ActorClient& client) {
  if (driver_->ended()) return driver_->end();
  const int64_t bound = client.max_pending_calls;
  if (bound > 0 && core_->owner.actors.pending(client) >= static_cast<size_t>(bound)) {
    return absl::ResourceExhaustedError(
        absl::StrCat(bound, " calls to the actor are pending, its max_pending_calls"));
  }
  if (client.own) [[unlikely]]
    return CheckRoom(lock);
  if (core_->owner.actors.has_credits(client)) [[likely]]
    return absl::OkStatus();
  return WaitForCredits(lock, client);
}

// Goes on for as long as the actor answers: one that is slow is waited for.
absl::Status RuntimeImpl::WaitForCredits(Lock& lock, const ActorClient& client) {
  const auto has_room = [&] { return core_->owner.actors.may_go_on(client); };
  while (true) {
    const uint64_t replies = client.replies;
    const uint32_t incarnation = client.incarnation;
    const absl::Status status =
        WaitForRoom(lock, has_room, "too many calls of an actor are pending");
    if (!absl::IsResourceExhausted(status)) return status;
    if (client.replies != replies || client.incarnation != incarnation) continue;
    // A call may take longer. For a program that waits as get() does, until the actor is dead; in
    // an actor it could be the one that this one's answer waits for, and a loop has others to run.
    if (client.state == proto::ActorAnswer::ALIVE && options_.driver && !bounded_waits) continue;
    return absl::ResourceExhaustedError(absl::StrCat(
        "calls of ", core_->owner.actors.pending_bytes(client), " bytes are pending at the actor ",
        client.id.ToHex(), ", which has ",
        client.state == proto::ActorAnswer::ALIVE ? "answered none" : "not started", " for ",
        kBackPressure / kSecond, " s; a caller may have ", limits_.max_pending,
        ". Make fewer calls at once, wait for some of them, or pass large values by reference "
        "(put)"));
  }
}

absl::StatusOr<std::vector<ObjectHandle>> RuntimeImpl::SubmitToActor(const ObjectHandle& actor,
                                                                     const TemplateHandle& method,
                                                                     ArgumentList&& arguments) {
  if (absl::Status moved = MoveLargeArguments(&arguments); !moved.ok()) return moved;
  Lock lock(*driver_);
  ActorClient& client = core_->owner.actors.ClientOf(*actor.entry());
  if (absl::Status stored = departures_->Store(lock, arguments); !stored.ok()) return stored;
  if (absl::Status room = CheckRoom(lock, client); !room.ok()) return room;
  return core_->SubmitToActor(client, actor, method, &arguments, current_call.origin);
}

absl::StatusOr<ObjectHandle> RuntimeImpl::SubmitOneToActor(const ObjectHandle& actor,
                                                           const TemplateHandle& method,
                                                           ArgumentList&& arguments) {
  if (absl::Status moved = MoveLargeArguments(&arguments); !moved.ok()) return moved;
  Lock lock(*driver_);
  ActorClient& client = core_->owner.actors.ClientOf(*actor.entry());
  if (absl::Status stored = departures_->Store(lock, arguments); !stored.ok()) return stored;
  if (absl::Status room = CheckRoom(lock, client); !room.ok()) return room;
  return core_->SubmitOneToActor(client, actor, method, &arguments, current_call.origin);
}

absl::StatusOr<std::optional<ObjectHandle>> RuntimeImpl::NextItem(const ObjectHandle& stream,
                                                                  Nanos deadline) {
  Lock lock(*driver_);
  if (!stream.entry()->stream) return absl::InvalidArgumentError("not the stream of a generator");
  ObjectHandle item;
  TaskTable::StreamNext next = TaskTable::StreamNext::kPending;
  const absl::Status status = driver_->DriveUntil(lock, deadline, [&] {
    next = core_->owner.tasks.NextItem(*stream.entry(), &item);
    return next != TaskTable::StreamNext::kPending;
  });
  if (!status.ok()) return status;
  if (next == TaskTable::StreamNext::kEnd) return std::optional<ObjectHandle>();
  return std::optional<ObjectHandle>(std::move(item));
}

absl::Status RuntimeImpl::Cancel(const ObjectHandle& object, bool force, bool recursive) {
  if (!object) return absl::InvalidArgumentError("an empty reference names no call");
  Lock lock(*driver_);
  const TaskRecord* const task = object.entry()->owned ? object.entry()->task : nullptr;
  if (force && task != nullptr && task->spec->spec.kind() == proto::TaskTemplate::ACTOR_METHOD) {
    return absl::InvalidArgumentError(
        "force=True is not supported for actor tasks: cancel the call without it, or kill the "
        "actor");
  }
  core_->owner.Cancel(*object.entry(), force, recursive);
  return absl::OkStatus();
}

absl::StatusOr<proto::GcsReply> RuntimeImpl::AskGcs(proto::GcsRequest request, Nanos deadline) {
  if (const size_t size = request.ByteSizeLong(); size > kMaxSentBytes) {
    return TooLarge("a request to the GCS", size, kMaxSentBytes,
                    "values of that size belong into the object store (put)");
  }
  Lock lock(*driver_);
  const uint64_t sequence = core_->gcs.Begin(std::move(request));
  proto::GcsReply reply;
  const absl::Status status =
      driver_->DriveUntil(lock, deadline, [&] { return core_->gcs.Take(sequence, &reply); });
  if (!status.ok()) {
    core_->gcs.Abandon(sequence);
    if (absl::IsDeadlineExceeded(status))
      return absl::UnavailableError("the GCS did not answer in time");
    return status;
  }
  return reply;
}

const CallOrigin& RuntimeImpl::current_origin() const { return current_call.origin; }
void RuntimeImpl::SetCurrentOrigin(const CallOrigin& origin) { current_call.origin = origin; }
ActorId RuntimeImpl::current_actor() const {
  Lock lock(*driver_);
  return core_->executor.actor_id();
}

}  // namespace sheaf
