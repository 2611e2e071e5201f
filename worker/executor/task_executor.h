// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The calls that this worker has been given: which may run (its lease, the actor's constructor
// first, concurrency groups), in which order, and what their owners hear. Guarded by the runtime's
// lock; the runtime's threads take calls from here.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "base/clock.h"
#include "metrics/counter.h"
#include "proto/raylet.pb.h"
#include "shm/started_calls.h"
#include "worker/executor/argument_holds.h"
#include "worker/executor/call_events.h"
#include "worker/executor/execution.h"
#include "worker/owner/back_pressure.h"
#include "worker/owner/reference_table.h"
#include "worker/owner/transit_table.h"

namespace sheaf {

// Calls that share a bound on how many run at once.
struct ConcurrencyGroup {
  std::string name;
  uint32_t limit = 1;
  uint32_t running = 0;
  uint32_t threads = 0, idle = 0;  // The runtime's, which serve it.
  bool held_back = false;  // An event loop's call waits for its arguments, and later ones for it.
  std::deque<std::shared_ptr<CallExecution>> queue;
};

class TaskExecutor {
 public:
  // Of the store: what may be on its way, or wait there, for calls that are queued.
  static constexpr uint64_t kPartAhead = 32;

  TaskExecutor(ProcessId self, Clock& clock, Transport& transport, ReferenceTable& references,
               TransitTable& transits, ExecutionHost& host, ProcessPage* page,
               metrics::Page& metrics, const BackPressure& limits = {});
  ~TaskExecutor();  // Calls that are queued go without an answer.

  void OnTemplate(ProcessId from, std::string_view body);
  void OnPush(ProcessId from, std::string_view body);
  void OnLeaseBegin(const proto::LeaseBegin& begin);
  void OnLeaseEnd(const proto::LeaseEnd& end);
  // The raylet takes `lease` back, as its owner does not answer: what has not started goes back to
  // that owner, now and later, and the lease to the raylet as soon as nothing of it runs. False:
  // this process does not work under it.
  bool OnLeaseRevoke(LeaseNumber lease);
  void OnActorLease(const proto::ActorLease& lease) {
    if (!stops_) may_begin_until_ = lease.until_ns();
  }
  // This process ends, and not well: no call begins any more. Those that wait here count as not
  // started, and are the next process's.
  void Stop() {
    stops_ = true;
    may_begin_until_ = 0;
  }
  void OnTakeBack(ProcessId from, const TakeBack& take_back);
  // True: it runs, and has been asked to end, if `running` ones shall. A queued one is answered as
  // cancelled.
  bool OnCancel(ProcessId from, TaskId task, bool running);
  void OnStreamAck(ProcessId from, const StreamAck& ack);
  void OnProcessDied(ProcessId process);

  // The next call that may run in `group`; nullptr: none now. It counts as running until
  // FinishEnded.
  std::shared_ptr<CallExecution> Take(ConcurrencyGroup& group);
  bool HasWork(const ConcurrencyGroup& group) const {
    return group.running < group.limit && !group.queue.empty() && !group.held_back &&
           (may_begin_until_ == kForever || clock_.Now() < may_begin_until_);
  }
  // All copies of `call` are gone (or it never ran): FinishEnded answers its owner.
  void NoteEnded(CallExecution* call);
  bool has_ended() const { return !ended_.empty(); }
  void FinishEnded();
  // Some owner may not take what it is sent (back_pressure.h). Any thread.
  bool some_owner_behind() const { return owner_behind_.load(std::memory_order_relaxed) != 0; }
  // It is the owner of `call`.
  bool IsOwnerBehind(const CallExecution& call);
  // Where ended calls are recorded; nullptr, and until then: nowhere.
  void set_events(telemetry::EventWriter* events) { events_.set_writer(events); }
  // Of this node. Until then nothing bounds what calls hold, or what comes for them ahead of need.
  void set_store_bytes(uint64_t capacity) {
    holds_.set_store_bytes(capacity);
    most_ahead_ = capacity / kPartAhead;
  }
  // User code waits: what has not started goes back to its owners, new pushes too.
  void SetBlocked(bool blocked);

  std::vector<std::unique_ptr<ConcurrencyGroup>>& groups() { return groups_; }
  ConcurrencyGroup& default_group() { return *groups_.front(); }
  // Groups were added or changed since the last call: the runtime starts threads for them.
  bool TakeGroupsChanged() { return std::exchange(groups_changed_, false); }
  bool is_actor() const { return is_actor_; }
  // Somebody may push calls, or is an actor's owner.
  bool is_leased() const { return accepts_ != 0; }
  bool is_async() const { return is_async_; }
  ActorId actor_id() const { return actor_id_; }
  // To be asked by who takes a call with arguments in the store, before they are pinned;
  // FinishEnded ends what they hold.
  ArgumentHolds& argument_holds() { return holds_; }
  const proto::LeaseBegin& lease() const { return lease_; }
  // It is owned by the raylet, which speaks for the actor to the GCS.
  bool is_detached_actor() const { return ProcessId::Unpack(lease_.owner()).is_raylet(); }
  // One call at a time, in the order in which they came: the thread that waits for calls runs them.
  bool is_serial() const {
    return groups_.size() == 1 && groups_.front()->limit == 1 && !is_async_;
  }
  // The constructor has run. kNone: well; else why the calls that wait for it fail.
  void CountConstructed(const Error& failure);
  // The actor leaves: calls of its methods that have not begun fail with `why`, now and later.
  void RefuseCalls(Error why);
  size_t queued() const;
  template <class Visit>
  void ForEachRunning(Visit visit) {
    for (CallExecution* call = running_; call != nullptr; call = call->next_running) visit(*call);
  }

 private:
  void Accept(ProcessId from, const PushTaskHead& head, std::string_view body);
  void Answer(CallExecution& call);
  void Recycle(CallExecution* call);  // Its memory serves another.
  void Enqueue(std::shared_ptr<CallExecution> call);
  void FetchAhead(CallExecution& call);
  void EndAhead(CallExecution& call, ConcurrencyGroup* group);
  void Bounce(const CallExecution& call);
  void NoteOwner(ProcessId owner, bool behind);
  void ReturnQueued(ConcurrencyGroup& group);
  void ReturnLeaseIfIdle();
  CallExecution* FindRunning(ProcessId owner, TaskId task);
  // In the queue of its concurrency group; fails if the actor has no such group.
  void EnqueueInGroup(std::shared_ptr<CallExecution> call);
  void BecomeActor(const proto::TaskTemplate& creation);

  const ProcessId self_;
  Clock& clock_;
  Transport& transport_;
  ReferenceTable& references_;
  TransitTable& transits_;
  ExecutionHost& host_;
  ProcessPage* const page_;
  StartedCalls started_;
  CallEvents events_;
  ArgumentHolds holds_;
  uint64_t most_ahead_ = UINT64_MAX;
  uint64_t ahead_bytes_ = 0;  // Of all queued calls.
  const BackPressure limits_;
  metrics::Counter tasks_executed_, calls_executed_;
  metrics::Histogram run_time_;
  struct KnownTemplate {
    std::shared_ptr<const proto::TaskTemplate> spec;
    uint16_t function = 0;  // Of its events.
  };
  // Of one sender, by number.
  using Templates = std::vector<KnownTemplate>;
  Templates& TemplatesOf(ProcessId sender);
  absl::flat_hash_map<ProcessId, std::unique_ptr<Templates>> templates_;
  ProcessId last_sender_;
  Templates* last_templates_ = nullptr;
  std::vector<CallExecution*> ended_;  // To be answered. Goes after all that holds calls.
  bool closing_ = false;
  std::vector<std::unique_ptr<CallExecution>> spare_;      // Cleared.
  std::vector<std::unique_ptr<ConcurrencyGroup>> groups_;  // The first is the default.
  bool groups_changed_ = false;
  proto::LeaseBegin lease_;       // Current, or the last; lease 0: none yet.
  LeaseNumber accepts_ = 0;       // Of the lease whose pushes are taken. 0: it has ended.
  uint64_t last_push_ = 0;        // Of that lease, that has come.
  uint64_t take_back_until_ = 0;  // Its owner wants those up to this one back. 0: it does not.
  bool returning_ = false;        // The raylet waits for the lease.
  // Pushes of a lease that has not begun here.
  std::deque<std::pair<ProcessId, std::string>> early_;
  std::deque<std::shared_ptr<CallExecution>> before_construction_;
  std::optional<Error> refusal_;
  bool is_actor_ = false, is_async_ = false, constructed_ = false;
  ActorId actor_id_;
  Nanos may_begin_until_ = kForever;  // Of detached actors: kActorLease.
  bool stops_ = false;
  bool blocked_ = false;
  std::atomic<uint64_t> owner_behind_{0};       // One of those that are, packed; 0: none.
  const proto::TaskTemplate* named_ = nullptr;  // Whose name the page shows. Only compared.
  bool counts_calls_ = false;                   // It is one with max_calls.
  CallExecution* running_ = nullptr;            // A list: from Take to FinishEnded.
  // Cancelled before they came: control overtakes work. The oldest are forgotten.
  std::deque<TaskId> cancelled_order_;
  absl::flat_hash_set<TaskId> cancelled_;
};

}  // namespace sheaf
