// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// How the raylet starts and ends workers, and joins processes by rings. Implemented by
// raylet/host/process_launcher.h and raylet/host/attach_server.h on real nodes, by fakes in tests/sim. Both
// report back through Raylet::OnAttached and OnExited.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/ids.h"
#include "proto/raylet.pb.h"

namespace sheaf {

// What is the same for all workers that may share a process from birth: one job and one runtime
// environment.
struct WorkerSpec {
  ProcessId process;  // Given by the raylet, never used twice.
  // This node's own number of it: workers start while the GCS still numbers the job.
  JobNumber job = 0;
  std::string environment;  // Serialized runtime environment.
  std::vector<uint32_t> gpu_ids;
};

class WorkerLauncher {
 public:
  virtual ~WorkerLauncher() = default;
  // What workers of `job` run: `start` and the driver's executable (a descriptor kept by the
  // implementation from the attach handshake of `driver`).
  virtual void AddJob(JobNumber job, ProcessId driver, const proto::JobStart& start) = 0;
  // The same for a job whose driver is on another node, with what is known of its executable there.
  // No driver: it is gone with its node, and what lies at the same path here is run.
  virtual void AddRemoteJob(JobNumber job, ProcessId driver, const proto::JobStart& start,
                            const proto::Program& program) = 0;
  virtual void RemoveJob(JobNumber job) = 0;
  // The driver of `job` is gone, and some of its workers stay (detached actors): kills what the
  // others leave behind in the next seconds. Processes in the groups and sessions of those that
  // stay are spared.
  virtual void EndStrays(JobNumber job) = 0;
  // Starts one worker and returns at once. Later Raylet::OnAttached(spec.process), or OnExited with
  // START_FAILED. kResourceExhausted: the kernel refused another process. kNotFound: no such job.
  virtual absl::Status Start(const WorkerSpec& spec) = 0;
  // Ends a process with all its descendants (process group, then strays); OnExited follows. No-op
  // when it is gone.
  virtual void Kill(ProcessId process, const std::string& reason) = 0;
};

class Switchboard {
 public:
  virtual ~Switchboard() = default;
  // Makes a ring pair between two attached processes of this node and tells both (kNewRing plus
  // descriptor). A second call for the same two does nothing. kNotFound: one of them is not
  // attached.
  virtual absl::Status Connect(ProcessId a, ProcessId b) = 0;
  // `process` is gone, all its peers have drained: its rings and segment may go.
  virtual void Remove(ProcessId process) = 0;
  // The last push of `caller` that `process` started (shm/process_segment.h), alive or dead;
  // {lease, push}.
  virtual std::pair<LeaseNumber, uint64_t> Started(ProcessId process, ProcessId caller) = 0;
  // What `process` says that it runs (ProcessPage::running), best effort; empty when nothing is
  // known.
  virtual std::string RunningOf(ProcessId) { return {}; }
  // Processes joined with `process` by a ring.
  virtual std::vector<ProcessId> PeersOf(ProcessId process) = 0;
};

}  // namespace sheaf
