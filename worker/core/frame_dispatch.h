// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What a frame means to a driver or worker: it goes to a part of its core, and what concerns the
// process itself to its host. Guarded by the runtime's lock.
#pragma once

#include <string>

#include "base/frame.h"
#include "base/ids.h"
#include "base/transport.h"
#include "proto/raylet.pb.h"

namespace sheaf {

class ProcessCore;

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
  // Both outlive it.
  FrameDispatch(ProcessCore& core, FrameHost& host) : core_(core), host_(host) {}

  void OnFrame(ProcessId from, const Frame& frame);

  // The job that this process works for: a driver's answer, or what a worker's leases say.
  struct Job {
    JobNumber number = 0;
    std::string name_space;
    std::string error;  // Why there is none.
    bool answered = false;
  };
  const Job& job() const { return job_; }

 private:
  void OnRayletFrame(const Frame& frame);
  void OnRemoteRayletFrame(const Frame& frame);
  void OnCancel(ProcessId from, const Frame& frame);
  void OnConnectRefused(const Frame& frame);
  void OnProcessDied(const Frame& frame);
  void OnLeaseBegin(const proto::LeaseBegin& begin);
  void TellEvents();  // Of the job.

  ProcessCore& core_;
  FrameHost& host_;
  Job job_;
};

}  // namespace sheaf
