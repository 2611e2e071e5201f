// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What a node counts and measures of itself: read from the raylet's parts, which it does not change,
// and put on the metrics page. Not thread-safe: the raylet's thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "base/clock.h"
#include "metrics/page.h"
#include "raylet/cluster/gcs_link.h"
#include "raylet/ended_processes.h"
#include "raylet/jobs/placement_group_coordinator.h"
#include "raylet/node_tables.h"
#include "raylet/objects/node_objects.h"
#include "raylet/raylet_options.h"
#include "raylet/scheduling/lease_queue.h"
#include "raylet/scheduling/resource_ledger.h"
#include "raylet/sweeper.h"
#include "raylet/workers/worker_pool.h"
#include "scheduling/cluster_view.h"

namespace sheaf {

struct NodeStats {
  size_t scheduler_queue = 0;  // Leases wanted and not granted.
  size_t leases = 0;
  WorkerPool::Counts workers;
  size_t processes = 0;
  size_t drivers = 0;
  size_t ended_processes = 0;  // Dead processes of which something is left.
  size_t rings = 0;            // Between processes, that with the raylet left out.
  size_t groups = 0;
  size_t pending_groups = 0;
  size_t held_references = 0;
  size_t adopted_objects = 0;
  size_t orphans = 0;  // References to objects of dead owners that are not here.
  size_t unanswered_gcs_commands = 0;
  size_t nodes_known = 0;  // This one, those that live, and some that died.
  uint64_t swept = 0;      // What the sweeper had to repair since the start,
  std::string last_swept;  // and the table in which it did so last.
};

class NodeFigures {
 public:
  // All outlive it.
  struct Sources {
    const RayletDeps& deps;
    Nanos started_at;
    const ClusterView& view;
    const ResourceLedger& ledger;
    const LeaseQueue& queue;
    const WorkerPool& pool;
    const AttachedProcesses& processes;
    const EndedProcesses& ended;
    const PlacementGroupCoordinator& groups;
    const NodeObjects& objects;
    const GcsLink& gcs;
    const Sweeper& sweeper;
  };
  explicit NodeFigures(const Sources& sources) : from_(sources) {}

  NodeStats Get() const;
  // Sets the gauges of the metrics page from these figures and those of ledger and store; call it
  // before the page is read. The counters are kept as things happen. What waits here, by shape: at
  // most metrics::kMostShapes, and all beyond as "others".
  std::map<std::string, uint64_t> Publish();
  // A process of this node ended so.
  void CountDeath(const proto::Death& death);

 private:
  std::map<std::string, uint64_t> PublishDemand();
  struct StoreCounts {
    uint64_t spills = 0, restores = 0, refusals = 0, spilled_bytes = 0, restored_bytes = 0,
             disk_failures = 0;
  };

  const Sources from_;
  StoreCounts store_counts_;  // Of what was added to the counters so far.
  ObjectPuller::Stats pull_counts_;
  uint64_t served_bytes_ = 0;
};

}  // namespace sheaf
