// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The actors that this process created and answers for: it leases a worker for each, sends the
// creation task, decides about restarts, and tells everybody who asks where the actor is. (Detached
// actors are the GCS's.) Pure.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/container/btree_set.h"
#include "absl/container/flat_hash_map.h"
#include "proto/raylet.pb.h"
#include "worker/owner/actor_submitter.h"

namespace sheaf {

struct CreatedActor {
  ActorId id;
  TaskRecord* creation = nullptr;  // Kept for restarts.
  proto::ActorAnswer::State state = proto::ActorAnswer::PENDING;
  uint64_t key = 0;
  LeaseNumber lease = 0;
  ProcessId process;
  uint32_t incarnation = 0;
  int32_t restarts_left = 0;
  uint32_t unstarted = 0;    // Processes in a row that ended before its constructor began.
  bool constructed = false;  // This incarnation's constructor has run.
  Error death;
  absl::btree_set<ProcessId> watchers;
};

class CreatedActors final : public TaskDispatcher {
 public:
  static constexpr uint64_t kFirstKey = uint64_t{1}
                                        << 40;  // Lease keys from here on are this class's.

  CreatedActors(ProcessId self, Transport& transport, TaskTable& tasks, PeerTable& peers,
                ActorSubmitter& submitter);

  // `creation` is the creation task; the actor's id is the task's.
  void Create(TaskRecord& creation) {
    Enter(creation);
    Begin(creation);
  }
  // The two halves of it. Between them the actor is pending for all who ask.
  void Enter(TaskRecord& creation);
  void Begin(TaskRecord& creation);
  // In place of the second: it never begins, and nobody shall see it in listings.
  void GiveUp(TaskRecord& creation, Error why);
  void OnArgumentsReady(TaskRecord& creation) override;
  bool Manages(ActorId actor) const { return actors_.contains(actor); }
  bool HasAny() const { return !actors_.empty(); }
  ProcessId ProcessOf(ActorId actor) const;  // Of its last incarnation; default: there is none.

  void OnGrant(const proto::LeaseGrant& grant);
  void OnRefused(const proto::LeaseRefused& refused);
  void OnReply(const TaskTable::Reply& reply, ProcessId from);
  // `started`: its last call from here that began; 0: the constructor did not.
  void OnProcessDied(ProcessId process, const proto::Death& death, uint64_t started);
  void OnQuery(ProcessId from, const proto::ActorQuery& query);
  void Kill(ActorId actor, bool no_restart, const std::string& reason);
  // It will end, and is not restarted if that is by a death.
  void NoteLeaving(ActorId actor);
  // No handle is left anywhere, and no call of it: its process runs what users have for its end.
  void OnUnreferenced(ObjectId creation_object);
  // `ended` is called once for each named actor that ended for good: its name is free.
  void set_on_named_end(std::function<void(ActorId)> ended) { on_named_end_ = std::move(ended); }
  uint64_t restarts() const { return restarts_; }
  std::string Words(const TaskRecord& creation) const;  // What it waits for.

 private:
  CreatedActor* Find(ActorId actor);
  void Demand(CreatedActor& actor);
  void Announce(CreatedActor& actor);
  void Restart(CreatedActor& actor);
  // `known`: the executor has recorded how the constructor ended (TaskTable::Fail).
  void SetDead(CreatedActor& actor, Error death, bool known = false);
  void TellWatchers(const CreatedActor& actor);
  void Remove(CreatedActor& actor, bool known);
  void Withdraw(const CreatedActor& actor);  // Its demand.
  // With `patience` its process may leave by itself so long.
  void EndLease(CreatedActor& actor, const std::string& reason, Nanos patience = 0);
  void EndForGood(CreatedActor& actor, const std::string& reason, Nanos patience);
  proto::ActorAnswer AnswerOf(const CreatedActor& actor) const;

  const ProcessId self_;
  Transport& transport_;
  TaskTable& tasks_;
  PeerTable& peers_;
  ActorSubmitter& submitter_;
  std::function<void(ActorId)> on_named_end_;
  uint64_t next_key_ = kFirstKey;
  uint64_t restarts_ = 0;
  absl::flat_hash_map<ActorId, std::unique_ptr<CreatedActor>> actors_;
  absl::flat_hash_map<uint64_t, CreatedActor*> by_key_;
  absl::flat_hash_map<ProcessId, CreatedActor*> by_process_;
  absl::flat_hash_map<ProcessId, absl::btree_set<ActorId>> watched_by_;  // What each watches.
};

}  // namespace sheaf
