// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The detached actors of this node. The GCS decides that an incarnation starts or ends; this raylet
// leases a worker for it in its own name, hands over the creation task, and reports. The worker says
// by kActorReport that the constructor has run (ALIVE) or failed (DEAD). An actor that this node
// cannot start goes back to the GCS, which orders it from another one. Pure; one thread.
//
// Of the actors that their creators manage it keeps what listings show, until it is sent on.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <string>

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "absl/status/status.h"
#include "base/clock.h"
#include "base/error_kind.h"
#include "base/frame.h"
#include "base/ids.h"
#include "base/transport.h"
#include "proto/gcs.pb.h"
#include "raylet/cluster/gcs_link.h"
#include "raylet/death_register.h"
#include "raylet/jobs/jobs.h"
#include "raylet/jobs/placement_group_coordinator.h"
#include "raylet/node_tables.h"
#include "raylet/scheduling/lease_queue.h"
#include "raylet/workers/worker_pool.h"
#include "scheduling/cluster_view.h"

namespace sheaf {

class DetachedActors {
 public:
  // All outlive it.
  struct Deps {
    Clock& clock;
    Transport& transport;
    GcsLink& gcs;
    WorkerPool& pool;
    LeaseQueue& queue;
    ClusterView& view;
    const AttachedProcesses& processes;
    const DeathRegister& deaths;
    Jobs& jobs;
    PlacementGroupCoordinator& groups;
    // Ends a lease that was granted for an actor and has no worker yet.
    std::function<void(LeaseNumber)> end_lease;
  };
  explicit DetachedActors(Deps deps) : deps_(std::move(deps)) {}
  DetachedActors(const DetachedActors&) = delete;
  DetachedActors& operator=(const DetachedActors&) = delete;

  // --- What the GCS says.
  void OnStart(const proto::StartActor& message);
  void OnKill(const proto::KillActor& message);
  // It counts on this node until `until`, as it gave it `length` more: so long actors may begin
  // calls.
  void OnNodeLease(Nanos until, Nanos length);
  // --- What becomes of the lease demand `key` of an actor.
  void OnPlaced(uint64_t key, LeaseNumber lease, ProcessId worker);
  // `error` kNone: it stays queued, and `reason` says why.
  void OnRefused(uint64_t key, ErrorKind error, const std::string& reason);
  void OnWorkerDied(ProcessId worker, const proto::Death& death);
  // kActorReport, of a detached actor's worker or of the creator of another.
  absl::Status OnReport(ProcessId from, const Frame& frame);
  // This node takes no new work from now on.
  void OnDraining();
  // Gives back what waits here in vain.
  void Tick();
  // Sends on what creators have reported.
  void SendRows();

  const DetachedActorTable& all() const { return actors_; }
  bool IsWanted(uint64_t key) const;  // The actor of that demand is here.
  bool HasAny(JobNumber job) const;
  absl::btree_set<ProcessId> WorkersOf(JobNumber job) const;
  void FillReport(proto::NodeReport* report) const;

 private:
  using Ended = std::deque<proto::ActorStateReport>;
  Nanos Now() const { return deps_.clock.Now(); }
  ProcessId Self() const { return RayletOf(deps_.view.local); }
  void Add(ActorId id, const proto::StartActor& message);
  void End(DetachedActor& actor, const std::string& reason);
  void Remove(uint64_t key, const proto::Death& death);
  void ReportEnd(proto::ActorStateReport report);
  void Report(const DetachedActor& actor);
  void Send(const proto::ActorStateReport& report);
  void SendLease(ProcessId worker);
  DetachedActor* Find(uint64_t key);
  Ended::iterator FindEnded(const std::string& actor_id);
  bool MayStartHere(const DetachedActor& actor) const;
  std::string ReasonToGiveBack(const LeaseQueue::Pending& pending, const DetachedActor& actor);
  std::string ReasonOfGroup(const LeaseSpec& spec, bool waits_long);

  const Deps deps_;
  DetachedActorTable actors_;
  uint64_t last_key_ = 0;
  Ended ended_;                                         // How the last here died, by actor.
  absl::btree_map<std::string, proto::ActorRow> rows_;  // Reported, not passed on yet.
  Nanos lease_until_ = 0;
  Nanos told_lease_until_ = 0;
};

}  // namespace sheaf
