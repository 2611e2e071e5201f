// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Placement groups, between the processes that make and watch them, the GCS, and the raylets of the
// nodes where their bundles are. Those of this node's processes end with the driver of their job, and
// are this raylet's alone; named and detached ones are registered with the GCS first, which has
// detached ones placed anew when they lose their place. What goes where the PlacementGroupLedger
// decides.
//
// Of groups over several nodes the raylet of the creator's node is the coordinator: it asks the
// others to prepare their bundles, then to commit them, and tells all that know the group of its
// state. When that node is dead, others ask the GCS for the next coordinator (GroupPlacers). Pure;
// one thread. A malformed frame is kInvalidArgument, and changes nothing.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
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
#include "raylet/jobs/group_placers.h"
#include "raylet/jobs/jobs.h"
#include "raylet/node_tables.h"
#include "raylet/scheduling/lease_queue.h"
#include "raylet/scheduling/placement_group_ledger.h"
#include "raylet/scheduling/resource_ledger.h"
#include "scheduling/cluster_view.h"

namespace sheaf {

class PlacementGroupCoordinator {
 public:
  // All outlive it.
  struct Deps {
    Clock& clock;
    Transport& transport;
    GcsLink& gcs;
    ResourceLedger& ledger;
    ClusterView& view;
    LeaseQueue& queue;
    const AttachedProcesses& processes;
    const DeathRegister& deaths;
    const Jobs& jobs;
  };
  explicit PlacementGroupCoordinator(const Deps& deps);
  PlacementGroupCoordinator(const PlacementGroupCoordinator&) = delete;
  PlacementGroupCoordinator& operator=(const PlacementGroupCoordinator&) = delete;

  // --- What processes and other raylets say.
  absl::Status OnRequest(ProcessId from, const Frame& frame);  // kGroupRequest
  // kGroupState, of a group that the raylet of another node coordinates.
  absl::Status OnState(const Frame& frame);
  // kPrepareBundles, kCommitBundles, kReturnBundles of a coordinator, or kBundlesPrepared for one.
  absl::Status OnBundles(ProcessId from, const Frame& frame);
  // --- What the GCS says.
  void OnPlace(const proto::PlaceGroup& message);
  void OnDrop(const proto::DropGroup& message);
  // --- What happens.
  void OnProcessGone(ProcessId process);
  void OnNodeDead(NodeNumber node);
  // There may be room here, or on another node, for what waits: it is tried by the next Settle.
  void OnRoom() { room_came_ = true; }
  // Carries out what the ledger has decided. False: there was nothing.
  bool Settle();
  void Tick() { placers_.Tick(); }
  // Compares what is known of `id` with what lives. True: there was something to repair.
  bool Sweep(PlacementGroupId id);

  // --- For others that place something in a group.
  // Another raylet coordinates it, or did so last.
  bool IsElsewhere(PlacementGroupId id) const;
  // Nobody knows of it: its raylet, which would, is this one.
  bool IsUnknown(PlacementGroupId id) const;
  // The group of `spec`, if there is one, is elsewhere and not known here yet: asks about it.
  void FollowGroupOf(const proto::LeaseSpec& spec);
  // Tells the GCS where it is: of one that is neither named nor detached it does not know, and is
  // to start an actor in it.
  void TellPlace(PlacementGroupId id);

  void FillReport(proto::NodeReport* report) const;
  const PlacementGroupLedger& ledger() const { return groups_; }
  // What was said last of each that this raylet coordinates.
  const absl::btree_map<PlacementGroupId, proto::GroupState>& states() const { return states_; }

 private:
  Nanos Now() const { return deps_.clock.Now(); }
  ProcessId Self() const { return RayletOf(deps_.view.local); }
  Channel& To(ProcessId process) { return deps_.transport.To(process); }
  absl::Status Create(ProcessId from, PlacementGroupId id, const proto::GroupRequest& request);
  void Remove(ProcessId from, PlacementGroupId id, const proto::GroupRequest& request);
  void Watch(ProcessId from, PlacementGroupId id);
  ProcessId CreatorOf(ProcessId maker) const;
  void OnRegistered(ProcessId creator, const GroupSpec& spec, const proto::GcsReply& reply);
  bool IsRegistering(PlacementGroupId id) const;
  void RemoveFromGcs(PlacementGroupId id);
  void Apply(const GroupAction& action);
  void OnStateChanged(const GroupAction& action);
  void TellWatchers(PlacementGroupId id, const proto::GroupState& state);
  void ReportToGcs(PlacementGroupId id, const proto::GroupState& state);
  void ForgetLater(PlacementGroupId id, GroupPlacement* placement);
  void AskAbout(PlacementGroupId id);
  void OnPlacer(PlacementGroupId id, NodeNumber node);
  void LosePlacer(PlacementGroupId id, const std::string& words);
  void End(PlacementGroupId id, const std::string& words);
  void SendBundles(const GroupAction& action, FrameKind kind);
  bool PrepareBundles(ProcessId coordinator, const std::vector<BundleId>& bundles,
                      const proto::Bundles& message);

  const Deps deps_;
  PlacementGroupLedger groups_;
  GroupPlacers placers_;                                                    // Of the others.
  absl::btree_map<PlacementGroupId, absl::btree_set<ProcessId>> watchers_;  // Told of changes.
  absl::btree_map<PlacementGroupId, proto::GroupState> states_;
  // Placement numbers of named and detached ones, as the GCS gave them.
  absl::btree_map<PlacementGroupId, uint32_t> registered_;
  // Of these the attached ones, as they were registered: a GCS that starts again has forgotten
  // them.
  absl::btree_map<PlacementGroupId, proto::GroupInfo> attached_;
  std::deque<PlacementGroupId> removed_elsewhere_;  // Groups of other raylets, the last removed.
  bool room_came_ = false;                          // Since they were last tried.
};

}  // namespace sheaf
