// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What a raylet is told once, and what of the world it acts on.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/executor.h"
#include "base/ids.h"
#include "base/random.h"
#include "base/resources.h"
#include "base/transport.h"
#include "metrics/page.h"
#include "proto/gcs.pb.h"
#include "raylet/cluster/node_links.h"
#include "raylet/objects/block_source.h"
#include "raylet/objects/store_events.h"
#include "raylet/scheduling/lease_queue.h"
#include "raylet/workers/entrypoint_launcher.h"
#include "raylet/workers/launcher.h"
#include "raylet/workers/worker_pool.h"

namespace sheaf {

class NodeLogs;       // raylet/logs/node_logs.h
class ProcessStates;  // raylet/workers/process_states.h
class StoreServer;
class TaskEvents;  // raylet/queries/task_events.h

struct RayletOptions {
  NodeNumber node = 0;  // From the GCS, which knows this node already.
  Resources totals;
  Labels labels;
  std::vector<uint32_t> gpu_ids;  // Of the GPUs in `totals`.
  bool takes_work = true;         // false: it is there for a driver outside of the cluster.
  std::string address;            // Where other raylets dial; empty on a single node.
  std::string host_name;
  std::string version;
  std::string metrics_url;
  std::string session_dir;
  // Hears on the raylet's thread what the GCS says of each node, this one included. May be null.
  std::function<void(const proto::NodeInfo& info)> on_node_info;
  std::vector<std::string> features;  // Optional kernel features in use: "pidfd: yes".
  int64_t unix_ns_at_zero = 0;        // Wall time when the monotonic clock was 0; only a label.
  uint64_t gcs_term = 0;              // As NodeRegistered said.
  Nanos heartbeat_period = kSecond;
  WorkerPoolOptions workers;  // `cpus` 0: from `totals`.
  LeaseQueueOptions leases;
  Nanos drain_limit = 10 * kSecond;  // Peers of a dead process have so long to drain its rings.
  Nanos query_limit = kSecond;       // Processes have so long to answer a state query.
  // A node and the GCS are both silent for so long: waits for that node end.
  Nanos silence_limit = 60 * kSecond;
};

// Everything outlives the raylet.
struct RayletDeps {
  Clock& clock;
  Transport& transport;  // To all processes and raylets of the cluster, and to kGcs.
  NodeLinks& links;      // To other nodes, for frames that processes of this one send.
  WorkerLauncher& launcher;
  Switchboard& switchboard;
  StoreServer& store;
  StoreEvents& store_events;  // The observer of `store`.
  Random& random;
  ProcessNumbers& numbers;
  metrics::Page& metrics;
  BlockSource& blocks;  // Pieces of objects of other nodes.
  Executor& loop;       // Runs on the thread that calls the raylet.
  Executor& copier;     // Large copies and checksums.
  EntrypointLauncher& entrypoints;
  TaskEvents* task_events = nullptr;        // nullptr: nothing is remembered of ended calls.
  ProcessStates* process_states = nullptr;  // nullptr: the kernel is not asked of processes.
  NodeLogs* logs = nullptr;                 // nullptr: this node keeps none.
};

// Wall time at `at` of the monotonic clock.
inline int64_t UnixSecondsAt(const RayletOptions& options, Nanos at) {
  return (options.unix_ns_at_zero + at) / kSecond;
}

}  // namespace sheaf
