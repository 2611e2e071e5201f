// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What must hold in every run, checked as it happens:
//   O1  each call ends in exactly one value or typed error, and an error only where something
//       happened that may cause it
//   O2  a value is f(seed, id)
//   O3  what the GCS acknowledged is there
//   O4  at rest nothing is left (checked by the cluster, which says so here)
//   O5  no call is started more often than its retries allow; calls of one caller start in order;
//       once a newer incarnation of an actor runs, an older one starts nothing; an actor has as
//       many incarnations as its restarts allow
//   O6  what only lineage holds has no bytes (checked by the processes)
//   O7  no node speaks to a GCS that it knows to be away: that would pile up in its link
// Simulated processes tell the oracle what they do; it knows nothing of Sheaf's inside.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error_kind.h"
#include "base/ids.h"
#include "proto/gcs.pb.h"

namespace sheaf::sim {

// What a call does, when it runs.
enum class Op : uint8_t {
  kPlain = 0,
  kSlow,         // Runs long.
  kNested,       // Calls others and waits for them.
  kMakesObject,  // Returns a reference to an object of its own.
  kFails,        // Always.
  kFlaky,        // Fails at the first attempt, retriably.
  kCrashes,      // Ends its process at the first attempt.
  kGenerator,
  kForever,    // Until it is cancelled.
  kConstruct,  // An actor.
  kConstructFails,
  kActorCall,
  kActorHold,  // Keeps the reference that lies inside its argument.
  kActorGive,  // Returns the reference that it keeps.
  kActorCrash,
  kActorCallsItself,  // By the handle inside its argument; returns the reference to the result.
};

// The first argument of every call.
struct CallArguments {
  uint64_t id = 0;        // Of the call: its value is f(seed, id).
  uint64_t sequence = 0;  // Of its caller, to one actor.
  uint64_t size = 0;      // Bytes of its value.
  Op op = Op::kPlain;
  uint8_t depth = 0;
  uint16_t count = 0;  // Items, children; retries of the call that an actor makes of itself, + 1.
  uint32_t run_us = 0;
};

struct CallRecord {
  CallArguments arguments;
  TaskId task;
  TaskId parent;
  ProcessId submitter;
  int retries = 0;                // -1: without bound.
  ActorId actor;                  // Nil: a task.
  std::vector<ObjectId> depends;  // Objects that it gets as arguments,
  std::vector<ObjectId> inside;   // and those of which a reference lies inside its first argument.
  int starts = 0;
  std::set<NodeNumber> nodes;  // On which it was started, or to which it was sent.
  bool cancelled = false;
  bool cancelled_with_children = false;
  bool has_outcome = false;
  ErrorKind outcome = ErrorKind::kNone;
};

class Oracle {
 public:
  explicit Oracle(uint64_t seed) : seed_(seed) {}

  // f(seed, id), `size` bytes of it.
  std::string Value(uint64_t id, size_t size) const;
  bool IsValue(uint64_t id, std::string_view bytes) const;

  // Calls.
  CallRecord& Submitted(TaskId task, const CallArguments& arguments);
  CallRecord* Find(TaskId task);
  void Started(TaskId task, ProcessId where);
  // Its arguments could not be had there.
  void DidNotBegin(TaskId task, ProcessId where);
  void SentTo(TaskId task, NodeNumber node);  // Another than its caller's.
  void Cancelled(TaskId task, bool recursive);
  // An object with the value of `id`; `maker` nil: of no call.
  void Made(ObjectId object, uint64_t id, size_t size, TaskId maker);
  // Somebody read `object`. `kind` kNone: the value is `bytes`.
  void Read(ObjectId object, ErrorKind kind, std::string_view bytes, const std::string& words);
  // The same of a part of its value, from `offset` on.
  void ReadPart(ObjectId object, uint64_t offset, std::string_view bytes);
  // Of its value; 0: nobody made it.
  size_t SizeOf(ObjectId object) const;

  // Actors.
  void ActorMade(ActorId actor, ProcessId creator, int max_restarts);
  void ActorMayReorder(ActorId actor) { actors_[actor].keeps_order = false; }
  void ActorMayDie(ActorId actor);
  void ActorKilled(ActorId actor);                   // It may restart, if it has restarts left.
  void ActorLeased(ActorId actor, ProcessId where);  // A process becomes an incarnation,
  void ActorStarts(ActorId actor, ProcessId where);  // and begins its constructor.

  void ProcessDied(ProcessId process);
  // A node had this object on disk alone, and the disk has lost it.
  void LostOnDisk(ObjectId object) { lost_on_disk_.insert(object); }
  // Some disk was full, or broken.
  void StoresMayBeFull() { stores_may_be_full_ = true; }
  bool stores_may_be_full() const { return stores_may_be_full_; }
  bool MayBeOver(ActorId actor) { return actors_[actor].may_die; }
  // Of the job of `driver`, as the raylet of `node` sees it.
  void WorkerReady(NodeNumber node, ProcessId driver) { failed_starts_.erase({node, driver}); }
  void WorkerStartFailed(NodeNumber node, ProcessId driver);
  void Joins(ProcessId process, ProcessId driver) { driver_of_[process] = driver; }
  // It is over, or the GCS has said so: what its processes do from then on counts for nobody.
  void NodeDied(NodeNumber node);
  // A call of an actor whose creator is dead.
  bool IsOfDeadActor(TaskId task);
  bool IsNodeDead(NodeNumber node) const { return dead_nodes_.contains(node); }
  bool IsDead(ProcessId process) const {
    return dead_.contains(process) || dead_nodes_.contains(process.node);
  }

  // Commands that were submitted, by the names of their submissions.
  void CommandStarts(const std::string& id, NodeNumber node);
  void CommandEnds(const std::string& id, bool well) { commands_[id].well = well; }
  // What the GCS says of one that is over; `wished`: somebody asked for its end.
  void CommandIsOver(const std::string& id, proto::Submission::State state, bool wished);
  size_t commands() const { return commands_.size(); }
  const std::map<proto::Submission::State, size_t>& command_ends() const { return command_ends_; }

  // One register per key, with one writer who counts up.
  void Writes(const std::string& key, uint64_t value) { registers_[key].begun = value; }
  void Acknowledged(const std::string& key, uint64_t value) {
    registers_[key].acknowledged = value;
  }
  uint64_t LeastOf(const std::string& key) { return registers_[key].acknowledged; }
  void ReadsRegister(const std::string& key, uint64_t least, uint64_t value);

  void Fail(std::string_view rule, const std::string& words);
  bool ok() const { return failures_.empty(); }
  const std::vector<std::string>& failures() const { return failures_; }
  size_t calls() const { return calls_.size(); }
  size_t errors_seen(ErrorKind kind) const {
    auto found = errors_.find(kind);
    return found == errors_.end() ? 0 : found->second;
  }
  const std::map<ErrorKind, size_t>& errors() const { return errors_; }

 private:
  struct ObjectRecord {
    uint64_t id = 0;
    size_t size = 0;
    TaskId maker;
  };
  struct Incarnation {
    std::map<ProcessId, uint64_t> last_sequence;  // By caller.
    std::set<TaskId> started;
    std::set<TaskId> without_arguments;  // Of those; they did not begin, and may come again.
  };
  struct ActorRecord {
    ProcessId creator;
    int max_restarts = 0;  // -1: without bound.
    int restarts_left = 0;
    bool may_die = false;
    bool keeps_order = true;           // Of the calls of a caller.
    bool disturbed = false;            // A process of it died.
    std::vector<ProcessId> processes;  // Oldest first.
    std::map<ProcessId, Incarnation> incarnations;
  };
  struct CommandRecord {
    std::vector<NodeNumber> nodes;  // Where it was started.
    std::optional<bool> well;       // It ended by itself, so.
  };
  struct Register {
    uint64_t begun = 0, acknowledged = 0;
  };

  void Disturb(ActorId actor);
  // Whether a node died on which the call ran, or may have run, or on which its actor was.
  bool LostNodeOf(const CallRecord& call);
  // Empty: `kind` may be the outcome of `object`.
  std::string WhyNot(ObjectId object, ErrorKind kind, std::set<ObjectId>* seen);
  std::string WhyNotOfCall(const CallRecord& call, ErrorKind kind, std::set<ObjectId>* seen);

  const uint64_t seed_;
  std::map<TaskId, CallRecord> calls_;
  std::map<ObjectId, ObjectRecord> objects_;
  std::map<ActorId, ActorRecord> actors_;
  std::map<ProcessId, ActorId> actor_of_;
  std::set<ProcessId> dead_;
  std::set<NodeNumber> dead_nodes_;
  std::map<ProcessId, ProcessId> driver_of_;  // Whose job a process belongs to.
  std::map<std::pair<NodeNumber, ProcessId>, int> failed_starts_;  // In a row.
  std::set<ProcessId> given_up_;  // Drivers for whom some node has given up starting workers.
  std::set<ObjectId> lost_on_disk_;
  bool stores_may_be_full_ = false;
  std::map<std::string, Register> registers_;
  std::map<std::string, CommandRecord> commands_;
  std::map<proto::Submission::State, size_t> command_ends_;
  std::map<ErrorKind, size_t> errors_;
  std::vector<std::string> failures_;
};

}  // namespace sheaf::sim
