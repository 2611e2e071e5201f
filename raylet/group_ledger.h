// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The placement groups that this raylet coordinates (those of its own processes, and detached ones given to it): where
// their bundles go, two-phase over all nodes concerned, until each group is created or removed. Pure state machine: events in, actions out.
// One thread. Bundles on the local node are prepared and committed in the ledger at once; other nodes by actions.
//
//   pending --all prepared--> created --a node dies--> pending (only the lost bundles are placed anew)
//      \________________________\___remove____________> gone
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/clock.h"
#include "base/ids.h"
#include "base/random.h"
#include "base/resources.h"
#include "proto/raylet.pb.h"
#include "raylet/cluster_view.h"
#include "raylet/resource_ledger.h"

namespace sheaf {

inline constexpr int kMaxBundles = 10'000;

enum class GroupPolicy : uint8_t { kPack = 0, kSpread = 1, kStrictPack = 2, kStrictSpread = 3 };

struct GroupSpec {
  PlacementGroupId id;
  std::vector<Resources> bundles;
  std::vector<LabelSelector> selectors;  // One per bundle, or none.
  GroupPolicy policy = GroupPolicy::kPack;
  std::string name;
  bool detached = false;
};
// kInvalidArgument: no bundles, an empty one, amounts out of range, a malformed id, selectors that are not one per bundle.
absl::StatusOr<GroupSpec> ParseGroupSpec(const proto::GroupRequest& request);

struct GroupAction {
  enum class Kind : uint8_t {
    kPrepare,  // Ask `node` to prepare `bundles` (all or none) of `group`; answer by OnPrepared.
    kCommit,   // Ask `node` to commit them; repeat until it acknowledged or died.
    kReturn,   // Ask `node` to give them back; the same.
    kState,    // Tell who watches: `state`, where its bundles are, `words`. view.groups is up to date.
  };
  Kind kind = Kind::kState;
  PlacementGroupId group;
  NodeNumber node = 0;
  std::vector<std::pair<BundleId, Resources>> bundles;
  proto::GroupState::State state = proto::GroupState::PENDING;
  std::vector<NodeNumber> bundle_nodes;  // kState CREATED.
  std::string words;
};

class GroupLedger {
 public:
  // All outlive it. view.here().available must equal the ledger's whenever an event comes in, and does afterwards.
  GroupLedger(ResourceLedger& ledger, ClusterView& view);
  ~GroupLedger();

  // A group of `creator`. A repeat with the same id only reports the state again.
  void OnCreate(GroupSpec spec, ProcessId creator, Nanos now);
  // false: unknown (never made, or removed already). Its bundles go back as ResourceLedger::ReturnBundle says; the caller ends
  // the leases in them (LeaseQueue::OnGroupChanged).
  bool OnRemove(PlacementGroupId group, Nanos now);
  // The process is gone: its groups that are not detached are removed.
  void OnOwnerGone(ProcessId creator, Nanos now);
  // `node` answered kPrepare. Late and repeated answers are harmless.
  void OnPrepared(PlacementGroupId group, NodeNumber node, bool ok, Nanos now);
  // view.nodes says that `node` is no longer alive: its bundles are placed anew.
  void OnNodeDead(NodeNumber node, Nanos now);
  // Room or nodes came: pending groups are tried again, oldest first.
  void OnRoom(Nanos now);

  std::vector<GroupAction> TakeActions();

  // What the oldest group that could be placed here lacks on the local node, for LeaseQueue::SetGroupWaiting.
  std::optional<Resources> WaitingHere() const;

  struct Group {
    GroupSpec spec;
    ProcessId creator;
    proto::GroupState::State state = proto::GroupState::PENDING;
    std::vector<NodeNumber> nodes;      // Per bundle; 0: not placed. While pending: where it is being prepared.
    std::vector<NodeNumber> preparing;  // Nodes whose answer is awaited.
    Nanos since = 0;                    // Pending since.
    bool infeasible_said = false;
  };
  const Group* Find(PlacementGroupId group) const;
  // By age. For listings.
  std::vector<const Group*> Groups() const;
  size_t pending() const;

 private:
  ResourceLedger& ledger_;
  ClusterView& view_;
  absl::flat_hash_map<PlacementGroupId, std::unique_ptr<Group>> groups_;
  std::deque<PlacementGroupId> pending_;
  std::vector<GroupAction> actions_;
};

// Where the bundles of `spec` could go now: one node each. `kept[i]` != 0: bundle i is there already. Resources are taken from the
// amounts available in `view`. nullopt: nowhere.
std::optional<std::vector<NodeNumber>> PlaceBundles(const GroupSpec& spec, const ClusterView& view,
                                                    const std::vector<NodeNumber>& kept);
// Whether it could be placed if all nodes were empty.
bool CouldEverPlace(const GroupSpec& spec, const ClusterView& view,
                    const std::vector<NodeNumber>& kept);

}  // namespace sheaf
