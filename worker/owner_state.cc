// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "worker/owner_state.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/parse_frame.h"
#include "object_store/messages.h"
#include "worker/wire.h"

namespace sheaf {
namespace {

constexpr int kMostLooks = 100;  // At what an object waits for, for an error that is only early.

}  // namespace

OwnerState::OwnerState(ProcessId self, Clock& clock, Transport& transport, LocalStore& store,
                       std::function<void(std::span<const ObjectId>)> look_up,
                       const BackPressure& limits)
    : self(self),
      transport(transport),
      references(self, transport, store),
      peers(transport),
      tasks(self, clock, transport, references),
      submitter(self, transport, tasks, peers, limits),
      templates(peers, submitter),
      actors(self, transport, tasks, peers, limits),
      created_actors(self, transport, tasks, peers, actors),
      resolver(self, clock, transport, store, references, tasks, transits, submitter,
               std::move(look_up)) {
  references.set_release_task([this](ObjectEntry& entry) { tasks.ReleaseLineage(entry); });
  tasks.set_want_borrowed([this](ObjectEntry& object) { resolver.Want(object); });
  references.set_on_stream_abandoned([this](ObjectEntry& entry) { tasks.StreamAbandoned(entry); });
  references.set_on_actor_unreferenced([this](ObjectEntry& handle) {
    created_actors.OnUnreferenced(handle.id);
    actors.Forget(handle);
  });
}

OwnerState::~OwnerState() {
  references.set_release_task(nullptr);
  references.set_on_stream_abandoned(nullptr);
  references.set_on_actor_unreferenced(nullptr);
}

bool OwnerState::OnFrame(ProcessId from, const Frame& frame) {
  if (frame.kind == kStoreCopied) {
    resolver.OnCopied(from, FrameItems<ObjectName>(frame.body));
    return true;
  }
  switch (frame.kind) {
    case FrameKind::kTaskReply:
      OnReply(from, frame.body);
      return true;
    case FrameKind::kTaskReturned:
      OnReturned(from, frame.body);
      return true;
    case FrameKind::kStreamItem:
      tasks.OnStreamItem(from, frame.body);
      return true;
    case FrameKind::kTransitDone:
      OnTransitDone(from, frame);
      return true;
    case FrameKind::kObjectQuery:
      resolver.OnQuery(from, frame.body);
      return true;
    case FrameKind::kObjectAnswer:
      resolver.OnAnswer(from, frame.body);
      return true;
    case FrameKind::kActorQuery: {
      if (auto query = ParseFrame<proto::ActorQuery>(frame); query.ok())
        created_actors.OnQuery(from, *query);
      return true;
    }
    case FrameKind::kActorAnswer: {
      if (auto answer = ParseFrame<proto::ActorAnswer>(frame); answer.ok())
        actors.OnAnswer(*answer);
      return true;
    }
    case FrameKind::kActorControl:
      OnActorControl(from, frame);
      return true;
    case FrameKind::kLeaseGrant:
    case FrameKind::kLeaseRefused:
    case FrameKind::kLeaseRevoke:
      return OnLeaseFrame(from, frame);
    case FrameKind::kRefsReported: {
      const auto reported = ParseFrame<proto::RefsReported>(frame);
      if (!reported.ok()) return true;
      references.OnRefsReported(*reported);
      resolver.OnOrphans(reported->orphan_ids());
      return true;
    }
    case FrameKind::kNodeRefs: {
      if (auto refs = ParseFrame<proto::NodeRefs>(frame); refs.ok())
        references.OnNodeRefs(from, *refs);
      return true;
    }
    case FrameKind::kAdoptedAnswer: {
      if (auto answer = ParseFrame<proto::AdoptedAnswer>(frame); answer.ok())
        resolver.OnAdopted(*answer);
      return true;
    }
    default:
      return false;
  }
}

void OwnerState::OnTransitDone(ProcessId from, const Frame& frame) {
  const auto* done = FrameHead<TransitDone>(frame.body);
  if (done == nullptr) return;
  if (done->transit != 0) {
    transits.Done(from, done->transit);
  } else {
    tasks.OnTransitDone(from, frame.body);
  }
}

void OwnerState::OnActorControl(ProcessId from, const Frame& frame) {
  const auto control = ParseFrame<proto::ActorControl>(frame);
  if (!control.ok()) return;
  const auto actor = ActorId::FromBinary(control->actor_id());
  if (!actor.ok()) return;
  if (control->leaves() && created_actors.ProcessOf(*actor) == from)
    created_actors.NoteLeaving(*actor);
  if (!control->kill()) return;
  created_actors.Kill(
      *actor, control->no_restart(),
      created_actors.ProcessOf(*actor) == from ? "it asked for its end" : "kill was called");
}

// False: it is about a lease that this process works under.
bool OwnerState::OnLeaseFrame(ProcessId from, const Frame& frame) {
  if (frame.kind == FrameKind::kLeaseRevoke) {
    const auto revoke = ParseFrame<proto::LeaseRevoke>(frame);
    return !revoke.ok() || submitter.OnRevoke(from.node, *revoke);
  }
  if (frame.kind == FrameKind::kLeaseGrant) {
    const auto grant = ParseFrame<proto::LeaseGrant>(frame);
    if (!grant.ok()) return true;
    if (grant->key() >= CreatedActors::kFirstKey) {
      created_actors.OnGrant(*grant);
    } else {
      submitter.OnGrant(*grant);
    }
    return true;
  }
  const auto refused = ParseFrame<proto::LeaseRefused>(frame);
  if (!refused.ok()) return true;
  if (refused->key() >= CreatedActors::kFirstKey) {
    created_actors.OnRefused(*refused);
  } else {
    submitter.OnRefused(*refused);
  }
  return true;
}

void OwnerState::OnReply(ProcessId from, std::string_view body) {
  const TaskTable::Reply reply = tasks.ParseReply(body);
  if (reply.task == nullptr) return;
  switch (reply.task->spec->spec.kind()) {
    case proto::TaskTemplate::ACTOR_CREATION:
      created_actors.OnReply(reply, from);
      return;
    case proto::TaskTemplate::ACTOR_METHOD:
      actors.OnReply(reply, from);
      return;
    default:
      submitter.OnReply(reply, from);
      return;
  }
}

void OwnerState::OnReturned(ProcessId, std::string_view body) {
  const auto* returned = FrameHead<TaskReturned>(body);
  if (returned == nullptr) return;
  TaskRecord* task = tasks.Find(returned->cookie, returned->task_sequence_bits);
  if (task == nullptr || task->state != TaskState::kPushed || task->push != returned->push ||
      task->attempt != returned->attempt) {
    return;
  }
  ++pushes_returned;
  if (task->spec->spec.kind() == proto::TaskTemplate::TASK) submitter.OnReturned(*task);
  if (task->spec->spec.kind() == proto::TaskTemplate::ACTOR_METHOD) actors.OnReturned(*task);
}

void OwnerState::OnProcessDied(ProcessId process, const proto::Death& death, uint64_t started) {
  submitter.OnProcessDied(process, death, started);
  actors.OnProcessDied(process, death, started);
  created_actors.OnProcessDied(process, death, started);
  resolver.OnProcessDied(process);
  transits.ProcessDied(process);
  tasks.ProcessDied(process);
  peers.Forget(process);
}

void OwnerState::OnNodeSilent(NodeNumber node, const std::string& reason) {
  if (reason.empty()) {
    silent_nodes_.erase(node);
  } else {
    silent_nodes_[node] = reason;
  }
}

std::string OwnerState::WordsOfSilence(const ObjectEntry& object) const {
  if (silent_nodes_.empty()) [[likely]]
    return {};
  int looks = kMostLooks;
  const NodeNumber node = SilentNodeOf(object, &looks);
  return node == 0 ? std::string() : silent_nodes_.at(node);
}

// 0: none keeps `object` from coming, as far as this process knows.
NodeNumber OwnerState::SilentNodeOf(const ObjectEntry& object, int* looks) const {
  if (--*looks < 0) return 0;
  const auto if_silent = [this](NodeNumber node) -> NodeNumber {
    return silent_nodes_.contains(node) ? node : 0;
  };
  if (object.ready()) {
    if (resolver.IsHere(object)) return 0;
    if (object.extra) {
      for (const ObjectLocation& copy : object.extra->copies) {
        if (if_silent(copy.node) == 0) return 0;
      }
    }
    return if_silent(object.location.node);
  }
  if (!object.owned) return if_silent(object.id.maker().node);
  if (object.task == nullptr) return 0;
  const TaskRecord& task = *object.task;
  if (task.state == TaskState::kWaitingForArguments && task.references) {
    for (const TaskReferences::Argument& argument : task.references->arguments) {
      if (argument.object->ready()) continue;
      if (const NodeNumber node = SilentNodeOf(*argument.object, looks); node != 0) return node;
    }
  }
  switch (task.spec->spec.kind()) {
    case proto::TaskTemplate::TASK:
      if (task.state != TaskState::kPushed) return 0;  // It goes to another node.
      return if_silent(task.target.lease()->worker->process.node);
    case proto::TaskTemplate::ACTOR_METHOD:
      if (task.state != TaskState::kPushed && task.state != TaskState::kQueued) return 0;
      return if_silent(actors.AwaitedNode(task));
    default:
      return 0;
  }
}

std::string OwnerState::WordsOf(const TaskRecord& task) const {
  switch (task.spec->spec.kind()) {
    case proto::TaskTemplate::ACTOR_METHOD:
      return actors.Words(task);
    case proto::TaskTemplate::ACTOR_CREATION:
      return created_actors.Words(task);
    default:
      return submitter.Words(task);
  }
}

void OwnerState::OnNodeGone(NodeNumber node) {
  silent_nodes_.erase(node);
  references.OnNodeGone(node);
  resolver.OnNodeGone(node);
}

void OwnerState::CancelRecord(TaskRecord& task, bool force, bool recursive) {
  switch (task.spec->spec.kind()) {
    case proto::TaskTemplate::TASK:
      submitter.Cancel(task, force, recursive);
      return;
    case proto::TaskTemplate::ACTOR_METHOD:
      if (task.state != TaskState::kFinished) actors.Cancel(task, recursive);
      return;
    default:
      return;
  }
}

void OwnerState::Cancel(ObjectEntry& object, bool force, bool recursive) {
  if (object.owned) {
    if (object.task != nullptr && !object.ready()) CancelRecord(*object.task, force, recursive);
    return;
  }
  transport.To(object.id.maker())
      .Send(Lane::kControl, FrameKind::kCancelTask,
            AsBytes(sheaf::CancelTask{TaskOf(object.id), force, recursive}));
}

void OwnerState::CancelTask(TaskId id, bool force, bool recursive) {
  std::vector<TaskRecord*> found;
  tasks.ForEach([&](TaskRecord& task) {
    if (tasks.IdOf(task) == id) found.push_back(&task);
  });
  for (TaskRecord* task : found) CancelRecord(*task, force, recursive);
}

void OwnerState::CancelChildren(TaskId parent, bool force) {
  std::vector<std::pair<uint32_t, uint64_t>> children;
  tasks.ForEach([&](TaskRecord& task) {
    if (task.parent == parent && task.state != TaskState::kFinished)
      children.emplace_back(task.cookie, task.sequence_bits);
  });
  for (auto [cookie, bits] : children) {
    TaskRecord* task = tasks.Find(cookie, bits);  // Cancelling one may have ended another.
    if (task != nullptr) CancelRecord(*task, force, true);
  }
}

Nanos OwnerState::Tick() { return std::min({submitter.Tick(), actors.Tick(), resolver.Tick()}); }

}  // namespace sheaf
