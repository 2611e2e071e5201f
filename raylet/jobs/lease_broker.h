// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Between the lease queue, which decides who gets a worker, and the worker pool, which has them:
// takes demands of owners here and on other nodes, binds workers to what is granted and tells both
// ends, hands on what other nodes have room for, and ends leases. Pure; one thread. A malformed frame
// is kInvalidArgument, and changes nothing.
#pragma once

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "base/clock.h"
#include "base/error_kind.h"
#include "base/frame.h"
#include "base/ids.h"
#include "base/transport.h"
#include "metrics/page.h"
#include "proto/raylet.pb.h"
#include "raylet/cluster/cluster_follower.h"
#include "raylet/cluster/contacts.h"
#include "raylet/death_register.h"
#include "raylet/jobs/detached_actors.h"
#include "raylet/jobs/jobs.h"
#include "raylet/jobs/placement_group_coordinator.h"
#include "raylet/node_tables.h"
#include "raylet/objects/argument_admission.h"
#include "raylet/scheduling/lease_queue.h"
#include "raylet/scheduling/revocations.h"
#include "raylet/workers/launcher.h"
#include "raylet/workers/worker_pool.h"

namespace sheaf {

class LeaseBroker {
 public:
  // All outlive it.
  struct Deps {
    NodeNumber node;
    Clock& clock;
    Transport& transport;
    metrics::Page& metrics;
    Switchboard& switchboard;
    LeaseQueue& queue;
    WorkerPool& pool;
    WorkerLauncher& launcher;
    AttachedProcesses& processes;  // Each worker's lease is set here.
    WorkersOfLeases& worker_of;    // Written here alone.
    const DeathRegister& deaths;
    Jobs& jobs;
    PlacementGroupCoordinator& groups;
    DetachedActors& detached;
    Contacts& contacts;
    ClusterFollower& follower;
    const ArgumentAdmission& arguments;
    // The job of a process of this node that is dead; 0: nothing is left of it.
    std::function<JobNumber(ProcessId)> job_of_dead;
    // Nothing can satisfy a demand now; of an unknown one nullptr.
    std::function<void(const LeaseSpec*, const std::string&)> on_infeasible;
  };
  explicit LeaseBroker(Deps deps) : deps_(std::move(deps)) {}
  LeaseBroker(const LeaseBroker&) = delete;
  LeaseBroker& operator=(const LeaseBroker&) = delete;

  // --- What owners, workers and other raylets say.
  absl::Status OnDemand(ProcessId owner, const Frame& frame);  // kLeaseDemand of a process here.
  // kSpillbackDemand of another raylet: a demand that came to it, or what of one of here goes back.
  absl::Status OnSpillbackDemand(ProcessId from, const Frame& frame);
  // kLeaseReturn of an owner anywhere, or of a worker that was told to by kLeaseRevoke.
  absl::Status OnReturn(ProcessId from, const Frame& frame);
  absl::Status OnKillWorker(ProcessId from, const Frame& frame);
  absl::Status OnBlocked(ProcessId worker, const Frame& frame);
  void OnWorkerReady(ProcessId worker);

  // --- What happens.
  // An owner or worker anywhere is gone, or all of a node are.
  void OnProcessGone(ProcessId process);
  // `owner` has read all that `worker`, which is dead, sent: a word of an owner that did not answer.
  void OnPeerDrained(ProcessId owner, ProcessId worker);
  void OnNodeDead(NodeNumber node);
  // The worker of `lease` is gone, or it never had one.
  void Return(LeaseNumber lease);
  // Ends `lease` at its worker, if it has one, by ending the worker. Of an actor without one whose
  // placement group was removed the owner is told.
  void End(LeaseNumber lease, ErrorKind error, const std::string& reason);
  // The last push of `caller` that the dead worker `process` started under `number`, its lease when
  // it died.
  uint64_t StartedFor(ProcessId process, LeaseNumber number, ProcessId caller) const;
  // Carries out what the queue has decided; what queue and pool have. False: there was nothing.
  bool ApplyQueue();
  bool Settle();
  // Takes leases from owners that do not answer.
  void Tick();
  // Compare one of the table with what is alive. True: there was something to repair.
  bool SweepLease(LeaseNumber lease);
  bool SweepWorker(ProcessId worker);

 private:
  Nanos Now() const { return deps_.clock.Now(); }
  ProcessId Self() const { return RayletOf(deps_.node); }
  Channel& To(ProcessId process) { return deps_.transport.To(process); }
  void Apply(const LeaseAction& action);
  void FindWorker(const Lease& lease);
  void OnAssigned(LeaseNumber number, ProcessId worker);
  bool Join(const Lease& lease, ProcessId worker);
  void Bind(const Lease& lease, ProcessId worker, AttachedProcess& process);
  void Take(const Lease& lease, ProcessId worker, bool discard);
  void TellToLeave(const WorkerPool::Leaving& leaving);
  void SendRevoke(ProcessId to, LeaseNumber lease);
  void Refuse(const DemandId& demand, ErrorKind error, const std::string& reason);
  void SendSpillback(const LeaseAction& action);
  JobNumber JobOf(const Lease& lease) const;
  JobNumber JobOfOwner(ProcessId owner) const;

  const Deps deps_;
  Revocations revocations_;
};

}  // namespace sheaf
