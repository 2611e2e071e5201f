// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What a frame means to a driver or worker: it goes to the owner's half, the executor's half, the
// store's client or the calls to the GCS; what concerns the process itself goes to its host. The
// runtime and the simulator use the same. Guarded by the runtime's lock.
#pragma once

#include <string>

#include "absl/container/flat_hash_map.h"
#include "base/frame.h"
#include "base/ids.h"
#include "base/transport.h"
#include "object_store/store_client.h"
#include "worker/executor/task_executor.h"
#include "worker/gcs_calls.h"
#include "worker/owner_state.h"
#include "worker/relay_transport.h"

namespace sheaf {

// The process around the state.
class FrameHost {
 public:
  virtual ~FrameHost() = default;
  // The actor has other concurrency groups: it may want threads for them.
  virtual void OnGroupsChanged() = 0;
  // The call runs and is cancelled: its language shall end it.
  virtual void OnRunningCancelled(TaskId task) = 0;
  virtual void OnNewRing(const proto::NewRing& ring) = 0;
  // Hands out what `dead` had sent before it died.
  virtual void DrainRings(ProcessId dead) = 0;
  // All else that a raylet says to a process.
  virtual void OnHostFrame(const Frame& frame) = 0;
};

class FrameDispatch {
 public:
  FrameDispatch(ProcessId self, FrameHost& host, RelayTransport& transport, StoreClient& store,
                OwnerState& owner, TaskExecutor& executor, GcsCalls& gcs)
      : self_(self),
        host_(host),
        transport_(transport),
        store_(store),
        owner_(owner),
        executor_(executor),
        gcs_(gcs) {}

  void OnFrame(ProcessId from, const Frame& frame);

  // The job that this process works for: a driver's answer, or what a worker's leases say.
  struct Job {
    JobNumber number = 0;
    std::string name_space;
    std::string error;  // Why there is none.
    bool answered = false;
  };
  const Job& job() const { return job_; }
  // Placement groups that this process has asked for or about, as the raylet said last.
  absl::flat_hash_map<PlacementGroupId, proto::GroupState>& groups() { return groups_; }

 private:
  void OnRayletFrame(const Frame& frame);
  void OnRemoteRayletFrame(const Frame& frame);
  void OnCancel(ProcessId from, const Frame& frame);
  void OnConnectRefused(const Frame& frame);
  void OnProcessDied(const Frame& frame);

  const ProcessId self_;
  FrameHost& host_;
  RelayTransport& transport_;
  StoreClient& store_;
  OwnerState& owner_;
  TaskExecutor& executor_;
  GcsCalls& gcs_;
  Job job_;
  absl::flat_hash_map<PlacementGroupId, proto::GroupState> groups_;
};

}  // namespace sheaf
