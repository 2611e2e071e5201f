// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The raylet's figures.
#include "metrics/counter.h"
#include "object_store/server/store_owner.h"
#include "raylet/raylet.h"

namespace sheaf {

using metrics::Counter;
using metrics::CounterId;
using metrics::Gauge;
using metrics::GaugeId;

Raylet::Stats Raylet::GetStats() const {
  Stats stats;
  for (const LeaseQueue::Pending& pending : queue_.AllPending()) {
    stats.scheduler_queue += pending.missing;
  }
  stats.leases = queue_.leases_out();
  stats.workers = pool_.CountStates();
  stats.processes = processes_.size();
  for (const auto& [process, entry] : processes_) {
    stats.drivers += entry.info.role == ProcessRole::kDriver;
    stats.rings += world_.switchboard.PeersOf(process).size();
  }
  stats.rings /= 2;  // Each was counted at both ends.
  stats.remains = ended_.size();
  stats.groups = groups_.ledger().Groups().size();
  stats.pending_groups = groups_.ledger().pending();
  stats.held_references = references_.held_references();
  stats.adopted_objects = adoption_.adopted().size();
  stats.orphans = adoption_.orphan_count();
  stats.unanswered_gcs_commands = gcs_.unanswered();
  stats.nodes_known = view_.nodes.size();
  stats.swept = sweeper_.repaired();
  stats.last_swept = sweeper_.last_repaired();
  return stats;
}

void Raylet::PublishMetrics() {
  const auto set = [this](GaugeId id, auto value) {
    Gauge(world_.metrics, id).Set(static_cast<int64_t>(value));
  };
  const Stats stats = GetStats();
  set(GaugeId::kSchedulerQueue, stats.scheduler_queue);
  set(GaugeId::kLeasesHeld, stats.leases);
  set(GaugeId::kWorkersStarting, stats.workers.starting);
  set(GaugeId::kWorkersIdle, stats.workers.idle);
  set(GaugeId::kWorkersLeased, stats.workers.leased);
  set(GaugeId::kWorkersBlocked, stats.workers.blocked);
  set(GaugeId::kWorkersActor, stats.workers.actor);
  set(GaugeId::kProcesses, stats.processes);
  set(GaugeId::kDrivers, stats.drivers);
  set(GaugeId::kRings, stats.rings);
  set(GaugeId::kCpuTotal, ledger_.total().cpu());
  set(GaugeId::kCpuAvailable, ledger_.available().cpu());
  set(GaugeId::kGpuTotal, ledger_.total().gpu());
  set(GaugeId::kGpuAvailable, ledger_.available().gpu());
  set(GaugeId::kUptime, Now() - started_at_);

  const StoreStats store = world_.store.Stats();
  set(GaugeId::kStoreCapacityBytes, store.capacity_bytes);
  set(GaugeId::kStoreUsedBytes, store.used_bytes);
  set(GaugeId::kStorePinnedBytes, store.pinned_bytes);
  set(GaugeId::kStoreSpilledBytes, store.spilled_bytes);
  set(GaugeId::kStorePopulatedBytes, store.populated_bytes);
  set(GaugeId::kStoreObjects, store.objects);
  const auto grow = [this](CounterId id, uint64_t now, uint64_t* before) {
    if (now > *before) Counter(world_.metrics, id).Add(now - *before);
    *before = now;
  };
  grow(CounterId::kSpills, store.spills, &store_counts_.spills);
  grow(CounterId::kRestores, store.restores, &store_counts_.restores);
  grow(CounterId::kSpilledBytes, store.spill_written_bytes, &store_counts_.spilled_bytes);
  grow(CounterId::kRestoredBytes, store.restored_bytes, &store_counts_.restored_bytes);
  grow(CounterId::kSpillFailures, store.disk_failures, &store_counts_.disk_failures);
  grow(CounterId::kStoreFull, store.refusals, &store_counts_.refusals);

  const ObjectPuller::Stats pulls = transfers_.pulled();
  grow(CounterId::kPulls, pulls.pulls, &pull_counts_.pulls);
  grow(CounterId::kPullFailures, pulls.failed, &pull_counts_.failed);
  grow(CounterId::kPulledBytes, pulls.bytes, &pull_counts_.bytes);
  grow(CounterId::kServedBytes, transfers_.served().bytes, &served_bytes_);
  set(GaugeId::kPullsQueued, pulls.queued);
}

}  // namespace sheaf
