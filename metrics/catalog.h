// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Every metric of Sheaf, once: its number in the shared page, its Prometheus name and labels, its
// unit and what it means. docs/metrics.md is written from this table (`metrics_test` compares). A
// new metric is one enumerator here and one row in catalog.cc, in the same place of the order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace sheaf::metrics {

// Only ever grow. Summed over all processes of the node, those that have exited included.
enum class CounterId : uint16_t {
  // Counted by the owner of the task.
  kTasksSubmitted,
  kTasksFinished,
  kTasksFailed,
  kTasksRetried,
  kTasksCancelled,
  // Counted by the caller.
  kActorCallsSubmitted,
  kActorCallsFinished,
  kActorCallsFailed,
  kActorCallsRetried,
  kActorCallsCancelled,
  kPushesSent,
  kPushesReturned,
  // Counted by the process that runs the code.
  kTasksExecuted,
  kActorCallsExecuted,
  // Objects, counted by the process that puts or reads.
  kPutsPrivate,
  kPutsStore,
  kPutBytes,
  kGetsPrivate,
  kGetsStore,
  kReconstructions,
  // Rings, counted by the sender; sleeps by the sleeper.
  kFramesWork,
  kFramesControl,
  kFrameBytes,
  kFramesQueued,
  kBadFrames,
  kDoorbellSleeps,
  kDoorbellWakes,
  // Raylet.
  kLeasesGranted,
  kLeasesReturned,
  kLeasesRevoked,
  kLeasesRefused,
  kDemandsHandedOn,
  kRelayedOut,  // To other nodes.
  kRelayedIn,
  kLinkBytesOut,  // Frames and blocks of objects.
  kLinkBytesIn,
  kLinkResent,
  kLinkReconnects,
  kLinkRefused,
  kPulls,
  kPullFailures,
  kPulledBytes,
  kServedBytes,
  kWorkersStarted,
  kWorkerDeathsExited,
  kWorkerDeathsSignalled,
  kWorkerDeathsOutOfMemory,
  kWorkerDeathsKilled,
  kWorkerDeathsLeft,
  kWorkerDeathsStartFailed,
  kWorkerDeathsOther,
  kActorRestarts,
  kLogLinesOut,
  kLogLinesError,
  kLogBytesLeftOut,
  // Store.
  kSpills,
  kSpilledBytes,
  kRestores,
  kRestoredBytes,
  kSpillFailures,
  kObjectsFreed,
  kObjectsAdopted,
  kStoreFull,
  // What processes recorded of their calls (telemetry/).
  kEventsLost,
  kSpansExported,
  kSpansDropped,
  // HTTP, of the metrics themselves and of the dashboard.
  kHttpInformed,
  kHttpSucceeded,
  kHttpRedirected,
  kHttpRefused,
  kHttpFailed,
  kHttpTurnedAway,
  // GCS.
  kGcsNodeOps,
  kGcsJobOps,
  kGcsActorOps,
  kGcsGroupOps,
  kGcsKeyValueOps,
  kGcsSubscribeOps,
  kGcsErrors,
  kGcsCommits,
  kNodeDeaths,
  kJobsStarted,
  kJobsFinished,
  kJobsFailed,
  kSubmissionsSubmitted,
  kSubmissionsSucceeded,
  kSubmissionsFailed,
  kSubmissionsStopped,
  kCount
};

// Go up and down. Summed over the processes that live; what a dead process left in its page no
// longer counts.
enum class GaugeId : uint16_t {
  // Each process, about what it owns.
  kQueuedTasks,
  kOwnedObjects,
  kPrivateBytes,
  // Raylet.
  kSchedulerQueue,
  kInfeasibleLeases,
  kInfeasibleGroups,
  kInfeasibleActors,  // These two the GCS.
  kInfeasibleSubmissions,
  kSchedulerStarved,
  kGroupsPending,
  kLeasesHeld,
  kWorkersStarting,
  kWorkersIdle,
  kWorkersLeased,
  kWorkersBlocked,
  kWorkersActor,
  kProcesses,
  kDrivers,
  kRings,
  kCpuTotal,
  kCpuAvailable,
  kGpuTotal,
  kGpuAvailable,
  // Store.
  kStoreCapacityBytes,
  kStoreUsedBytes,
  kStorePinnedBytes,
  kStoreSpilledBytes,
  kStorePopulatedBytes,
  kStoreObjects,
  kPullsQueued,
  // HTTP.
  kHttpConnections,
  // GCS.
  kActorsAlive,
  kActorsPending,
  kActorsRestarting,
  kActorsDead,
  kJobsRunning,
  kSubmissionsPending,
  kSubmissionsStarting,
  kSubmissionsRunning,
  kGroups,
  kGcsReadOnly,
  kGcsRecovering,
  kGcsInProgress,
  kGcsKeyValueBytes,
  kNodesAlive,
  kNodesSuspect,
  kNodesDraining,
  kNodesDead,
  kLinkQueuedBytes,
  kCertificatesExpire,
  kDashboardCertificateExpires,
  // The machine, as of the last two seconds.
  kHostCpu,
  kHostSteal,
  kHostIoWait,
  kHostLoad,
  kHostCpuStall,
  kHostMemoryStall,
  kHostIoStall,
  kHostMemoryUsed,
  kHostMemoryTotal,
  kHostDiskUsed,
  kHostDiskTotal,
  kHostDiskRead,
  kHostDiskWritten,
  kHostReceived,
  kHostSent,
  kHostProcesses,
  kHostProcessesCpu,
  kHostProcessesMemory,
  kHostGpu,
  kHostGpuMemoryUsed,
  kHostGpuMemoryTotal,
  // The node.
  kUptime,
  kBuildInfo,
  kCount
};

// Distributions, over the buckets of page.h.
enum class HistogramId : uint16_t {
  kTaskLatency,
  kActorCallLatency,
  kTaskRunTime,
  kLeaseWait,
  kWorkerStart,
  kGcsCommit,
  kObjectBytes,
  kHttpAnswer,
  kCount
};

inline constexpr size_t kCounterCount = static_cast<size_t>(CounterId::kCount);
inline constexpr size_t kGaugeCount = static_cast<size_t>(GaugeId::kCount);
inline constexpr size_t kHistogramCount = static_cast<size_t>(HistogramId::kCount);

// One series. Series of one `name` stand beside each other and differ in the label's value.
struct Description {
  const char* name;         // "sheaf_tasks_total".
  const char* label;        // "state", or "" for none.
  const char* label_value;  // "submitted"; of Shaped(), what it may be, in words.
  const char* unit;         // "tasks": of the value as Prometheus sees it.
  const char* help;         // One sentence; the same for all series of a name.
  double scale = 1;         // Prometheus sees number * scale: 1e-9 makes seconds of nanoseconds.
};

// In the order of the enumerations; process-lifetime constants.
std::span<const Description> Counters();
std::span<const Description> Gauges();
std::span<const Description> Histograms();
// Gauges with a label whose values are made while the node runs: at most so many series each.
inline constexpr size_t kMostShapes = 32;
std::span<const Description> Shaped();

std::string CatalogAsMarkdown();  // The text of docs/metrics.md.

}  // namespace sheaf::metrics
