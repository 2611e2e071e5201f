// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "raylet/node_figures.h"

#include "metrics/counter.h"
#include "object_store/server/store_server.h"
#include "raylet/queries/task_events.h"
#include "scheduling/scheduling_policy.h"

namespace sheaf {

using metrics::Counter;
using metrics::CounterId;
using metrics::Gauge;
using metrics::GaugeId;

namespace {

CounterId DeathCounter(proto::Death::Cause cause) {
  switch (cause) {
    case proto::Death::EXITED:
      return CounterId::kWorkerDeathsExited;
    case proto::Death::SIGNALLED:
      return CounterId::kWorkerDeathsSignalled;
    case proto::Death::OUT_OF_MEMORY:
      return CounterId::kWorkerDeathsOutOfMemory;
    case proto::Death::KILLED:
      return CounterId::kWorkerDeathsKilled;
    case proto::Death::LEFT:
      return CounterId::kWorkerDeathsLeft;
    case proto::Death::START_FAILED:
      return CounterId::kWorkerDeathsStartFailed;
    default:
      return CounterId::kWorkerDeathsOther;
  }
}

}  // namespace

NodeStats NodeFigures::Get() const {
  NodeStats stats;
  for (const LeaseQueue::Pending& pending : from_.queue.AllPending()) {
    stats.scheduler_queue += pending.missing;
  }
  stats.leases = from_.queue.leases_out();
  stats.workers = from_.pool.CountStates();
  stats.processes = from_.processes.size();
  for (const auto& [process, entry] : from_.processes) {
    stats.drivers += entry.info.role == ProcessRole::kDriver;
    stats.rings += from_.deps.switchboard.PeersOf(process).size();
  }
  stats.rings /= 2;  // Each was counted at both ends.
  stats.ended_processes = from_.ended.size();
  stats.groups = from_.groups.ledger().Groups().size();
  stats.pending_groups = from_.groups.ledger().pending();
  stats.held_references = from_.objects.references().held_references();
  stats.adopted_objects = from_.objects.adoption().adopted().size();
  stats.orphans = from_.objects.adoption().orphan_count();
  stats.unanswered_gcs_commands = from_.gcs.unanswered();
  stats.nodes_known = from_.view.nodes.size();
  stats.swept = from_.sweeper.repaired();
  stats.last_swept = from_.sweeper.last_repaired();
  return stats;
}

std::map<std::string, uint64_t> NodeFigures::PublishDemand() {
  std::map<std::string, uint64_t> shapes;
  int64_t infeasible = 0, starved = 0;
  const NodeView* const here = from_.view.Find(from_.view.local);
  const bool takes_work = here != nullptr && here->usable();
  for (const LeaseQueue::Pending& pending : from_.queue.AllPending()) {
    const LeaseSpec& spec = *pending.spec;
    // Work for placement groups waits for these, which are counted themselves.
    if (pending.missing == 0 || spec.strategy.kind == StrategyKind::kPlacementGroup) continue;
    infeasible += pending.infeasible ? pending.missing : 0;
    const bool has_room = !pending.infeasible && !pending.withheld && takes_work &&
                          CouldHold(spec, from_.view, from_.view.local) &&
                          from_.ledger.available().Fits(spec.resources);
    starved += has_room ? pending.missing : 0;
    const std::string shape = spec.resources.ToString();
    const bool known = shapes.contains(shape) || shapes.size() < metrics::kMostShapes;
    shapes[known ? shape : "others"] += pending.missing;
  }
  int64_t groups = 0;
  for (const PlacementGroupLedger::Group* group : from_.groups.ledger().Groups())
    groups += group->state == proto::GroupState::INFEASIBLE;
  Gauge(from_.deps.metrics, GaugeId::kInfeasibleLeases).Set(infeasible);
  Gauge(from_.deps.metrics, GaugeId::kInfeasibleGroups).Set(groups);
  Gauge(from_.deps.metrics, GaugeId::kSchedulerStarved).Set(starved);
  return shapes;
}

std::map<std::string, uint64_t> NodeFigures::Publish() {
  const auto set = [this](GaugeId id, auto value) {
    Gauge(from_.deps.metrics, id).Set(static_cast<int64_t>(value));
  };
  const NodeStats stats = Get();
  set(GaugeId::kSchedulerQueue, stats.scheduler_queue);
  set(GaugeId::kGroupsPending, stats.pending_groups);
  set(GaugeId::kLeasesHeld, stats.leases);
  set(GaugeId::kWorkersStarting, stats.workers.starting);
  set(GaugeId::kWorkersIdle, stats.workers.idle);
  set(GaugeId::kWorkersLeased, stats.workers.leased);
  set(GaugeId::kWorkersBlocked, stats.workers.blocked);
  set(GaugeId::kWorkersActor, stats.workers.actor);
  set(GaugeId::kProcesses, stats.processes);
  set(GaugeId::kDrivers, stats.drivers);
  set(GaugeId::kRings, stats.rings);
  set(GaugeId::kCpuTotal, from_.ledger.total().cpu());
  set(GaugeId::kCpuAvailable, from_.ledger.available().cpu());
  set(GaugeId::kGpuTotal, from_.ledger.total().gpu());
  set(GaugeId::kGpuAvailable, from_.ledger.available().gpu());
  set(GaugeId::kUptime, from_.deps.clock.Now() - from_.started_at);

  const StoreStats store = from_.deps.store.Stats();
  set(GaugeId::kStoreCapacityBytes, store.capacity_bytes);
  set(GaugeId::kStoreUsedBytes, store.used_bytes);
  set(GaugeId::kStorePinnedBytes, store.pinned_bytes);
  set(GaugeId::kStoreSpilledBytes, store.spilled_bytes);
  set(GaugeId::kStorePopulatedBytes, store.populated_bytes);
  set(GaugeId::kStoreObjects, store.objects);
  const auto grow = [this](CounterId id, uint64_t now, uint64_t* before) {
    if (now > *before) Counter(from_.deps.metrics, id).Add(now - *before);
    *before = now;
  };
  grow(CounterId::kSpills, store.spills, &store_counts_.spills);
  grow(CounterId::kRestores, store.restores, &store_counts_.restores);
  grow(CounterId::kSpilledBytes, store.spill_written_bytes, &store_counts_.spilled_bytes);
  grow(CounterId::kRestoredBytes, store.restored_bytes, &store_counts_.restored_bytes);
  grow(CounterId::kSpillFailures, store.disk_failures, &store_counts_.disk_failures);
  grow(CounterId::kStoreFull, store.refusals, &store_counts_.refusals);

  const ObjectPuller::Stats pulls = from_.objects.transfers().pulled();
  grow(CounterId::kPulls, pulls.pulls, &pull_counts_.pulls);
  grow(CounterId::kPullFailures, pulls.failed, &pull_counts_.failed);
  grow(CounterId::kPulledBytes, pulls.bytes, &pull_counts_.bytes);
  grow(CounterId::kServedBytes, from_.objects.transfers().served().bytes, &served_bytes_);
  set(GaugeId::kPullsQueued, pulls.queued);
  if (from_.deps.task_events != nullptr) from_.deps.task_events->PublishHost(from_.deps.metrics);
  return PublishDemand();
}

void NodeFigures::CountDeath(const proto::Death& death) {
  Counter(from_.deps.metrics, DeathCounter(death.cause())).Add();
}

}  // namespace sheaf
