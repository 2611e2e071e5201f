// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The global control store: takes in requests, keeps the tables, tells subscribers, gives orders to
// raylets. Pure: one thread, no clock, disk or socket of its own; runs unchanged in tests/sim.
//
// After a start it has a new term on disk before it answers anything. If the disk names members, it
// then recovers: keys, jobs, names and functions are served at once, but questions about soft state
// and orders to raylets wait until all members have reported or are dead.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/clock.h"
#include "base/random.h"
#include "base/transport.h"
#include "gcs/actors/actor_placement.h"
#include "gcs/actors/actor_service.h"
#include "gcs/command_pipeline.h"
#include "gcs/events/cluster_events.h"
#include "gcs/gcs_operations.h"
#include "gcs/gcs_options.h"
#include "gcs/job_service.h"
#include "gcs/key_value_service.h"
#include "gcs/node_service.h"
#include "gcs/placement_groups/placement_group_service.h"
#include "gcs/publisher.h"
#include "gcs/storage/storage.h"
#include "gcs/submissions/submission_service.h"

namespace sheaf {

// A copy; counts since the start.
struct GcsStats {
  // By operation: "kv_put". Those never asked are left out.
  std::vector<std::pair<std::string, uint64_t>> requests;
  std::array<uint64_t, kGcsTables> by_table{};  // The same, by GcsTable.
  uint64_t errors = 0;                          // Requests answered with an error.
  uint64_t malformed = 0;    // Frames and requests that were dropped or refused before any work.
  uint64_t repeats = 0;      // Requests that had been heard before.
  uint64_t deferred = 0;     // Requests that waited for the recovery.
  uint64_t commits = 0;      // Batches given to storage.
  uint64_t in_progress = 0;  // Commands not answered yet.
  uint64_t deltas = 0;
  uint64_t subscriptions = 0;
  uint64_t nodes = 0;                          // Members.
  uint64_t nodes_suspect = 0;                  // Of these: silent.
  uint64_t nodes_draining = 0;                 // Of these: draining, and not silent.
  uint64_t nodes_dead = 0;                     // Remembered ones.
  uint64_t node_deaths = 0;                    // Since the start; not of those that left.
  uint64_t jobs = 0;                           // Running.
  std::array<uint64_t, 3> jobs_told{};         // By JobInfo::State, since the start.
  std::array<uint64_t, 6> submissions{};       // By Submission::State: those there are,
  std::array<uint64_t, 6> submissions_told{};  // and since the start; PENDING: all accepted ones.
  uint64_t infeasible_actors = 0, infeasible_submissions = 0;  // Waiting; no node could take them.
  uint64_t actors_alive = 0;  // Named, detached, and those that their creators reported.
  uint64_t actors_pending = 0;
  uint64_t actors_restarting = 0;
  uint64_t actors_dead = 0;  // Of those remembered.
  uint64_t actor_restarts = 0;
  uint64_t groups = 0;
  uint64_t keys = 0;
  uint64_t key_value_bytes = 0;
  uint64_t term = 0;
  bool read_only = false;
  bool recovering = false;
};

class GcsService {
 public:
  // All but `options` outlive the service; the storage's completions come on the thread of the
  // other calls.
  GcsService(GcsOptions options, const Clock& clock, Storage& storage, Transport& transport,
             Random& random);
  GcsService(const GcsService&) = delete;
  GcsService& operator=(const GcsService&) = delete;

  // Loads the tables and begins a term. kFailedPrecondition: the storage belongs to another
  // cluster. kDataLoss.
  absl::Status Start();
  // `from` is the raylet that hands the frame over, or {0, k} while it has no number. Never fails:
  // what is wrong is dropped or refused.
  void OnFrame(ProcessId from, const Frame& frame);
  // To be called every 100 ms or so.
  void Tick();

  GcsStats Stats() const;
  const std::string& cluster_id() const { return cluster_id_; }
  uint64_t term() const { return term_; }
  // Where the nodes that are not dead are dialled; not those that nobody can dial.
  std::map<NodeNumber, std::string> Addresses() const;
  bool recovering() const { return recovering_; }

 private:
  using Body = proto::GcsRequest::BodyCase;
  static constexpr size_t kBodies = 128;  // Field numbers of the bodies are below.

  void CommitTerm();
  void OnTermDurable();
  void Handle(ProcessId from, proto::GcsRequest request);
  bool IsAllowed(const Call& call, Body body);
  void Dispatch(CallPtr call, const proto::GcsRequest& request);
  void DispatchActorOrGroup(CallPtr call, const proto::GcsRequest& request);
  void DispatchSubmission(CallPtr call, const proto::GcsRequest& request);
  void DispatchKeyValue(CallPtr call, const proto::GcsRequest& request);
  void Subscribe(const CallPtr& call, const proto::Subscribe& request);
  void OnNodeReport(const CallPtr& call, const proto::NodeReport& report);
  void OnProcessGone(ProcessId process, const proto::Death& death);
  void OnNodeDead(NodeNumber node);
  void OnJobEnded(JobNumber job);
  bool NeedsKeys(JobNumber job) const;
  void ReleaseKeys(JobNumber job);
  void CheckRecovered();

  const GcsOptions options_;
  const Clock& clock_;
  Storage& storage_;
  Transport& transport_;
  Random& random_;
  uint64_t term_ = 0;
  std::string cluster_id_;
  CommandPipeline pipeline_;
  Publisher publisher_;
  ClusterEvents events_;
  const GcsContext context_;
  NodeService nodes_;
  JobService jobs_;
  PlacementGroupService groups_;
  ActorPlacement placement_;
  ActorService actors_;
  SubmissionService submissions_;
  KeyValueService key_values_;

  bool serving_ = false;  // The term is durable.
  bool term_in_progress_ = false;
  bool recovering_ = true;
  Nanos recovery_ends_ = 0;  // At the latest.
  std::set<NodeNumber> unreported_;
  Nanos next_sweep_ = 0;
  std::deque<std::pair<ProcessId, proto::GcsRequest>> early_;     // Before the term is durable.
  std::deque<std::pair<ProcessId, proto::GcsRequest>> deferred_;  // For the end of the recovery.
  std::array<uint64_t, kBodies> requests_{};
  uint64_t malformed_ = 0;
  uint64_t deferrals_ = 0;
};

}  // namespace sheaf
