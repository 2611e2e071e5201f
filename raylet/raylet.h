// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// One node: who is attached, who works for whom, who holds what, and what follows when a process
// dies. Raylet is the switch between the parts that own this: it hands each frame and each event to
// those that it concerns, in an order that it alone knows, and lets them carry out what they have
// decided. Which part is given which others stands at the end of the class. Pure: all of the world
// comes in through RayletDeps, so that tests/sim runs it under virtual time. One thread; each input
// is one transaction. Nothing that a process or the GCS sends can end it.
//
//   raylet.cc          the inputs, attaching, the work that a transaction leaves behind
//   raylet_deaths.cc   deaths of processes, here and elsewhere, and of nodes
//   raylet_gcs.cc      what the GCS wants of the node, and what it is told of it
//   raylet_remote.cc   what raylets and processes of other nodes say
//   raylet_sweeps.cc   what is compared with live owners every few seconds
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/container/btree_set.h"
#include "base/clock.h"
#include "base/frame.h"
#include "base/ids.h"
#include "base/transport.h"
#include "proto/gcs.pb.h"
#include "proto/raylet.pb.h"
#include "raylet/cluster/cluster_membership.h"
#include "raylet/cluster/contacts.h"
#include "raylet/cluster/event_reporter.h"
#include "raylet/death_register.h"
#include "raylet/ended_processes.h"
#include "raylet/jobs/actor_kills.h"
#include "raylet/jobs/detached_actors.h"
#include "raylet/jobs/entrypoints.h"
#include "raylet/jobs/forgotten_logs.h"
#include "raylet/jobs/jobs.h"
#include "raylet/jobs/lease_broker.h"
#include "raylet/jobs/placement_group_coordinator.h"
#include "raylet/node_figures.h"
#include "raylet/node_tables.h"
#include "raylet/objects/node_objects.h"
#include "raylet/objects/object_server.h"
#include "raylet/queries/state_queries.h"
#include "raylet/raylet_options.h"
#include "raylet/scheduling/lease_queue.h"
#include "raylet/scheduling/resource_ledger.h"
#include "raylet/sweeper.h"
#include "raylet/workers/attach_info.h"
#include "raylet/workers/worker_pool.h"
#include "scheduling/cluster_view.h"

namespace sheaf {

class Raylet final : private ClusterMembership::Node {
 public:
  Raylet(RayletOptions options, RayletDeps deps);
  ~Raylet();
  Raylet(const Raylet&) = delete;
  Raylet& operator=(const Raylet&) = delete;

  // A process has its segment and its rings. Comes before the first OnFrame of that process.
  void OnAttached(ProcessId process, const AttachInfo& info);
  // A process of this node sent `frame`. From a process that is unknown or dead it is dropped; a
  // sender of malformed frames is told to end.
  void OnFrame(ProcessId from, const Frame& frame);
  // A process or raylet of another node sent `frame` to `to`, this raylet or a process of its node.
  void OnRemoteFrame(ProcessId from, ProcessId to, Lane lane, const Frame& frame);
  // The raylet `reader` asks for a block of an object (ObjectServer::OnFetch).
  void OnFetch(NodeNumber reader, std::string_view request, ObjectServer::Respond respond);
  // The link to `node` is up, or silent: new work then goes elsewhere where it can.
  void OnNodeLink(NodeNumber node, bool up) { cluster_.OnNodeLink(node, up); }
  // The link to the GCS is up, or silent; `term` is that of the GCS at its other end. Never called
  // where the GCS runs on this node: it is there, or begins another term.
  void OnGcsLink(bool up, uint64_t term);
  // kGcsReply or kGcsEvent, for this raylet or for one of its processes.
  void OnGcsFrame(const Frame& frame);
  // `process` is dead (its pidfd says so), or a worker could not be started. A repeat changes
  // nothing.
  void OnExited(ProcessId process, const proto::Death& death);
  // The attach socket of `process` is at its end: no forked child of it can hold a view of the
  // arena any more.
  void OnSocketClosed(ProcessId process);
  // What has become of a submitted command.
  void OnEntrypointRunning(const std::string& submission_id,
                           const proto::EntrypointReport::Running& running) {
    entrypoints_.OnRunning(submission_id, running);
  }
  void OnEntrypointEnded(const std::string& submission_id, proto::EntrypointReport::Ended ended);
  // After a batch of frames.
  void EndTurn();
  // At least each 100 ms. NextTick says when it would be of use (kForever: not before the next 100
  // ms).
  void Tick();
  Nanos NextTick() const;

  // The GCS declared this node dead: the process must end, its number is used up.
  bool fenced() const { return cluster_.fenced(); }
  // Takes no new work; workers, drivers and their descendants are told to end. For an orderly stop
  // of the node.
  void Shutdown(const std::string& reason);
  // Nobody is attached, and no submitted command runs.
  bool idle() const { return processes_.empty() && entrypoints_.empty(); }
  // Tells the GCS that this node is over, after Shutdown; from then on it says no more of itself.
  void Leave() { cluster_.Leave(); }
  bool has_left() const { return cluster_.has_left(); }  // The GCS has recorded it.

  const ResourceLedger& ledger() const { return ledger_; }
  NodeFigures& figures() { return figures_; }

 private:
  // raylet.cc
  Nanos Now() const { return deps_.clock.Now(); }
  // Handles one frame of a process. kInvalidArgument: malformed.
  absl::Status Dispatch(ProcessId from, AttachedProcess& process, const Frame& frame);
  absl::Status OnGoodbye(ProcessId from, const Frame& frame);
  absl::Status OnConnectRequest(ProcessId from, const Frame& frame);
  void OnProtocolError(ProcessId process, const absl::Status& status);
  // Carries out what the state machines decided, until none has anything to say.
  void Settle();

  // raylet_deaths.cc
  // `process`, which is attached, is dead; or it left, and has not exited yet.
  void OnProcessEnded(ProcessId process, const proto::Death& death, bool exited);
  absl::btree_set<ProcessId> TellOfDeath(ProcessId process, const AttachedProcess& was,
                                         const proto::Death& death);
  absl::Status OnPeerDrained(ProcessId peer, const Frame& frame);
  void OnRemoteDeath(ProcessId process, const proto::Death& death);

  // raylet_remote.cc
  absl::Status DispatchRemote(ProcessId from, const Frame& frame);

  // raylet_sweeps.cc
  void AddSweeps();

  // raylet_gcs.cc: what the GCS wants of the node, and what follows from changes of the cluster.
  void OnGcsEvent(const proto::GcsEvent& event) override;
  void OnRoom() override { groups_.OnRoom(); }
  void OnNodeDead(NodeNumber node, const std::string& reason) override;
  void OnDraining() override;
  void OnJobOver(const proto::JobInfo& job) override { jobs_.OnOver(job); }
  void FillReport(proto::NodeReport* report) const override;
  bool HasEntrypoints() const override { return !entrypoints_.empty(); }
  void OnNodeLease(Nanos until, Nanos length) override { detached_.OnNodeLease(until, length); }
  void OnFenced() override { Shutdown("the GCS declared this node dead"); }

  RayletOptions options_;
  RayletDeps deps_;
  AttachedProcesses processes_;  // Attached and alive.
  ClusterView view_;
  DeathRegister deaths_{processes_, view_};
  ResourceLedger ledger_;
  LeaseQueue queue_;
  WorkerPool pool_;
  ClusterMembership cluster_{{.options = options_,
                              .clock = deps_.clock,
                              .transport = deps_.transport,
                              .links = deps_.links,
                              .queue = queue_,
                              .view = view_,
                              .processes = processes_,
                              .deaths = deaths_,
                              .node = *this}};
  EventReporter events_{deps_.clock, cluster_.gcs()};
  WorkersOfLeases worker_of_;
  Jobs jobs_{{.options = options_,
              .clock = deps_.clock,
              .transport = deps_.transport,
              .gcs = cluster_.gcs(),
              .launcher = deps_.launcher,
              .pool = pool_,
              .queue = queue_,
              .worker_of = worker_of_,
              .processes = processes_,
              .deaths = deaths_,
              .detached_workers_of = [this](JobNumber job) { return detached_.WorkersOf(job); },
              .has_detached_actors = [this](JobNumber job) { return detached_.HasAny(job); },
              .on_driver_gone = [this](ProcessId driver) { groups_.OnProcessGone(driver); }}};
  PlacementGroupCoordinator groups_{{.clock = deps_.clock,
                                     .transport = deps_.transport,
                                     .gcs = cluster_.gcs(),
                                     .ledger = ledger_,
                                     .view = view_,
                                     .queue = queue_,
                                     .processes = processes_,
                                     .deaths = deaths_,
                                     .jobs = jobs_}};
  DetachedActors detached_{{.clock = deps_.clock,
                            .transport = deps_.transport,
                            .gcs = cluster_.gcs(),
                            .pool = pool_,
                            .queue = queue_,
                            .view = view_,
                            .processes = processes_,
                            .deaths = deaths_,
                            .jobs = jobs_,
                            .groups = groups_,
                            .end_lease = [this](LeaseNumber lease) {
                              leases_.End(lease, ErrorKind::kOwnerDied,
                                          "its actor is not wanted any more");
                            }}};
  Entrypoints entrypoints_{{.gcs = cluster_.gcs(),
                            .launcher = deps_.entrypoints,
                            .ledger = ledger_,
                            .view = view_,
                            .on_room = [this] {
                              groups_.OnRoom();
                              queue_.OnRoom(Now());
                            }}};
  NodeObjects objects_{
      {.node = options_.node,
       .clock = deps_.clock,
       .transport = deps_.transport,
       .store = deps_.store,
       .store_events = deps_.store_events,
       .metrics = deps_.metrics,
       .blocks = deps_.blocks,
       .loop = deps_.loop,
       .copier = deps_.copier,
       .view = view_,
       .deaths = deaths_,
       .is_draining = [this](ProcessId process) { return ended_.IsDraining(process); },
       .on_violation = [this](ProcessId process,
                              const absl::Status& status) { OnProtocolError(process, status); }}};
  Contacts contacts_{{.node = options_.node,
                      .clock = deps_.clock,
                      .transport = deps_.transport,
                      .links = deps_.links,
                      .metrics = deps_.metrics,
                      .view = view_,
                      .processes = processes_,
                      .deaths = deaths_}};
  EndedProcesses ended_{{.drain_limit = options_.drain_limit,
                         .clock = deps_.clock,
                         .transport = deps_.transport,
                         .launcher = deps_.launcher,
                         .switchboard = deps_.switchboard,
                         .deaths = deaths_,
                         .objects = objects_}};
  LeaseBroker leases_{
      {.node = options_.node,
       .clock = deps_.clock,
       .transport = deps_.transport,
       .metrics = deps_.metrics,
       .switchboard = deps_.switchboard,
       .queue = queue_,
       .pool = pool_,
       .launcher = deps_.launcher,
       .processes = processes_,
       .worker_of = worker_of_,
       .deaths = deaths_,
       .jobs = jobs_,
       .groups = groups_,
       .detached = detached_,
       .contacts = contacts_,
       .follower = cluster_.follower(),
       .arguments = objects_.arguments(),
       .job_of_dead = [this](ProcessId process) { return ended_.JobOf(process); },
       .on_infeasible = [this](const LeaseSpec* spec,
                               const std::string& words) { events_.OnInfeasible(spec, words); }}};

  ForgottenLogs forgotten_logs_{
      {.clock = deps_.clock,
       .gcs = cluster_.gcs(),
       .logs = deps_.logs,
       .runs_entrypoint = [this](const std::string& id) { return entrypoints_.Has(id); }}};
  ActorKills actor_kills_{{.node = options_.node,
                           .transport = deps_.transport,
                           .gcs = cluster_.gcs(),
                           .processes = processes_}};
  StateQueries queries_;
  Sweeper sweeper_;
  NodeFigures figures_{{.deps = deps_,
                        .started_at = deps_.clock.Now(),
                        .view = view_,
                        .ledger = ledger_,
                        .queue = queue_,
                        .pool = pool_,
                        .processes = processes_,
                        .ended = ended_,
                        .groups = groups_,
                        .objects = objects_,
                        .gcs = cluster_.gcs(),
                        .sweeper = sweeper_}};
};

}  // namespace sheaf
