// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "tests/sim/oracle.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/random.h"

namespace sheaf::sim {
namespace {

constexpr size_t kFailuresKept = 5;
// Another try may bring the value.
bool IsWantOfRoom(ErrorKind kind) {
  return kind == ErrorKind::kObjectStoreFull || kind == ErrorKind::kOutOfDisk;
}
constexpr int kStartAttempts = 4;  // Of a worker, in a row (raylet/workers/worker_pool.h).

}  // namespace

std::string Oracle::Value(uint64_t id, size_t size) const {
  std::string value((size + 7) / 8 * 8, '\0');
  SeededRandom random(seed_ ^ (id * 0x9e3779b97f4a7c15u));
  for (size_t i = 0; i < value.size(); i += 8) {
    const uint64_t word = random.Next();
    std::memcpy(value.data() + i, &word, 8);
  }
  value.resize(size);
  return value;
}

bool Oracle::IsValue(uint64_t id, std::string_view bytes) const {
  return bytes == Value(id, bytes.size());
}

void Oracle::Fail(std::string_view rule, const std::string& words) {
  if (failures_.size() < kFailuresKept)
    failures_.push_back(absl::StrCat(absl::string_view(rule.data(), rule.size()), ": ", words));
}

CallRecord& Oracle::Submitted(TaskId task, const CallArguments& arguments) {
  CallRecord& call = calls_[task];
  call.task = task;
  call.arguments = arguments;
  call.submitter = task.maker();
  return call;
}

CallRecord* Oracle::Find(TaskId task) {
  auto found = calls_.find(task);
  return found == calls_.end() ? nullptr : &found->second;
}

void Oracle::Started(TaskId task, ProcessId where) {
  CallRecord* call = Find(task);
  if (call == nullptr)
    return Fail("O2", absl::StrCat("process ", where.ToString(), " started ", task.ToHex(),
                                   ", which nobody submitted"));
  ++call->starts;
  call->nodes.insert(where.node);
  const bool constructor =
      call->arguments.op == Op::kConstruct || call->arguments.op == Op::kConstructFails;
  if (!constructor && call->retries >= 0 && call->starts > 1 + call->retries) {
    Fail("O5", absl::StrCat("call ", task.ToHex(), " was started ", call->starts, " times, with ",
                            call->retries, " retries"));
  }
  if (call->actor.is_nil() || constructor) return;
  ActorRecord& actor = actors_[call->actor];
  if (actor.processes.empty() || !actor.incarnations.contains(where)) {
    return Fail("O5", absl::StrCat("process ", where.ToString(), " started a call of actor ",
                                   call->actor.ToHex(), " before its constructor"));
  }
  // Of detached actors alone: others hold no lease, and those on a node that was declared dead go
  // on until it ends.
  const bool leased = actor.creator == ProcessId();
  if (actor.processes.back() != where && (leased || !IsNodeDead(where.node))) {
    Fail("O5", absl::StrCat("actor ", call->actor.ToHex(), ": process ", where.ToString(),
                            " started call ", task.ToHex(), " though the newer incarnation ",
                            actor.processes.back().ToString(), " lives"));
  }
  Incarnation& incarnation = actor.incarnations[where];
  const bool again = !incarnation.started.insert(task).second;
  const bool began = incarnation.without_arguments.erase(task) == 0;
  if (again && began && call->arguments.op != Op::kFlaky) {
    Fail("O5", absl::StrCat("call ", task.ToHex(), " was started twice by one incarnation, ",
                            where.ToString()));
  }
  uint64_t& last = incarnation.last_sequence[call->submitter];
  if (!again && actor.keeps_order && call->arguments.sequence <= last) {
    Fail("O5", absl::StrCat("call ", task.ToHex(), " is number ", call->arguments.sequence,
                            " of its caller to actor ", call->actor.ToHex(),
                            " and started after number ", last));
  }
  last = std::max(last, call->arguments.sequence);
}

void Oracle::DidNotBegin(TaskId task, ProcessId where) {
  const CallRecord* call = Find(task);
  if (call == nullptr || call->actor.is_nil()) return;
  const auto actor = actors_.find(call->actor);
  if (actor == actors_.end()) return;
  const auto incarnation = actor->second.incarnations.find(where);
  if (incarnation != actor->second.incarnations.end() && incarnation->second.started.contains(task))
    incarnation->second.without_arguments.insert(task);
}

void Oracle::SentTo(TaskId task, NodeNumber node) {
  if (CallRecord* call = Find(task)) call->nodes.insert(node);
}

bool Oracle::LostNodeOf(const CallRecord& call) {
  const auto dead = [this](NodeNumber node) { return dead_nodes_.contains(node); };
  if (std::any_of(call.nodes.begin(), call.nodes.end(), dead)) return true;
  if (call.actor.is_nil()) return false;
  const ActorRecord& actor = actors_[call.actor];
  return dead(actor.creator.node) ||
         std::any_of(actor_of_.begin(), actor_of_.end(), [&](const auto& entry) {
           return entry.second == call.actor && dead(entry.first.node);
         });
}

bool Oracle::IsOfDeadActor(TaskId task) {
  const CallRecord* call = Find(task);
  if (call == nullptr || call->actor.is_nil()) return false;
  const ProcessId creator = actors_[call->actor].creator;
  return creator != ProcessId() && creator != call->submitter && IsDead(creator);
}

void Oracle::Cancelled(TaskId task, bool recursive) {
  if (CallRecord* call = Find(task)) {
    call->cancelled = true;
    call->cancelled_with_children |= recursive;
  }
}

void Oracle::Made(ObjectId object, uint64_t id, size_t size, TaskId maker) {
  objects_[object] = {id, size, maker};
}

void Oracle::Read(ObjectId object, ErrorKind kind, std::string_view bytes,
                  const std::string& words) {
  auto found = objects_.find(object);
  if (found == objects_.end())
    return Fail("O2", absl::StrCat("object ", object.ToHex(), " was read, and nobody made it"));
  const ObjectRecord& record = found->second;
  CallRecord* call = record.maker.is_nil() ? nullptr : Find(record.maker);
  if (kind == ErrorKind::kNone) {
    const bool fails = call != nullptr && (call->arguments.op == Op::kFails ||
                                           call->arguments.op == Op::kConstructFails);
    if (fails)
      Fail("O2", absl::StrCat("call ", record.maker.ToHex(), " always fails and has a value"));
    if (bytes.size() != record.size || !IsValue(record.id, bytes)) {
      Fail("O2", absl::StrCat("object ", object.ToHex(), " has ", bytes.size(),
                              " bytes that are not its value (", record.size, " bytes)"));
    }
  } else {
    ++errors_[kind];
    std::set<ObjectId> seen;
    const std::string why = WhyNot(object, kind, &seen);
    if (!why.empty()) {
      Fail("O1", absl::StrCat("object ", object.ToHex(), " is ", ErrorName(kind), " (", words,
                              "), but ", why));
    }
  }
  // Readers on their own side may see an error where the owner has a value: its owner died, and no
  // copy is left.
  if (call != nullptr && kind != ErrorKind::kOwnerDied && !IsWantOfRoom(kind) &&
      !IsDead(object.maker())) {
    // What was there can be lost with its node.
    const bool lost =
        (LostNodeOf(*call) || lost_on_disk_.contains(object)) && call->outcome == ErrorKind::kNone;
    if (call->has_outcome && call->outcome != kind && !lost) {
      Fail("O1", absl::StrCat("object ", object.ToHex(), " was ", ErrorName(call->outcome),
                              " and is ", ErrorName(kind), " now"));
    }
    call->has_outcome = true;
    call->outcome = kind;
  }
}

size_t Oracle::SizeOf(ObjectId object) const {
  const auto found = objects_.find(object);
  return found == objects_.end() ? 0 : found->second.size;
}

void Oracle::ReadPart(ObjectId object, uint64_t offset, std::string_view bytes) {
  const ObjectRecord& record = objects_.at(object);
  if (Value(record.id, record.size).substr(offset, bytes.size()) == bytes) return;
  Fail("O2", absl::StrCat("bytes ", offset, " to ", offset + bytes.size(), " of object ",
                          object.ToHex(), " are not those of its value"));
}

std::string Oracle::WhyNot(ObjectId object, ErrorKind kind, std::set<ObjectId>* seen) {
  if (!seen->insert(object).second) return "it was looked at";
  if (kind == ErrorKind::kOwnerDied && IsDead(object.maker())) return "";
  if ((kind == ErrorKind::kObjectLost || kind == ErrorKind::kReconstructionFailed) &&
      lost_on_disk_.contains(object))
    return "";
  if (IsWantOfRoom(kind)) return stores_may_be_full_ ? "" : "all stores have room, or a disk";
  auto found = objects_.find(object);
  const bool made = found != objects_.end() && !found->second.maker.is_nil();
  const CallRecord* call = made ? Find(found->second.maker) : nullptr;
  if (kind == ErrorKind::kObjectLost && call != nullptr && LostNodeOf(*call)) {
    // Its owner reads it, and makes it again while it may.
    const bool again = call->arguments.op == Op::kGenerator && call->starts < 1 + call->retries;
    return again ? absl::StrCat("its stream may run again, and ran ", call->starts, " times") : "";
  }
  // What it was made of was lost, or given up, and cannot be made again.
  if (kind == ErrorKind::kReconstructionFailed && call != nullptr && LostNodeOf(*call)) return "";
  if (!made) return "it was put";
  return call == nullptr ? "its call is unknown" : WhyNotOfCall(*call, kind, seen);
}

std::string Oracle::WhyNotOfCall(const CallRecord& call, ErrorKind kind, std::set<ObjectId>* seen) {
  // An argument's error is the call's.
  for (const ObjectId argument : call.depends) {
    if (WhyNot(argument, kind, seen).empty()) return "";
  }
  switch (kind) {
    case ErrorKind::kTaskFailed:
      if (call.arguments.op == Op::kFails) return "";
      if (call.arguments.op == Op::kFlaky && call.retries >= 0 && call.starts > call.retries)
        return "";
      return "it does not fail";
    case ErrorKind::kTaskCancelled: {
      if (call.cancelled) return "";
      for (const CallRecord* up = Find(call.parent); up != nullptr; up = Find(up->parent)) {
        if (up->cancelled_with_children) return "";
      }
      return "nobody cancelled it";
    }
    case ErrorKind::kEnvironmentFailed:
      return given_up_.contains(driver_of_[call.submitter])
                 ? ""
                 : "on no node so many workers of its job failed to start in a row";
    case ErrorKind::kNodeDied:
      return LostNodeOf(call) ? "" : "no node died on which it was";
    case ErrorKind::kWorkerCrashed:
      if (!call.actor.is_nil()) return "it is an actor's";
      if (call.retries >= 0 && call.starts == 1 + call.retries) return "";
      return absl::StrCat("it was started ", call.starts, " times and has ", call.retries,
                          " retries");
    case ErrorKind::kActorDied: {
      if (call.actor.is_nil()) return "it is no actor's";
      const ActorRecord& actor = actors_[call.actor];
      return actor.may_die || IsDead(actor.creator) ? "" : "its actor had no reason to die";
    }
    case ErrorKind::kActorUnavailable: {
      if (call.actor.is_nil()) return "it is no actor's";
      return actors_[call.actor].disturbed ? "" : "no process of its actor died";
    }
    default:
      return "nothing in this run may cause that";
  }
}

void Oracle::ActorMade(ActorId actor, ProcessId creator, int max_restarts) {
  ActorRecord& record = actors_[actor];
  record.creator = creator;
  record.max_restarts = record.restarts_left = max_restarts;
}

void Oracle::ActorMayDie(ActorId actor) { actors_[actor].may_die = true; }

void Oracle::ActorKilled(ActorId id) {
  ActorRecord& actor = actors_[id];
  actor.disturbed = true;
  if (actor.restarts_left == 0) actor.may_die = true;
}

void Oracle::ActorLeased(ActorId id, ProcessId where) {
  if (!actor_of_.emplace(where, id).second) return;
  if (IsDead(where)) Disturb(id);
}

void Oracle::ActorStarts(ActorId id, ProcessId where) {
  ActorRecord& actor = actors_[id];
  actor.processes.push_back(where);
  actor.incarnations[where];
  if (actor.max_restarts < 0) return;
  // A start that was lost with its node is free.
  const auto lost =
      std::count_if(actor.processes.begin(), actor.processes.end(),
                    [this](ProcessId process) { return dead_nodes_.contains(process.node); });
  if (actor.processes.size() > static_cast<size_t>(1 + actor.max_restarts + lost)) {
    Fail("O5", absl::StrCat("actor ", id.ToHex(), " has ", actor.processes.size(),
                            " incarnations, with ", actor.max_restarts, " restarts"));
  }
}

void Oracle::Disturb(ActorId id) {
  ActorRecord& actor = actors_[id];
  actor.disturbed = true;
  if (actor.restarts_left == 0) {
    actor.may_die = true;
  } else if (actor.restarts_left > 0) {
    --actor.restarts_left;
  }
}

void Oracle::NodeDied(NodeNumber node) {
  if (!dead_nodes_.insert(node).second) return;
  for (const auto& [process, actor] : actor_of_) {
    if (process.node == node && dead_.insert(process).second) Disturb(actor);
  }
}

void Oracle::WorkerStartFailed(NodeNumber node, ProcessId driver) {
  if (++failed_starts_[{node, driver}] >= kStartAttempts) given_up_.insert(driver);
}

void Oracle::ProcessDied(ProcessId process) {
  if (!dead_.insert(process).second) return;
  if (auto found = actor_of_.find(process); found != actor_of_.end()) Disturb(found->second);
}

void Oracle::CommandStarts(const std::string& id, NodeNumber node) {
  CommandRecord& command = commands_[id];
  if (!command.nodes.empty()) {
    Fail("O3", absl::StrCat("the command '", id, "' is started on node ", node,
                            " and was started on node ", command.nodes.back(), " before"));
  }
  command.nodes.push_back(node);
}

void Oracle::CommandIsOver(const std::string& id, proto::Submission::State state, bool wished) {
  ++command_ends_[state];
  const CommandRecord& command = commands_[id];
  // A node may die before it has heard of the command.
  const bool lost = command.nodes.empty()
                        ? !dead_nodes_.empty()
                        : std::any_of(command.nodes.begin(), command.nodes.end(),
                                      [this](NodeNumber node) { return IsNodeDead(node); });
  const bool may_be = state == proto::Submission::SUCCEEDED ? command.well == true
                      : state == proto::Submission::STOPPED ? wished
                                                            : command.well == false || lost;
  if (!may_be) {
    Fail("O3",
         absl::StrCat("the command '", id, "' is ", proto::Submission::State_Name(state), ", and ",
                      command.nodes.empty() ? "was never started"
                      : !command.well       ? "did not end by itself"
                      : *command.well       ? "ended well"
                                            : "failed",
                      wished ? "" : "; nobody asked for its end"));
  }
}

void Oracle::ReadsRegister(const std::string& key, uint64_t least, uint64_t value) {
  const Register& known = registers_[key];
  if (value < least || value > known.begun) {
    Fail("O3", absl::StrCat("key ", key, " reads as ", value, "; ", least,
                            " was acknowledged before, and ", known.begun,
                            " is the last that was written"));
  }
}

}  // namespace sheaf::sim
