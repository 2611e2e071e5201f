// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What a raylet knows of each process that is attached to it, of each job that has work here, and
// of each detached actor that it hosts.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/flat_hash_map.h"
#include "base/clock.h"
#include "base/ids.h"
#include "proto/gcs.pb.h"
#include "proto/raylet.pb.h"
#include "raylet/workers/attach_info.h"

namespace sheaf {

struct AttachedProcess {
  AttachInfo info;
  // This node's own number of its job; 0: none (a tool, or a driver before kJobStart).
  JobNumber job = 0;
  LeaseNumber lease = 0;  // A worker's, while it has one.
  Nanos attached_at = 0;
  Nanos socket_closed_at = 0;  // 0: it is open.
};
using AttachedProcesses = absl::btree_map<ProcessId, AttachedProcess>;
// Those whose sockets were closed at `latest` or before.
std::vector<ProcessId> HungUp(const AttachedProcesses& processes, Nanos latest);

// Of the leases that have a worker.
using WorkersOfLeases = absl::flat_hash_map<LeaseNumber, ProcessId>;

struct NodeJob {
  JobNumber number = 0;  // The GCS's; 0: not registered yet.
  ProcessId driver;
  proto::JobStart start;
  bool ended = false;
  bool failed = false;
  Nanos started_at = 0;
  Nanos keep_until = 0;  // It stays known until then, though it ended.
  bool remote = false;   // Its driver is on another node, which reports its end.
  // `ended` is a guess: it is known for its detached actor only, which may outlive it.
  bool only_detached = false;
  proto::Program program;
};
// By this node's own number: workers start while the GCS still numbers a job.
using NodeJobs = absl::btree_map<JobNumber, NodeJob>;

// A detached actor whose incarnation starts or lives here.
struct DetachedActor {
  proto::StartActor start;
  uint64_t key = 0;       // Of the lease demand that this raylet makes for it.
  JobNumber job = 0;      // This node's own number.
  LeaseNumber lease = 0;  // 0: no worker yet.
  ProcessId worker;
  bool started = false;  // Its constructor has run.
  bool ending = false;
  std::string pending;   // What it waits for.
  proto::Death failure;  // Of its constructor.
  Nanos came_at = 0;
  Nanos look_at = 0;  // Then, without room here, it is asked whether there is some elsewhere.
};
using DetachedActorTable = absl::btree_map<ActorId, DetachedActor>;

// Of the actor that this raylet makes the lease demand `key` for; 0: there is none.
JobNumber JobOfDetached(const DetachedActorTable& actors, uint64_t key);
// As the GCS is told of it.
proto::ActorStateReport ReportOf(const DetachedActor& actor, const AttachedProcesses& processes);

}  // namespace sheaf
