// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Runs the tasks of this process on leased workers. One LeaseKey for each (resources, environment,
// placement): tasks queue there, the raylet grants workers, several short tasks are in flight to
// each. Pure: one lock of its user guards it.
//
// Depth. A worker is given about kWorkAhead of work, judged by the time that recent tasks of the
// key took, and of arguments as much as BackPressure lets be on its way; while the time is unknown,
// one task. What it has not started can be taken back: when the
// running task turns out long while others wait, when it blocks (it returns them itself), when its
// lease is revoked. Only "returned" or proven death permits another push of the same task.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/flat_hash_map.h"
#include "proto/raylet.pb.h"
#include "worker/owner/back_pressure.h"
#include "worker/owner/peer_table.h"
#include "worker/owner/task_table.h"

namespace sheaf {

struct OwnedLease {
  LeaseNumber number = 0;
  Peer* worker = nullptr;
  LeaseKey* key = nullptr;
  TaskList in_flight;  // In push order.
  uint64_t pushes = 0;
  uint64_t calls_before = 0;  // That its worker has had in other leases, if they are counted.
  Nanos last_progress = 0;    // When it last answered, or was given a first task.
  Nanos idle_since = 0;
  bool revoked = false;
  bool taking_back = false;  // Asked; ends when a reply or a returned task comes.
  Nanos asked_back = 0;      // When, last; 0: known at the next Tick.
};

struct LeaseKey {
  uint64_t number = 0;
  proto::LeaseSpec spec;   // Named as the task that waited first when the raylet heard of it last.
  bool announced = false;  // The raylet has the spec.
  bool settles = false;    // In `settling_`.
  uint32_t max_calls = 0;  // Of its functions, for each worker. 0: they are not counted.
  bool rose = false;       // What is wanted, since Settle looked last; then `rose_at` is when.
  Nanos rose_at = 0;
  TaskList queue;
  std::vector<std::unique_ptr<OwnedLease>> leases;
  uint32_t wanted_sent = 0;
  uint64_t backlog_sent = 0;
  Nanos typical_run = 0;   // Of its tasks, smoothed; 0: not known yet.
  std::string notice;      // Why nothing is granted, from the raylet.
  uint32_t templates = 0;  // That point to it.
};

class TaskSubmitter final : public TaskDispatcher {
 public:
  static constexpr Nanos kWorkAhead = kMillisecond;
  static constexpr Nanos kLinger = 100 * kMillisecond;  // An idle lease is kept so long.
  // The raylet hears of a lease that has been idle so long, and may ask for it.
  static constexpr Nanos kIdles = 5 * kMillisecond;
  // After so long without progress, others' work is taken back.
  static constexpr Nanos kLongTask = 5 * kMillisecond;
  // So often the raylet hears how many tasks are left in a queue that gets shorter.
  static constexpr Nanos kSettle = 100 * kMillisecond;
  // And somewhat fewer only when for so long no more were wanted: a queue that is refilled all the
  // time is asked for in one step, not up and down.
  static constexpr Nanos kQuiet = kSecond;
  // A worker that returns nothing, as its lease had not begun there, is asked again.
  static constexpr Nanos kAskBackAgain = 50 * kMillisecond;
  static constexpr size_t kMaxDepth = 1000;

  TaskSubmitter(ProcessId self, Transport& transport, TaskTable& tasks, PeerTable& peers,
                const BackPressure& limits);

  void Submit(TaskRecord& task);
  void OnArgumentsReady(TaskRecord& task) override;

  // A reply for a task of this submitter.
  void OnReply(const TaskTable::Reply& reply, ProcessId from);
  void OnReturned(TaskRecord& task);
  void OnGrant(const proto::LeaseGrant& grant);
  void OnRefused(const proto::LeaseRefused& refused);
  // `node` gave the lease. False: this process does not hold it.
  bool OnRevoke(NodeNumber node, const proto::LeaseRevoke& revoke);
  void OnProcessDied(ProcessId process, const proto::Death& death, uint64_t started);

  // Ends as TaskCancelled, at once or when the worker says so. `force` ends the worker.
  void Cancel(TaskRecord& task, bool force, bool recursive);

  // No call names `spec` any more, nor ever will.
  void ForgetTemplate(const TemplateRecord& spec) {
    if (spec.key != nullptr) --std::exchange(spec.key, nullptr)->templates;
  }
  // Drops the keys of templates that are forgotten, unless something of them is left.
  void ForgetUnusedKeys();

  // Lingering leases, long tasks, delayed retries. Returns when it wants to be called next
  // (kForever: not).
  Nanos Tick();
  // Whether a lease has got a first task since this was asked last: Tick is to look at it within
  // kLongTask, however long the leases had nothing to do.
  bool TakeBegan() { return std::exchange(began_, false); }
  // Gives everything back (the process ends).
  void ReturnAll();
  // The leases under which nothing runs, as this process ends: with its end the raylet kills who has
  // a lease of it, though that may have begun something that others wait for.
  void ReturnIdle();

  std::string Words(const TaskRecord& task) const;  // What a pending task waits for.
  size_t leases() const { return by_worker_.size(); }

 private:
  LeaseKey& KeyOf(const TemplateRecord& spec);
  void Pump(LeaseKey& key);
  OwnedLease* Choose(LeaseKey& key);  // For the first of its queue.
  // Its worker has had as many calls as it may.
  static bool IsWornOut(const OwnedLease& lease) {
    return lease.key->max_calls != 0 && lease.calls_before + lease.pushes >= lease.key->max_calls;
  }
  std::vector<std::pair<NodeNumber, uint64_t>> ArgumentBytes(const TaskRecord& task) const;
  size_t Depth(const LeaseKey& key) const;
  void PushTo(OwnedLease& lease, TaskRecord& task);
  void UpdateDemand(LeaseKey& key);
  void SendDemand(LeaseKey& key, size_t wanted);
  Nanos Settle(Nanos now);           // When it wants to be called next.
  void WantOnlyHeld(LeaseKey& key);  // Nothing waits: no lease beyond those held is needed.
  // Whether the raylet thinks that tasks wait for `lease`, which has none.
  static bool IdlesUnheard(const OwnedLease& lease) {
    return lease.in_flight.empty() && lease.key->queue.empty() && lease.key->backlog_sent != 0;
  }
  void Return(OwnedLease& lease, bool discard);
  void TakeBackFrom(OwnedLease& lease);
  void Delay(TaskRecord& task);
  Error DeathError(const TaskRecord& task, ProcessId worker, const proto::Death& death,
                   bool started) const;

  const ProcessId self_;
  Transport& transport_;
  TaskTable& tasks_;
  PeerTable& peers_;
  const BackPressure limits_;
  absl::flat_hash_map<std::string, std::unique_ptr<LeaseKey>> keys_;  // By serialized spec.
  absl::flat_hash_map<uint64_t, LeaseKey*> by_number_;
  uint64_t next_key_ = 1;
  std::vector<uint64_t> settling_;  // Keys that may have asked for more than they need now.
  Nanos settle_at_ = 0;
  bool began_ = false;
  absl::btree_map<ProcessId, OwnedLease*> by_worker_;
  struct DelayedTask {
    uint32_t cookie;
    uint64_t sequence_bits;
  };
  absl::btree_multimap<Nanos, DelayedTask> delayed_;
};

}  // namespace sheaf
