// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What a raylet itself can say to a state query: its workers, demands, store, placement groups, and
// the detached actors that it hosts. Reads all of the raylet's state, changes none of it.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/container/btree_map.h"
#include "base/ids.h"
#include "proto/raylet.pb.h"
#include "raylet/node_tables.h"
#include "raylet/objects/adoption.h"
#include "raylet/queries/state_asked.h"
#include "raylet/raylet_options.h"
#include "raylet/scheduling/lease_queue.h"
#include "raylet/scheduling/placement_group_ledger.h"
#include "raylet/scheduling/resource_ledger.h"
#include "raylet/workers/launcher.h"
#include "raylet/workers/worker_pool.h"
#include "scheduling/cluster_view.h"

namespace sheaf {

class StateRows {
 public:
  // All outlive it.
  struct Sources {
    const RayletOptions& options;
    Nanos started_at;
    std::function<bool()> is_drained;  // It takes no new work, and nothing runs here any more.
    const StoreServer& store;
    Switchboard& switchboard;
    const ClusterView& view;
    const ResourceLedger& ledger;
    const LeaseQueue& queue;
    const PlacementGroupLedger& groups;
    const WorkerPool& pool;
    const AttachedProcesses& processes;
    const NodeJobs& jobs;
    const DetachedActorTable& detached;
    const absl::btree_map<PlacementGroupId, proto::GroupState>& group_states;
    const AdoptedObjects& adopted;
    const WorkersOfLeases& worker_of;
  };
  explicit StateRows(const Sources& sources) : from_(sources) {}

  // What no other process or node would say.
  void Fill(StateAsked& asked) const;
  // What the GCS says better, for when it does not answer.
  void FillWithoutGcs(StateAsked& asked) const;
  // What is free on this node, of which the GCS hears with the next heartbeat.
  void FillAvailable(proto::NodeRow* row) const;
  // To what `owner`, of this node, says of its id: what its lease waits for.
  void AddReason(ProcessId owner, proto::StateAnswer& said) const;

 private:
  void FillStatus(StateAsked& asked) const;
  void FillDemand(StateAsked& asked) const;
  void FillStore(StateAsked& asked) const;
  void FillDigest(proto::NodeDigest& digest) const;
  void FillWorkers(StateAsked& asked) const;
  void FillGroups(StateAsked& asked) const;
  void FillDetachedActors(StateAsked& asked) const;
  void FillWhy(StateAsked& asked) const;
  void FillStacks(StateAsked& asked) const;
  // "f waits for 1 CPU: ...", and without the name.
  std::string NamedReasonOf(const LeaseQueue::Pending& pending) const;
  std::string ReasonOf(const LeaseQueue::Pending& pending) const;
  // Of what `owner` asks for under `key`; empty: it waits for nothing here.
  std::string ReasonOfLease(ProcessId owner, uint64_t key) const;
  std::string NameOf(const Lease& lease) const;  // Of what runs there.

  const Sources from_;
};

}  // namespace sheaf
