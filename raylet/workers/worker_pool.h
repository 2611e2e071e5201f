// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The workers of one node: starts them ahead of need, gives them to leases, takes them back, culls
// idle ones. Workers of two (job, environment) pairs are never exchanged. Pure: Clock and
// WorkerLauncher come in by reference and outlive the pool. One thread.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "base/clock.h"
#include "base/error_kind.h"
#include "base/ids.h"
#include "raylet/workers/attach_info.h"
#include "raylet/workers/launcher.h"
#include "raylet/workers/worker_state.h"

namespace sheaf {

struct WorkerPoolOptions {
  int cpus = 0;          // Of the node, whole ones: the measure for starting ahead. 0: 1.
  int max_starting = 0;  // At once, over all jobs; 0: 2 * cpus + 2.
  Nanos start_timeout = 30 * kSecond;  // A worker that is not ready by then is killed.
  Nanos cull_after = 10 * kSecond;     // Idle ones beyond `cpus` on this node go after this time.
  Nanos ahead_for = 5 * kSecond;       // How long after the last need a pair keeps spares started.
  int start_attempts = 4;              // Failed starts in a row until those who wait get an error.
  Nanos first_backoff = 50 * kMillisecond;  // Before the next start after a failed one; doubles.
};

// Who needs a worker, and of what sort. `ticket` is the caller's name for the need.
struct WorkerNeed {
  uint64_t ticket = 0;
  JobNumber job = 0;
  std::string environment = {};
  std::vector<uint32_t> gpu_ids =
      {};                // Sorted. A worker that once had GPUs serves only leases of the same ones.
  bool actor = false;    // The worker will never come back.
  ProcessId owner = {};  // Whoever asks; an idle worker that owns tasks cannot run them itself.
};

class WorkerPool {
 public:
  static constexpr Nanos kLastSteps = 5 * kSecond;  // From a worker's goodbye to its exit.
  // From its word that it leaves: for the exit functions of user code, and what these begin.
  static constexpr Nanos kDeparture = 35 * kSecond;

  struct Assigned {
    uint64_t ticket;
    ProcessId worker;
  };
  struct Failed {
    uint64_t ticket;
    Error error;
  };
  // Is to be told so by kShutdown. One that may stay gets no lease until it has answered (OnStays,
  // OnLeaves): it may be about to run its exit functions.
  struct Leaving {
    ProcessId worker;
    bool for_good;  // It gets no lease any more; else it may stay, and be leased again.
    std::string reason;
  };
  struct Counts {
    int starting = 0, idle = 0, leased = 0, blocked = 0, actor = 0, dying = 0;
  };
  struct Worker {
    WorkerState state = WorkerState::kStarting;
    JobNumber job = 0;
    std::string environment;
    std::vector<uint32_t> gpu_ids;  // Bound to these; empty: to none yet.
    Nanos since = 0;                // In this state.
    Nanos asked_at = 0;             // Idle: to leave, last. 0: it was not.
    bool is_asked = false;          // And its answer is on its way.
    uint32_t leases = 0;            // Had so far.
    Nanos leaves_by = 0;            // kDying, and not killed: until then. 0: it was not told to.
    std::string why_leaves;
    absl::btree_map<std::string, uint64_t> calls;  // By function, of those that count them.
    // Owners that may still push for a lease of theirs that has ended here: it gets no other of
    // theirs.
    absl::btree_set<ProcessId> shunned;
  };

  WorkerPool(const WorkerPoolOptions& options, Clock& clock, WorkerLauncher& launcher,
             ProcessNumbers& numbers);

  // `job` is known to the launcher. Begins to start workers for `environment`, as many as there are
  // CPUs.
  // `ahead`: starts as many workers as there are CPUs, before anybody asks.
  void AddJob(JobNumber job, const std::string& environment, bool ahead = true);
  // Kills the workers of `job` except `keep` and starts none ahead any more; needs still get
  // theirs.
  void EndWorkers(JobNumber job, const absl::btree_set<ProcessId>& keep, const std::string& reason);
  // Kills all workers of `job`. Its needs fail, now and later.
  void RemoveJob(JobNumber job, const std::string& reason);

  // Asks for a worker. Answered by TakeAssigned or TakeFailed, at once if one is idle.
  void Need(WorkerNeed need);
  // The need of `ticket` is void. False: it was answered, or never asked.
  bool Forget(uint64_t ticket);
  bool IsNeeded(uint64_t ticket) const;

  // A worker of this pool is attached and ready. False: it is unknown, or was ready before.
  bool OnReady(ProcessId worker);
  // A lease ended. `discard`: never lease this worker again, let it end (Retire).
  void OnReturned(ProcessId worker, bool discard);
  // What owners say of the calls of a function that counts them, for who leases the worker next.
  void SetCalls(ProcessId worker, const std::string& function, uint64_t calls);
  uint64_t CallsOf(ProcessId worker, const std::string& function) const;
  bool OnBlocked(ProcessId worker, bool blocked);  // False: nothing changed.
  // `worker` gets no lease of `owner`, until told otherwise.
  void SetShunned(ProcessId worker, ProcessId owner, bool shunned);
  void Kill(ProcessId worker, const std::string& reason);
  // It was told to leave, and is killed if it is there after `patience`. False: it dies already.
  bool Dismiss(ProcessId worker, Nanos patience, const std::string& reason);
  // It gets no lease any more, and leaves once nothing that it has begun is left; it is killed if it
  // is there after `patience`.
  void Retire(ProcessId worker, Nanos patience, const std::string& reason);
  // This node ends: workers are retired once they are idle, and none is started ahead.
  void Drain();
  // It was asked to leave, and stays: it may be leased again.
  void OnStays(ProcessId worker);
  // It has said that it will end, or that it ends, and is killed if it is there kDeparture or
  // kLastSteps later. False: none of ours.
  bool OnLeaves(ProcessId worker) { return OnLeaving(worker, kDeparture); }
  bool OnGoodbye(ProcessId worker) { return OnLeaving(worker, kLastSteps); }
  // The process is gone. A worker that had not become ready counts as a failed start. False: none
  // of ours.
  bool OnExited(ProcessId worker, const proto::Death& death);
  // Starts, retries, timeouts and culling that time brings.
  void Tick();

  std::vector<Assigned> TakeAssigned() { return std::exchange(assigned_, {}); }
  std::vector<Failed> TakeFailed() { return std::exchange(failed_, {}); }
  std::vector<Leaving> TakeLeaving() { return std::exchange(leaving_, {}); }

  const Worker* Find(ProcessId worker) const;
  const absl::btree_map<ProcessId, Worker>& workers() const { return workers_; }
  Counts CountStates() const;
  size_t waiting() const;  // Needs without a worker.
  // Why a need of this pair waits, for `why`; empty: nothing hinders.
  std::string Words(JobNumber job, const std::string& environment) const;

 private:
  using Key = std::pair<JobNumber, std::string>;
  struct Pool {
    std::deque<WorkerNeed> needs;  // Oldest first.
    std::vector<ProcessId> idle;   // The last one in is the first one out: its caches are warm.
    int starting = 0;
    int tasked = 0;        // Leased to tasks and running: they will come back.
    Nanos needed_at = 0;   // When somebody last needed a worker.
    int failures = 0;      // Rounds of starts in a row that brought nothing.
    Nanos failed_at = -1;  // When the last round was counted.
    Nanos start_not_before = 0;
    std::string last_failure;
  };

  Pool* PoolOf(const Worker& worker);  // nullptr: its job is gone.
  // Moves `worker` along; false: the event means nothing in its state.
  bool Step(ProcessId process, Worker& worker, WorkerEvent event);
  void EndWorker(ProcessId process, Worker& worker, const std::string& reason);
  bool OnLeaving(ProcessId process, Nanos patience);
  // Gives idle workers of `pool` to its needs, oldest need first.
  void Match(Pool& pool);
  bool Assign(Pool& pool, const WorkerNeed& need);
  bool WantsStart(const Pool& pool) const;
  void StartMissing();
  bool StartOne(const Key& key, Pool& pool);
  void OnStartFailed(Pool& pool, Nanos started_at, ErrorKind kind, const std::string& reason);
  void FailNeeds(Pool& pool, ErrorKind kind, const std::string& reason);
  bool KeepsSpares(const Pool& pool) const;
  void Cull();
  void RetireIdle();

  const WorkerPoolOptions options_;
  Clock& clock_;
  WorkerLauncher& launcher_;
  ProcessNumbers& numbers_;
  absl::btree_map<ProcessId, Worker> workers_;
  absl::btree_map<Key, Pool> pools_;
  absl::btree_set<JobNumber> jobs_;
  Key last_served_;  // By StartMissing.
  int starting_ = 0;
  bool drains_ = false;
  std::vector<Assigned> assigned_;
  std::vector<Leaving> leaving_;
  std::vector<Failed> failed_;
};

}  // namespace sheaf
