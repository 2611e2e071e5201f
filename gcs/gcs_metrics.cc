// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "gcs/gcs_metrics.h"

#include <atomic>

#include "gcs/gcs_operations.h"
#include "metrics/catalog.h"

namespace sheaf {
namespace {

metrics::CounterId CounterOf(GcsTable table) {
  switch (table) {
    case GcsTable::kNode:
      return metrics::CounterId::kGcsNodeOps;
    case GcsTable::kJob:
      return metrics::CounterId::kGcsJobOps;
    case GcsTable::kActor:
      return metrics::CounterId::kGcsActorOps;
    case GcsTable::kGroup:
      return metrics::CounterId::kGcsGroupOps;
    case GcsTable::kKeyValue:
      return metrics::CounterId::kGcsKeyValueOps;
    case GcsTable::kSubscription:
      return metrics::CounterId::kGcsSubscribeOps;
  }
  return metrics::CounterId::kGcsNodeOps;
}

}  // namespace

void WriteGcsMetrics(const GcsStats& stats, metrics::Page& page) {
  const auto count = [&](metrics::CounterId id, uint64_t value) {
    page.counter(id).store(value, std::memory_order_relaxed);
  };
  const auto gauge = [&](metrics::GaugeId id, uint64_t value) {
    page.gauge(id).store(static_cast<int64_t>(value), std::memory_order_relaxed);
  };
  for (size_t table = 0; table < kGcsTables; ++table) {
    count(CounterOf(static_cast<GcsTable>(table)), stats.by_table[table]);
  }
  count(metrics::CounterId::kGcsErrors, stats.errors);
  count(metrics::CounterId::kActorRestarts, stats.actor_restarts);
  count(metrics::CounterId::kNodeDeaths, stats.node_deaths);
  count(metrics::CounterId::kJobsStarted, stats.jobs_told[proto::JobInfo::RUNNING]);
  count(metrics::CounterId::kJobsFinished, stats.jobs_told[proto::JobInfo::FINISHED]);
  count(metrics::CounterId::kJobsFailed, stats.jobs_told[proto::JobInfo::FAILED]);
  using S = proto::Submission;
  count(metrics::CounterId::kSubmissionsSubmitted, stats.submissions_told[S::PENDING]);
  count(metrics::CounterId::kSubmissionsSucceeded, stats.submissions_told[S::SUCCEEDED]);
  count(metrics::CounterId::kSubmissionsFailed, stats.submissions_told[S::FAILED]);
  count(metrics::CounterId::kSubmissionsStopped, stats.submissions_told[S::STOPPED]);
  gauge(metrics::GaugeId::kSubmissionsPending, stats.submissions[S::PENDING]);
  gauge(metrics::GaugeId::kSubmissionsStarting, stats.submissions[S::STARTING]);
  gauge(metrics::GaugeId::kSubmissionsRunning, stats.submissions[S::RUNNING]);
  gauge(metrics::GaugeId::kInfeasibleActors, stats.infeasible_actors);
  gauge(metrics::GaugeId::kInfeasibleSubmissions, stats.infeasible_submissions);
  gauge(metrics::GaugeId::kActorsAlive, stats.actors_alive);
  gauge(metrics::GaugeId::kActorsPending, stats.actors_pending);
  gauge(metrics::GaugeId::kActorsRestarting, stats.actors_restarting);
  gauge(metrics::GaugeId::kActorsDead, stats.actors_dead);
  gauge(metrics::GaugeId::kJobsRunning, stats.jobs);
  gauge(metrics::GaugeId::kGroups, stats.groups);
  gauge(metrics::GaugeId::kGcsReadOnly, stats.read_only ? 1 : 0);
  gauge(metrics::GaugeId::kGcsRecovering, stats.recovering ? 1 : 0);
  gauge(metrics::GaugeId::kGcsInProgress, stats.in_progress);
  gauge(metrics::GaugeId::kGcsKeyValueBytes, stats.key_value_bytes);
  gauge(metrics::GaugeId::kNodesAlive, stats.nodes - stats.nodes_suspect - stats.nodes_draining);
  gauge(metrics::GaugeId::kNodesSuspect, stats.nodes_suspect);
  gauge(metrics::GaugeId::kNodesDraining, stats.nodes_draining);
  gauge(metrics::GaugeId::kNodesDead, stats.nodes_dead);
}

}  // namespace sheaf
