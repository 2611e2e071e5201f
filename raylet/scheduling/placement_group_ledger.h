// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The placement groups that this raylet coordinates (those of its own processes, and detached ones
// given to it): where their bundles go, two-phase over all nodes concerned, until each group is
// created or removed. Pure state machine: events in, actions out. One thread. Bundles on the local
// node are prepared and committed in the ledger at once; other nodes by actions.
//
//   pending --all prepared--> created --a node dies--> pending   only the lost bundles are placed
//      \________________________\________remove____> gone        anew
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/ids.h"
#include "base/resources.h"
#include "proto/raylet.pb.h"
#include "raylet/scheduling/group_placement.h"
#include "raylet/scheduling/resource_ledger.h"
#include "scheduling/cluster_view.h"

namespace sheaf {

// Later demands for older ones wait as for unknown ones.
inline constexpr size_t kRemovedGroupsRemembered = 100'000;

// kInvalidArgument: no bundles, an empty one, amounts out of range, a malformed id, selectors that
// are not one per bundle.
absl::StatusOr<GroupSpec> ParseGroupSpec(const proto::GroupRequest& request);

struct GroupAction {
  enum class Kind : uint8_t {
    kPrepare,  // Ask `node` to prepare `bundles` (all or none) of `group`; answer by OnPrepared
               // with this `attempt`.
    kCommit,   // Ask `node` to commit them; repeat until it acknowledged or died.
    kReturn,   // Ask `node` to give them back; the same.
    kState,    // Tell who watches: `state`, where its bundles are, `message`. view.groups is up to
               // date.
  };
  Kind kind = Kind::kState;
  PlacementGroupId group;
  NodeNumber node = 0;
  uint32_t attempt = 0;
  std::vector<std::pair<BundleId, Resources>> bundles;
  proto::GroupState::State state = proto::GroupState::PENDING;
  std::vector<NodeNumber> bundle_nodes;  // kState CREATED.
  std::string message;
};

class PlacementGroupLedger {
 public:
  // All outlive it. view.here().available must equal the ledger's whenever an event comes in, and
  // does afterwards.
  PlacementGroupLedger(ResourceLedger& ledger, ClusterView& view);
  ~PlacementGroupLedger();

  // A group of `creator`. A repeat with the same id only reports the state again.
  void OnCreate(GroupSpec spec, ProcessId creator, Nanos now);
  // false: unknown (never made, or removed already). Its bundles go back as
  // ResourceLedger::ReturnBundle says; the caller ends the leases in them
  // (LeaseQueue::OnGroupChanged).
  bool OnRemove(PlacementGroupId group, Nanos now);
  // `group` will not be made: it was removed first, or the GCS refused its name. As if it had been
  // made and removed; nothing happens if it is there, or was removed before.
  void OnNeverMade(PlacementGroupId group, const std::string& message);
  // The process is gone: its groups that are not detached are removed.
  void OnOwnerGone(ProcessId creator, Nanos now);
  // `node` answered the kPrepare of `attempt`. Late and repeated answers are harmless.
  void OnPrepared(PlacementGroupId group, NodeNumber node, uint32_t attempt, bool ok, Nanos now);
  // view.nodes says that `node` is no longer alive: its bundles are placed anew.
  void OnNodeDead(NodeNumber node, Nanos now);
  // Room or nodes came: pending groups are tried again, oldest first.
  void OnRoom(Nanos now);

  std::vector<GroupAction> TakeActions();

  // What the oldest group that could be placed here lacks on the local node, for
  // LeaseQueue::SetGroupWaiting.
  std::optional<Resources> WaitingHere() const;

  struct Group {
    GroupSpec spec;
    ProcessId creator;
    proto::GroupState::State state = proto::GroupState::PENDING;
    // Per bundle; 0: not placed. While pending: where it is or is being prepared.
    std::vector<NodeNumber> nodes;
    std::vector<bool> committed;  // Per bundle: it is there already (of a group that lost others).
    std::vector<NodeNumber> preparing;  // Nodes whose answer is awaited.
    uint32_t attempt = 0;               // How often it was tried to prepare it.
    Nanos since = 0;                    // Pending since.
    uint64_t serial = 0;                // Older groups have lower ones.
  };
  const Group* Find(PlacementGroupId group) const;
  // It is placed or about to be placed by this raylet, and outlives its maker.
  bool IsDetached(PlacementGroupId group) const {
    const Group* const found = Find(group);
    return found != nullptr && found->spec.detached;
  }
  // By age. For listings.
  std::vector<const Group*> Groups() const;
  size_t pending() const { return pending_.size(); }

 private:
  void Try(Group& group, Nanos now);
  bool PrepareHere(Group& group);
  void Commit(Group& group);
  void GiveUp(Group& group);
  void Return(Group& group, NodeNumber node, bool committed_too);
  void Remove(Group& group, const std::string& message);
  void RememberRemoved(PlacementGroupId id);
  void SayState(const Group& group, std::string message);
  GroupAction ActionFor(const Group& group, GroupAction::Kind kind, NodeNumber node) const;
  void SyncView() { view_.here().available = ledger_.available(); }

  ResourceLedger& ledger_;
  ClusterView& view_;
  uint64_t last_serial_ = 0;
  absl::flat_hash_map<PlacementGroupId, std::unique_ptr<Group>> groups_;
  absl::btree_map<uint64_t, Group*> pending_;  // By age.
  std::deque<PlacementGroupId> removed_;       // Remembered in view_.groups.
  std::vector<GroupAction> actions_;
};

}  // namespace sheaf
