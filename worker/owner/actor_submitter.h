// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Calls to actors, from any process: in order per caller, directly to the actor's process, held
// back while it starts or restarts. To an actor that executes out of order those that can start
// overtake those that wait for arguments. Where an actor is, its creator knows (CreatedActors); others ask
// it, and are told of each change. Calls beyond the credits of their actor or of the way to it
// (back_pressure.h) stay here, in order, until there is room. Pure.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/flat_hash_map.h"
#include "proto/worker.pb.h"
#include "worker/owner/back_pressure.h"
#include "worker/owner/peer_table.h"
#include "worker/owner/task_table.h"

namespace sheaf {

struct ActorClient {
  ActorId id;
  proto::ActorAnswer::State state = proto::ActorAnswer::PENDING;
  Peer* peer = nullptr;  // ALIVE.
  uint64_t lease = 0;
  uint32_t incarnation = 0;
  uint64_t pushes = 0;  // In this incarnation.
  TaskList queue;       // Not pushed, in call order.
  TaskList waiting;  // Out of order: those that wait for arguments, which are not in `queue` then.
  TaskList in_flight;  // In push order.
  TaskList undecided;  // Were in flight when the process died; the next answer says what becomes of
                       // them.
  Error death;         // DEAD, or `ended`.
  NodeNumber node = 0;            // Of its last process.
  int32_t max_task_retries = 0;   // Of calls that name no number of their own; as the creator said.
  int64_t max_pending_calls = 0;  // Of this caller; 0 or below: no bound.
  int inputs = 0;                 // Being worked on.
  bool ended = false;             // This process had it killed for good, and calls it no more.
  bool out_of_order = false;
  bool asked = false;
  bool held_back = false;  // In ActorSubmitter::held_back_.
  bool answered = false;   // Since the last Inquire.
  uint64_t replies = 0;
  Nanos asked_at = 0;
  bool local = false;               // Managed by this process: no questions are asked.
  bool own = false;                 // It is this process.
  bool detached = false;            // Managed by the GCS.
  uint8_t questions = 0;            // Detached: to it, since the actor was last known to live.
  ObjectEntry* creation = nullptr;  // The actor's creation object...
  bool held = false;  // ...has one use while calls are pending: they keep the actor alive.
};

class ActorSubmitter final : public TaskDispatcher {
 public:
  // Who asks the GCS where an actor is hears of no change: after so long it asks again, then after
  // twice as long each time.
  static constexpr Nanos kFirstAskAgain = 4 * kMillisecond;

  ActorSubmitter(ProcessId self, Transport& transport, TaskTable& tasks, PeerTable& peers,
                 const BackPressure& limits);

  // Detached actors are asked for at the GCS: `ask` is called (again) when one is needed.
  void set_ask_gcs(std::function<void(ActorId)> ask) { ask_gcs_ = std::move(ask); }

  // By the actor's creation object (its handle); stays until that is freed.
  ActorClient& ClientOf(ObjectEntry& creation);
  // `creation` is being freed: no handle of the actor is left in this process, and no call of it
  // pending.
  void Forget(const ObjectEntry& creation);
  // Asks how the actor is, although it may be known; client.answered says when an answer has come.
  void Inquire(ActorClient& client) {
    client.answered = false;
    Ask(client);
  }
  // The next call of this caller.
  void Submit(ActorClient& client, ObjectEntry& creation, TaskRecord& task);
  // This process had the actor killed for good: what it calls from now on ends in `why`, also while
  // the actor's end is on its way.
  void RefuseFromNowOn(ActorClient& client, Error why);
  void OnArgumentsReady(TaskRecord& task) override;
  void OnReply(const TaskTable::Reply& reply, ProcessId from);
  void OnReturned(TaskRecord& task);
  // The creator, the GCS or the CreatedActors of this process says how things stand.
  void OnAnswer(const proto::ActorAnswer& answer);
  void OnProcessDied(ProcessId process, const proto::Death& death, uint64_t started);
  void Cancel(TaskRecord& task, bool recursive);
  // Asks again about actors that are waited for. Returns when it wants to be called next.
  Nanos Tick();
  // The GCS was asked since the last call: Tick wants to be called within kFirstAskAgain.
  bool TakeAsked() { return std::exchange(asked_, false); }
  size_t pending(const ActorClient& client) const {
    return client.queue.size + client.waiting.size + client.in_flight.size + client.undecided.size;
  }
  // Of the credits that `client` has at its actor. A caller may call while there are some left. An
  // actor needs none at itself: the thread that waited for them might be the one that gives them.
  bool has_credits(const ActorClient& client) const {
    return pending_bytes(client) < limits_.max_pending || client.own;
  }
  // Who has waited for credits goes on when there are some more, so that not each of many calls
  // waits; or when the actor is dead, to hear of it.
  bool may_go_on(const ActorClient& client) const {
    return client.state == proto::ActorAnswer::DEAD || client.own ||
           pending_bytes(client) < limits_.max_pending - limits_.max_pending / 8;
  }
  size_t pending_bytes(const ActorClient& client) const {
    return client.queue.bytes + client.waiting.bytes + client.in_flight.bytes +
           client.undecided.bytes;
  }
  // Some calls wait for room on the way to their actors; PushHeldBack sends those that have some
  // now. To be called after frames came or went.
  bool holds_back() const { return !held_back_.empty(); }
  void PushHeldBack();
  std::string Words(const TaskRecord& task) const;
  // Of the process that an unfinished call waits for: the actor's, or the creator's that is asked
  // for it. 0: of none.
  NodeNumber AwaitedNode(const TaskRecord& task) const;

 private:
  void Pump(ActorClient& client);
  bool PushWhileRoom(ActorClient& client);
  // Of those that are not pushed.
  static TaskList& ListOf(ActorClient& client, const TaskRecord& task) {
    const bool waits = task.state == TaskState::kWaitingForArguments;
    return client.out_of_order && waits ? client.waiting : client.queue;
  }
  void Push(ActorClient& client, TaskRecord& task);
  bool HasRoom(const ActorClient& client) const {
    return client.in_flight.bytes < limits_.max_pending &&
           client.peer->channel->queued_bytes() < limits_.max_untaken;
  }
  class Input;
  void Settle(ActorClient& client);  // At the end of an input: may end the actor.
  void Ask(ActorClient& client);
  void DecideAfterDeath(ActorClient& client, bool dead);

  const ProcessId self_;
  Transport& transport_;
  TaskTable& tasks_;
  PeerTable& peers_;
  const BackPressure limits_;
  std::function<void(ActorId)> ask_gcs_;
  // Walked in this order, so that a run can be repeated.
  absl::btree_map<ActorId, std::unique_ptr<ActorClient>> clients_;
  absl::flat_hash_map<ProcessId, ActorClient*> by_process_;
  std::vector<ActorClient*> held_back_;
  bool asked_ = false;  // The GCS, since the last TakeAsked.
};

}  // namespace sheaf
