// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The jobs that have work on this node, each from its start to the end of its last worker: those of
// drivers that are attached here, and those of other nodes, whose owners ask for workers here or
// whose detached actors start here. Pure; one thread. What others send is untrusted: a malformed
// frame is kInvalidArgument, and changes nothing.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "absl/status/status.h"
#include "base/clock.h"
#include "base/frame.h"
#include "base/ids.h"
#include "base/transport.h"
#include "proto/gcs.pb.h"
#include "proto/raylet.pb.h"
#include "raylet/cluster/gcs_link.h"
#include "raylet/death_register.h"
#include "raylet/node_tables.h"
#include "raylet/raylet_options.h"
#include "raylet/scheduling/lease_queue.h"
#include "raylet/workers/launcher.h"
#include "raylet/workers/worker_pool.h"

namespace sheaf {

class Jobs {
 public:
  // All outlive it.
  struct Deps {
    const RayletOptions& options;
    Clock& clock;
    Transport& transport;
    GcsLink& gcs;
    WorkerLauncher& launcher;
    WorkerPool& pool;
    const LeaseQueue& queue;
    const WorkersOfLeases& worker_of;
    AttachedProcesses& processes;  // Each driver's job is set here.
    const DeathRegister& deaths;
    // Workers on this node that are, or become, detached actors of a job; whether there are any.
    std::function<absl::btree_set<ProcessId>(JobNumber)> detached_workers_of;
    std::function<bool(JobNumber)> has_detached_actors;
    std::function<void(ProcessId)> on_driver_gone;  // The job of this driver ends.
  };
  explicit Jobs(Deps deps) : deps_(std::move(deps)) {}
  Jobs(const Jobs&) = delete;
  Jobs& operator=(const Jobs&) = delete;

  // --- Jobs come.
  // kJobStart of a driver that is attached here. It is answered when the GCS has numbered the job;
  // a repeat is answered again.
  absl::Status OnStart(ProcessId driver, const Frame& frame);
  // kRemoteJob: a job whose driver is on another node, and whose owners ask for workers here.
  absl::Status OnRemoteJob(const Frame& frame);
  // The job of a detached actor that is to start here. If it is not known it becomes so, for this
  // actor only.
  JobNumber AddForActor(const proto::StartActor& message);
  // Another raylet hands on a demand of `owner`, which belongs to the job of `driver`. False: that
  // job is not known here, or over.
  bool OnSpillbackDemand(ProcessId driver, ProcessId owner, bool outlives_driver);

  // --- Jobs end.
  // The driver of `job` is gone. Workers end, but for those that outlive the driver.
  void End(JobNumber job, const proto::Death& death);
  // The GCS says that a job is over.
  void OnOver(const proto::JobInfo& info);
  // A process of another node that owned something here is dead.
  void ForgetOwner(ProcessId owner) { remote_owners_.erase(owner); }
  void OnNodeDead(NodeNumber node, const proto::Death& death);
  // Whether `job` should have ended, and has now: its driver is gone.
  bool Sweep(JobNumber job);
  // What ended, and keeps nothing alive any more, goes.
  void Tick();
  // `job` stays known for so long, although it has ended.
  void Keep(JobNumber job, Nanos duration);
  // No job begins any more, and the workers of all of them end.
  void Close(const std::string& reason);

  // --- What is known of them.
  const NodeJobs& all() const { return jobs_; }
  bool closed() const { return closed_; }
  const NodeJob* Find(JobNumber job) const;  // nullptr: unknown.
  // This node's own number, 0: unknown: of a job that the GCS calls `number`, of a driver, of an
  // owner on another node whose demand was handed on to here.
  JobNumber LocalNumber(JobNumber number) const;
  JobNumber OfDriver(ProcessId driver) const;
  JobNumber OfRemoteOwner(ProcessId owner) const;
  // Whether `owner` works on when the driver of its job is gone.
  bool OutlivesDriver(ProcessId owner, JobNumber job) const;
  // What the driver set for all of its job's workers, below what `spec` sets for itself.
  // kInvalidArgument: the two cannot be merged.
  absl::Status AddEnvironment(JobNumber job, proto::LeaseSpec* spec) const;
  // Describes `job` to another node, unless it was; one that `outlives_driver` is described each
  // time, as that node forgets it when nobody asks there for anything.
  void TellNode(NodeNumber node, JobNumber job, bool outlives_driver);
  // To which the job of `driver` was described.
  std::vector<NodeNumber> NodesToldOf(ProcessId driver) const;

 private:
  struct RemoteOwner {
    JobNumber job = 0;
    bool outlives_driver = false;
  };
  Nanos Now() const { return deps_.clock.Now(); }
  void OnRegistered(JobNumber job, const proto::GcsReply& reply);
  void Finish(const NodeJob& job);
  void RemoveIfOver(JobNumber job);
  void AddRemote(JobNumber local, const NodeJob& job, bool driver_is_gone);
  bool IsHeir(ProcessId owner, JobNumber job) const;
  absl::btree_set<ProcessId> Outliving(JobNumber job) const;
  bool HasOutlivingDemands(JobNumber job) const;

  const Deps deps_;
  NodeJobs jobs_;
  JobNumber last_job_ = 0;
  absl::btree_map<ProcessId, RemoteOwner> remote_owners_;   // Whose demands came here.
  absl::btree_set<std::pair<NodeNumber, JobNumber>> told_;  // Described to that node.
  absl::btree_set<JobNumber> ended_elsewhere_;  // By the GCS's number, the last not known here.
  bool closed_ = false;
};

}  // namespace sheaf
