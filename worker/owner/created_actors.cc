// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "worker/owner/created_actors.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "worker/describe_death.h"
#include "worker/owner/task_submitter.h"
#include "worker/wire.h"

namespace sheaf {
namespace {

using State = proto::ActorAnswer;

const char* StateName(State::State state) {
  switch (state) {
    case State::ALIVE:
      return "ALIVE";
    case State::RESTARTING:
      return "RESTARTING";
    case State::DEAD:
      return "DEAD";
    default:
      return "PENDING";
  }
}

constexpr size_t kLargestPayload = 1 << 20;
constexpr uint32_t kMostUnstarted = 10;
constexpr Nanos kPatience =
    5 * 60 * kSecond;  // With an actor that ends as nobody wants it any more.

void SetDeath(const Error& error, proto::ActorAnswer* answer) {
  answer->set_error(static_cast<uint32_t>(error.kind));
  answer->set_message(error.message);
  if (error.payload.size() <= kLargestPayload) answer->set_payload(error.payload);
}

}  // namespace

CreatedActors::CreatedActors(ProcessId self, Transport& transport, TaskTable& tasks,
                             PeerTable& peers, ActorSubmitter& submitter)
    : self_(self), transport_(transport), tasks_(tasks), peers_(peers), submitter_(submitter) {}

CreatedActor* CreatedActors::Find(ActorId actor) {
  auto found = actors_.find(actor);
  return found == actors_.end() ? nullptr : found->second.get();
}

ProcessId CreatedActors::ProcessOf(ActorId actor) const {
  const auto found = actors_.find(actor);
  return found == actors_.end() ? ProcessId{} : found->second->process;
}

void CreatedActors::Enter(TaskRecord& creation) {
  const TaskId task = tasks_.IdOf(creation);
  const ActorId id{task.maker_bits, task.sequence_bits};
  auto& actor = actors_[id];
  actor = std::make_unique<CreatedActor>();
  actor->id = id;
  actor->creation = &creation;
  actor->restarts_left = creation.spec->spec.actor().max_restarts();
  creation.target = actor.get();
  // The creation task lives as long as the actor, so it must not hold the object whose end ends the
  // actor.
  --creation.first_return->uses;
  ActorClient& client = submitter_.ClientOf(*creation.first_return);
  client.local = true;
  client.max_pending_calls = creation.spec->spec.actor().max_pending_calls();
  client.out_of_order = creation.spec->spec.actor().out_of_order();
}

void CreatedActors::Begin(TaskRecord& creation) {
  Demand(*creation.target.created());
  tasks_.Start(creation, *this);
}

void CreatedActors::GiveUp(TaskRecord& creation, Error why) {
  CreatedActor& actor = *creation.target.created();
  actor.state = State::DEAD;
  actor.death = std::move(why);
  ++creation.first_return->uses;  // As in SetDead.
  TellWatchers(actor);
  submitter_.OnAnswer(AnswerOf(actor));
  Remove(actor, /*known=*/true);  // Nobody was to run it.
}

void CreatedActors::Demand(CreatedActor& actor) {
  actor.key = next_key_++;
  by_key_[actor.key] = &actor;
  proto::LeaseDemand demand;
  demand.set_key(actor.key);
  *demand.mutable_spec() = actor.creation->spec->spec.lease();
  demand.mutable_spec()->set_actor(true);
  demand.mutable_spec()->set_actor_id(actor.id.Binary());
  demand.set_wanted(1);
  demand.set_backlog(1);
  SendMessage(transport_.To(RayletOf(self_.node)), FrameKind::kLeaseDemand, demand);
  Announce(actor);
}

void CreatedActors::OnArgumentsReady(TaskRecord& creation) {
  CreatedActor& actor = *creation.target.created();
  if (creation.references) {
    for (const auto& argument : creation.references->arguments) {
      if (argument.object->state != ObjectState::kError) continue;
      EndLease(actor, "an argument of its constructor failed");
      SetDead(actor, {ErrorKind::kActorDied,
                      absl::StrCat("an argument of the constructor failed: ",
                                   argument.object->extra->error.message),
                      {}});
      return;
    }
  }
  creation.state = TaskState::kQueued;
  if (actor.lease != 0) {
    tasks_.Push(creation, peers_.Of(actor.process), actor.lease, 1);
    actor.state = State::ALIVE;
    Announce(actor);
  }
}

void CreatedActors::OnGrant(const proto::LeaseGrant& grant) {
  auto found = by_key_.find(grant.key());
  const ProcessId worker = ProcessId::Unpack(grant.worker());
  if (found == by_key_.end() || (found->second->lease != 0 && found->second->process != worker)) {
    // Killed while it was pending, or granted on two nodes because one of them seemed dead.
    proto::LeaseReturn message;
    message.set_lease(grant.lease());
    message.set_discard_worker(true);
    SendMessage(transport_.To(RayletOf(worker.node)), FrameKind::kLeaseReturn, message);
    return;
  }
  CreatedActor& actor = *found->second;
  if (actor.lease != 0) return;                    // A repeat.
  if (worker.node != self_.node) Withdraw(actor);  // This raylet need not look any further.
  actor.lease = grant.lease();
  actor.process = worker;
  ++actor.incarnation;
  actor.constructed = false;
  by_process_[actor.process] = &actor;
  if (actor.creation->state != TaskState::kQueued) return;  // Its arguments are not there yet.
  tasks_.Push(*actor.creation, peers_.Of(actor.process), actor.lease, 1);
  // Calls may follow the creation task at once: the worker runs it first.
  actor.state = State::ALIVE;
  Announce(actor);
}

void CreatedActors::OnRefused(const proto::LeaseRefused& refused) {
  auto found = by_key_.find(refused.key());
  if (found == by_key_.end() || static_cast<ErrorKind>(refused.error()) == ErrorKind::kNone) return;
  auto kind = static_cast<ErrorKind>(refused.error());
  if (kind == ErrorKind::kTaskUnschedulable) kind = ErrorKind::kActorUnschedulable;
  if (kind == ErrorKind::kGroupRemoved) kind = ErrorKind::kActorGroupRemoved;
  Withdraw(*found->second);  // Another node may have refused: this one still counts on it.
  SetDead(*found->second, {kind, refused.message(), {}});
}

void CreatedActors::OnReply(const TaskTable::Reply& reply, ProcessId from) {
  TaskRecord& creation = *reply.task;
  CreatedActor& actor = *creation.target.created();
  if (actor.process != from) return;
  if (reply.head->status != ReplyStatus::kDone) {
    WireReader in(reply.rest);
    const auto* head = in.Struct<ReturnHead>();
    Error error = DecodeError(head == nullptr ? std::string_view{} : in.Bytes(head->bytes));
    EndLease(actor, "its constructor failed");
    SetDead(actor, ConstructorFailed(creation.spec->spec.name(), std::move(error)),
            /*known=*/true);
    return;
  }
  actor.constructed = true;
  actor.unstarted = 0;
  creation.state = TaskState::kFinished;
  ObjectEntry* object = creation.first_return;
  if (!object->ready()) tasks_.references().SetValue(*object, {});
  Announce(actor);
}

void CreatedActors::OnProcessDied(ProcessId process, const proto::Death& death, uint64_t started) {
  if (const auto watched = watched_by_.extract(process)) {
    for (const ActorId id : watched.mapped()) {
      if (CreatedActor* actor = Find(id)) actor->watchers.erase(process);
    }
  }
  auto found = by_process_.find(process);
  if (found == by_process_.end()) return;
  CreatedActor& actor = *found->second;
  by_process_.erase(found);
  by_key_.erase(actor.key);
  actor.lease = 0;
  // What has not begun may begin elsewhere, as any task; but not for ever.
  if (started == 0 && !actor.constructed && ++actor.unstarted <= kMostUnstarted)
    return Restart(actor);
  if (actor.restarts_left != 0) {
    if (actor.restarts_left > 0) --actor.restarts_left;
    Restart(actor);
    return;
  }
  const auto kind = death.cause() == proto::Death::OUT_OF_MEMORY ? ErrorKind::kOutOfMemory
                                                                 : ErrorKind::kActorDied;
  SetDead(actor, {kind,
                  absl::StrCat("the actor ", actor.creation->spec->spec.name(), " (",
                               actor.id.ToHex(), ") is dead: its process ", DescribeDeath(death)),
                  {}});
}

void CreatedActors::Restart(CreatedActor& actor) {
  actor.state = State::RESTARTING;
  ++restarts_;
  TaskRecord& creation = *actor.creation;
  ++creation.attempt;
  if (creation.state != TaskState::kWaitingForArguments) creation.state = TaskState::kQueued;
  Demand(actor);
}

void CreatedActors::Withdraw(const CreatedActor& actor) {
  proto::LeaseDemand none;
  none.set_key(actor.key);
  none.set_wanted(0);
  SendMessage(transport_.To(RayletOf(self_.node)), FrameKind::kLeaseDemand, none);
}

void CreatedActors::EndLease(CreatedActor& actor, const std::string& reason, Nanos patience) {
  if (actor.lease == 0) {
    if (actor.key == 0) return;
    by_key_.erase(actor.key);
    Withdraw(actor);
    return;
  }
  proto::KillWorker kill;
  kill.set_lease(actor.lease);
  kill.set_process(actor.process.packed());
  kill.set_reason(reason);
  kill.set_patience_ns(patience);
  SendMessage(transport_.To(RayletOf(actor.process.node)), FrameKind::kKillWorker, kill);
}

void CreatedActors::Kill(ActorId id, bool no_restart, const std::string& reason) {
  CreatedActor* actor = Find(id);
  if (actor == nullptr) return;
  const bool for_good = no_restart || actor->restarts_left == 0;
  if (!for_good && actor->lease == 0) return;  // It has no process: it starts anyway.
  if (for_good) return EndForGood(*actor, reason, 0);
  EndLease(*actor, reason);
}

void CreatedActors::NoteLeaving(ActorId id) {
  if (CreatedActor* actor = Find(id)) actor->restarts_left = 0;
}

void CreatedActors::EndForGood(CreatedActor& actor, const std::string& reason, Nanos patience) {
  EndLease(actor, reason, patience);
  SetDead(actor, {ErrorKind::kActorDied,
                  absl::StrCat("the actor ", actor.creation->spec->spec.name(), " (",
                               actor.id.ToHex(), ") was ended: ", reason),
                  {}});
}

void CreatedActors::OnUnreferenced(ObjectId creation_object) {
  const TaskId task = TaskOf(creation_object);
  if (CreatedActor* actor = Find({task.maker_bits, task.sequence_bits}))
    EndForGood(*actor, "no handle of it is left", kPatience);
}

void CreatedActors::OnQuery(ProcessId from, const proto::ActorQuery& query) {
  auto id = ActorId::FromBinary(query.actor_id());
  if (!id.ok()) return;
  proto::ActorAnswer answer;
  if (CreatedActor* actor = Find(*id)) {
    actor->watchers.insert(from);
    watched_by_[from].insert(*id);
    answer = AnswerOf(*actor);
  } else {
    answer.set_actor_id(query.actor_id());
    answer.set_state(State::DEAD);
    const TaskId task{id->maker_bits, id->sequence_bits};
    const ObjectEntry* object = tasks_.references().Find(ReturnOf(task, 0));
    if (object != nullptr && object->state == ObjectState::kError) {  // Handles of it are left.
      SetDeath(object->extra->error, &answer);
    } else {
      answer.set_message(absl::StrCat("the actor ", id->ToHex(), " has ended"));
    }
  }
  SendMessage(transport_.To(from), FrameKind::kActorAnswer, answer);
}

proto::ActorAnswer CreatedActors::AnswerOf(const CreatedActor& actor) const {
  proto::ActorAnswer answer;
  answer.set_actor_id(actor.id.Binary());
  answer.set_state(actor.state);
  answer.set_incarnation(actor.incarnation);
  answer.set_max_task_retries(actor.creation->spec->spec.actor().max_task_retries());
  answer.set_max_pending_calls(actor.creation->spec->spec.actor().max_pending_calls());
  answer.set_out_of_order(actor.creation->spec->spec.actor().out_of_order());
  if (actor.state == State::ALIVE) {
    answer.set_process(actor.process.packed());
    answer.set_lease(actor.lease);
  }
  if (actor.state == State::DEAD) {
    SetDeath(actor.death, &answer);
  }
  return answer;
}

void CreatedActors::TellWatchers(const CreatedActor& actor) {
  const proto::ActorAnswer answer = AnswerOf(actor);
  for (ProcessId watcher : actor.watchers)
    SendMessage(transport_.To(watcher), FrameKind::kActorAnswer, answer);
}

void CreatedActors::Announce(CreatedActor& actor) {
  TellWatchers(actor);
  proto::ActorReport report;
  proto::ActorRow& row = *report.mutable_actor();
  const proto::TaskTemplate& spec = actor.creation->spec->spec;
  row.set_actor_id(actor.id.ToHex());
  row.set_class_name(spec.name());
  row.set_name(spec.actor().name());
  row.set_name_space(spec.actor().name_space());
  row.set_state(actor.state == State::ALIVE && !actor.constructed ? "STARTING"
                                                                  : StateName(actor.state));
  if (actor.lease != 0) row.set_process(actor.process.packed());
  row.set_restarts(actor.incarnation > 0 ? actor.incarnation - 1 : 0);
  row.set_death(actor.death.message);
  SendMessage(transport_.To(RayletOf(self_.node)), FrameKind::kActorReport, report);
  // Last: calls that end now may hold the last reference, with which the actor goes.
  submitter_.OnAnswer(AnswerOf(actor));
}

std::string CreatedActors::Words(const TaskRecord& creation) const {
  if (creation.state == TaskState::kWaitingForArguments)
    return absl::StrCat("waits for ", creation.unresolved, " arguments");
  return "waits for its actor to start";
}

// For good. The creation task goes; the creation object keeps its value or gets the error.
void CreatedActors::SetDead(CreatedActor& actor, Error death, bool known) {
  if (actor.state == State::DEAD) return;
  actor.state = State::DEAD;
  actor.death = std::move(death);
  // As any unfinished task (see Enter). First: calls that end now may hold the last other use.
  ++actor.creation->first_return->uses;
  Announce(actor);
  by_key_.erase(actor.key);
  by_process_.erase(actor.process);
  if (on_named_end_ && !actor.creation->spec->spec.actor().name().empty()) on_named_end_(actor.id);
  Remove(actor, known);
}

// Its creation task fails with its death.
void CreatedActors::Remove(CreatedActor& actor, bool known) {
  for (const ProcessId watcher : actor.watchers) {
    const auto watched = watched_by_.find(watcher);
    watched->second.erase(actor.id);
    if (watched->second.empty()) watched_by_.erase(watched);
  }
  const std::unique_ptr<CreatedActor> keep = std::move(actors_[actor.id]);
  actors_.erase(keep->id);
  tasks_.Fail(*keep->creation, keep->death, known);
}

}  // namespace sheaf
