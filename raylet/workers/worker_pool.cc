// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "raylet/workers/worker_pool.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace sheaf {
namespace {

// Where more jobs than these are known on a node none keeps spares: they would be many times the CPUs,
// and each job has work here only now and then.
constexpr size_t kJobsWithSpares = 4;

std::string DeathWords(const proto::Death& death) {
  std::string reason = death.message();
  if (reason.empty()) reason = "it ended before it was ready";
  if (death.last_lines_size() > 0) {
    absl::StrAppend(&reason, "; its last output:\n", absl::StrJoin(death.last_lines(), "\n"));
  }
  return reason;
}

}  // namespace

WorkerPool::WorkerPool(const WorkerPoolOptions& options, Clock& clock, WorkerLauncher& launcher,
                       ProcessNumbers& numbers)
    : options_([&] {
        WorkerPoolOptions filled = options;
        filled.cpus = std::max(filled.cpus, 1);
        if (filled.max_starting <= 0) filled.max_starting = 2 * filled.cpus + 2;
        return filled;
      }()),
      clock_(clock),
      launcher_(launcher),
      numbers_(numbers) {}

void WorkerPool::AddJob(JobNumber job, const std::string& environment, bool ahead) {
  jobs_.insert(job);
  Pool& pool = pools_[Key{job, environment}];
  if (!ahead) return;
  pool.needed_at = clock_.Now();
  StartMissing();
  // Its first ones, however many jobs there are.
  const Key key{job, environment};
  const auto has = [&] { return static_cast<int>(pool.idle.size()) + pool.tasked + pool.starting; };
  while (has() < options_.cpus && starting_ < options_.max_starting && StartOne(key, pool)) {
  }
}

void WorkerPool::EndWorkers(JobNumber job, const absl::btree_set<ProcessId>& keep,
                            const std::string& reason) {
  for (auto& [process, worker] : workers_) {
    if (worker.job == job && !keep.contains(process)) EndWorker(process, worker, reason);
  }
  for (auto& [key, pool] : pools_) {
    if (key.first == job) pool.needed_at = 0;
  }
}

void WorkerPool::RemoveJob(JobNumber job, const std::string& reason) {
  if (jobs_.erase(job) == 0) return;
  EndWorkers(job, {}, reason);
  for (auto it = pools_.begin(); it != pools_.end();) {
    if (it->first.first != job) {
      ++it;
      continue;
    }
    FailNeeds(it->second, ErrorKind::kWorkerCrashed, absl::StrCat("its job ended: ", reason));
    it = pools_.erase(it);
  }
}

void WorkerPool::Need(WorkerNeed need) {
  if (!jobs_.contains(need.job)) {
    failed_.push_back({need.ticket, {ErrorKind::kSystem, "its job is not known on this node", ""}});
    return;
  }
  Pool& pool = pools_[Key{need.job, need.environment}];
  // Who makes an actor may make more; of a job that has only detached ones nobody does.
  if (!need.actor || pool.needed_at != 0) pool.needed_at = clock_.Now();
  pool.needs.push_back(std::move(need));
  Match(pool);
  StartMissing();
}

bool WorkerPool::Forget(uint64_t ticket) {
  for (auto& [key, pool] : pools_) {
    const auto it = std::find_if(pool.needs.begin(), pool.needs.end(),
                                 [&](const WorkerNeed& need) { return need.ticket == ticket; });
    if (it == pool.needs.end()) continue;
    pool.needs.erase(it);
    return true;
  }
  return false;
}

bool WorkerPool::IsNeeded(uint64_t ticket) const {
  for (const auto& [key, pool] : pools_) {
    for (const WorkerNeed& need : pool.needs) {
      if (need.ticket == ticket) return true;
    }
  }
  return false;
}

bool WorkerPool::OnReady(ProcessId process) {
  const auto it = workers_.find(process);
  if (it == workers_.end() || !Step(process, it->second, WorkerEvent::kReady)) return false;
  if (Pool* pool = PoolOf(it->second)) {
    pool->failures = 0;
    pool->start_not_before = 0;
    Match(*pool);
  }
  StartMissing();
  return true;
}

void WorkerPool::OnReturned(ProcessId process, bool discard) {
  const auto it = workers_.find(process);
  if (it == workers_.end()) return;
  if (discard) {
    Retire(process, kForever, "it is not to be leased again");
  } else if (Step(process, it->second, WorkerEvent::kReturned)) {
    if (Pool* pool = PoolOf(it->second)) Match(*pool);
  }
  StartMissing();
}

void WorkerPool::SetCalls(ProcessId worker, const std::string& function, uint64_t calls) {
  const auto it = workers_.find(worker);
  if (it != workers_.end() && calls != 0) it->second.calls[function] = calls;
}

uint64_t WorkerPool::CallsOf(ProcessId worker, const std::string& function) const {
  const Worker* const known = Find(worker);
  if (known == nullptr) return 0;
  const auto it = known->calls.find(function);
  return it == known->calls.end() ? 0 : it->second;
}

bool WorkerPool::OnBlocked(ProcessId process, bool blocked) {
  const auto it = workers_.find(process);
  if (it == workers_.end()) return false;
  const WorkerEvent event = blocked ? WorkerEvent::kBlocked : WorkerEvent::kUnblocked;
  return Step(process, it->second, event);
}

void WorkerPool::SetShunned(ProcessId worker, ProcessId owner, bool shunned) {
  const auto it = workers_.find(worker);
  if (it == workers_.end()) return;
  if (shunned) {
    it->second.shunned.insert(owner);
  } else if (it->second.shunned.erase(owner) > 0) {
    if (Pool* pool = PoolOf(it->second)) Match(*pool);
  }
}

void WorkerPool::Kill(ProcessId process, const std::string& reason) {
  const auto it = workers_.find(process);
  if (it != workers_.end()) EndWorker(process, it->second, reason);
}

bool WorkerPool::Dismiss(ProcessId process, Nanos patience, const std::string& reason) {
  const auto it = workers_.find(process);
  if (it == workers_.end() || !Step(process, it->second, WorkerEvent::kKilled)) return false;
  it->second.leaves_by = Deadline(clock_.Now(), patience);
  it->second.why_leaves = reason;
  return true;
}

void WorkerPool::Retire(ProcessId process, Nanos patience, const std::string& reason) {
  if (Dismiss(process, patience, reason)) leaving_.push_back({process, /*for_good=*/true, reason});
}

void WorkerPool::Drain() {
  drains_ = true;
  RetireIdle();
}

void WorkerPool::RetireIdle() {
  std::vector<ProcessId> idle;
  for (const auto& [process, worker] : workers_) {
    if (worker.state == WorkerState::kIdle) idle.push_back(process);
  }
  for (const ProcessId process : idle) Retire(process, kForever, "its node drains");
}

void WorkerPool::OnStays(ProcessId process) {
  const auto it = workers_.find(process);
  if (it == workers_.end() || !std::exchange(it->second.is_asked, false)) return;
  if (Pool* pool = PoolOf(it->second)) Match(*pool);
}

bool WorkerPool::OnLeaving(ProcessId process, Nanos patience) {
  const auto it = workers_.find(process);
  if (it == workers_.end()) return false;
  Worker& worker = it->second;
  const Nanos leaves_by = Deadline(clock_.Now(), patience);
  if (Step(process, worker, WorkerEvent::kKilled)) {
    worker.leaves_by = leaves_by;
    worker.why_leaves = "it said that it ends";
  } else if (worker.leaves_by != 0) {
    worker.leaves_by = std::min(worker.leaves_by, leaves_by);
  }
  StartMissing();
  return true;
}

bool WorkerPool::OnExited(ProcessId process, const proto::Death& death) {
  const auto it = workers_.find(process);
  if (it == workers_.end()) return false;
  Worker worker = it->second;
  Step(process, it->second, WorkerEvent::kKilled);  // Out of the counters of its pool.
  workers_.erase(it);
  Pool* pool = PoolOf(worker);
  if (pool != nullptr && worker.state == WorkerState::kStarting) {
    OnStartFailed(*pool, worker.since, ErrorKind::kEnvironmentFailed, DeathWords(death));
  }
  StartMissing();
  return true;
}

void WorkerPool::Tick() {
  const Nanos now = clock_.Now();
  for (auto& [process, worker] : workers_) {
    if (worker.leaves_by != 0 && now >= worker.leaves_by)
      EndWorker(process, worker, absl::StrCat(worker.why_leaves, ", and it did not leave in time"));
    if (worker.state != WorkerState::kStarting) continue;
    if (now - worker.since < options_.start_timeout) continue;
    const Nanos started_at = worker.since;
    const std::string reason =
        absl::StrCat("it was not ready within ", options_.start_timeout / kSecond, " s");
    EndWorker(process, worker, reason);
    if (Pool* pool = PoolOf(worker)) {
      OnStartFailed(*pool, started_at, ErrorKind::kEnvironmentFailed, reason);
    }
  }
  StartMissing();
  if (drains_) RetireIdle();
  Cull();
}

const WorkerPool::Worker* WorkerPool::Find(ProcessId process) const {
  const auto it = workers_.find(process);
  return it == workers_.end() ? nullptr : &it->second;
}

WorkerPool::Counts WorkerPool::CountStates() const {
  Counts counts;
  for (const auto& [process, worker] : workers_) {
    switch (worker.state) {
      case WorkerState::kStarting:
        ++counts.starting;
        break;
      case WorkerState::kIdle:
        ++counts.idle;
        break;
      case WorkerState::kLeased:
        ++counts.leased;
        break;
      case WorkerState::kBlocked:
      case WorkerState::kActorBlocked:
        ++counts.blocked;
        break;
      case WorkerState::kActor:
        ++counts.actor;
        break;
      case WorkerState::kDying:
        ++counts.dying;
        break;
    }
  }
  return counts;
}

size_t WorkerPool::waiting() const {
  size_t waiting = 0;
  for (const auto& [key, pool] : pools_) waiting += pool.needs.size();
  return waiting;
}

std::string WorkerPool::Words(JobNumber job, const std::string& environment) const {
  const auto it = pools_.find(Key{job, environment});
  if (it == pools_.end()) return "";
  const Pool& pool = it->second;
  if (pool.failures > 0) {
    return absl::StrCat("starting a worker failed ", pool.failures, " of at most ",
                        options_.start_attempts, " times in a row: ", pool.last_failure);
  }
  if (pool.needs.empty()) return "";
  if (pool.starting > 0) {
    return absl::StrCat(pool.needs.size(), " leases wait for a worker, ", pool.starting,
                        " are starting");
  }
  return absl::StrCat("all ", options_.max_starting,
                      " places for starting workers are taken by other jobs");
}

WorkerPool::Pool* WorkerPool::PoolOf(const Worker& worker) {
  const auto it = pools_.find(Key{worker.job, worker.environment});
  return it == pools_.end() ? nullptr : &it->second;
}

bool WorkerPool::Step(ProcessId process, Worker& worker, WorkerEvent event) {
  const std::optional<WorkerState> next = Next(worker.state, event);
  if (!next.has_value()) return false;
  Pool* pool = PoolOf(worker);
  if (worker.state == WorkerState::kStarting) --starting_;
  if (pool != nullptr) {
    if (worker.state == WorkerState::kStarting) --pool->starting;
    if (worker.state == WorkerState::kLeased) --pool->tasked;
    if (worker.state == WorkerState::kIdle) std::erase(pool->idle, process);
    if (*next == WorkerState::kLeased) ++pool->tasked;
    if (*next == WorkerState::kIdle) pool->idle.push_back(process);
  }
  worker.state = *next;
  worker.since = clock_.Now();
  worker.asked_at = 0;
  worker.is_asked = false;
  return true;
}

void WorkerPool::EndWorker(ProcessId process, Worker& worker, const std::string& reason) {
  const bool leaves = std::exchange(worker.leaves_by, 0) != 0;
  if (Step(process, worker, WorkerEvent::kKilled) || leaves) launcher_.Kill(process, reason);
}

void WorkerPool::Match(Pool& pool) {
  for (auto it = pool.needs.begin(); it != pool.needs.end() && !pool.idle.empty();) {
    it = Assign(pool, *it) ? pool.needs.erase(it) : it + 1;
  }
}

bool WorkerPool::Assign(Pool& pool, const WorkerNeed& need) {
  std::optional<ProcessId> chosen;
  for (auto it = pool.idle.rbegin(); it != pool.idle.rend(); ++it) {
    const Worker& worker = workers_.at(*it);
    if (worker.is_asked || *it == need.owner || worker.shunned.contains(need.owner)) continue;
    if (worker.gpu_ids == need.gpu_ids) {
      chosen = *it;
      break;
    }
    if (worker.gpu_ids.empty() && !chosen.has_value()) chosen = *it;
  }
  if (!chosen.has_value()) return false;
  Worker& worker = workers_.at(*chosen);
  Step(*chosen, worker, need.actor ? WorkerEvent::kLeasedToActor : WorkerEvent::kLeasedToTasks);
  worker.gpu_ids = need.gpu_ids;
  ++worker.leases;
  assigned_.push_back({need.ticket, *chosen});
  return true;
}

bool WorkerPool::KeepsSpares(const Pool& pool) const {
  if (drains_ || jobs_.size() > kJobsWithSpares) return false;
  return pool.needed_at != 0 && clock_.Now() - pool.needed_at <= options_.ahead_for;
}

bool WorkerPool::WantsStart(const Pool& pool) const {
  if (clock_.Now() < pool.start_not_before) return false;
  int wanted = static_cast<int>(std::min<size_t>(pool.needs.size(), INT32_MAX));
  if (KeepsSpares(pool)) {
    wanted = std::max(wanted, options_.cpus - static_cast<int>(pool.idle.size()) - pool.tasked);
  }
  if (pool.failures > 0) wanted = std::min(wanted, 1);  // One probe, until one succeeds.
  return pool.starting < wanted;
}

void WorkerPool::StartMissing() {
  // One worker for each pair in turn, so that none takes all places.
  for (size_t refused = 0; refused < pools_.size() && starting_ < options_.max_starting;) {
    auto it = pools_.upper_bound(last_served_);
    if (it == pools_.end()) it = pools_.begin();
    last_served_ = it->first;
    refused = WantsStart(it->second) && StartOne(it->first, it->second) ? 0 : refused + 1;
  }
}

bool WorkerPool::StartOne(const Key& key, Pool& pool) {
  WorkerSpec spec;
  spec.process = numbers_.Take();
  spec.job = key.first;
  spec.environment = key.second;
  const absl::Status status = launcher_.Start(spec);
  const Nanos now = clock_.Now();
  if (!status.ok()) {
    const bool refused = absl::IsResourceExhausted(status);
    OnStartFailed(pool, now, refused ? ErrorKind::kSystem : ErrorKind::kEnvironmentFailed,
                  std::string(status.message()));
    return false;
  }
  Worker worker;
  worker.job = key.first;
  worker.environment = key.second;
  worker.since = now;
  workers_.emplace(spec.process, std::move(worker));
  ++pool.starting;
  ++starting_;
  return true;
}

void WorkerPool::OnStartFailed(Pool& pool, Nanos started_at, ErrorKind kind,
                               const std::string& reason) {
  pool.last_failure = reason;
  if (started_at <= pool.failed_at) return;  // Of a round that is counted already.
  const Nanos now = clock_.Now();
  pool.failed_at = now;
  pool.start_not_before = now + (options_.first_backoff << std::min(pool.failures, 6));
  if (++pool.failures < options_.start_attempts) return;
  FailNeeds(pool, kind,
            absl::StrCat("no worker could be started in ", pool.failures, " attempts: ", reason));
  pool.failures = 0;
  pool.needed_at = 0;
}

void WorkerPool::FailNeeds(Pool& pool, ErrorKind kind, const std::string& reason) {
  for (const WorkerNeed& need : pool.needs) failed_.push_back({need.ticket, {kind, reason, ""}});
  pool.needs.clear();
}

void WorkerPool::Cull() {
  const Nanos now = clock_.Now();
  int idle = 0;
  std::vector<std::pair<Nanos, ProcessId>> old;  // Oldest first, once sorted.
  for (auto& [key, pool] : pools_) {
    // A pair in use keeps as many spares as there are CPUs, or they would be started again at once.
    size_t keep = KeepsSpares(pool) ? static_cast<size_t>(options_.cpus) : 0;
    for (auto it = pool.idle.rbegin(); it != pool.idle.rend(); ++it) {
      const Worker& worker = workers_.at(*it);
      if (worker.is_asked) continue;
      ++idle;
      const bool spare = worker.gpu_ids.empty() && keep > 0;
      if (spare) --keep;
      const Nanos since = std::max(worker.since, worker.asked_at);
      if (!spare && now - since >= options_.cull_after) old.emplace_back(since, *it);
    }
  }
  std::sort(old.begin(), old.end());
  for (const auto& [since, process] : old) {
    Worker& worker = workers_.at(process);
    // An idle worker that was bound to GPUs may hold their memory, so no floor keeps it.
    if (idle <= options_.cpus && worker.gpu_ids.empty()) continue;
    worker.asked_at = now;
    worker.is_asked = true;
    leaving_.push_back({process, /*for_good=*/false, "idle for a while"});
    --idle;
  }
}

}  // namespace sheaf
