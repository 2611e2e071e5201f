// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Who places a group that this raylet does not: the raylet of its maker's node, while that lives.
// When that node is dead, or the GCS has taken the group from its raylet, the GCS is asked. It says
// that there is no such group, or which node it has a detached one placed by. Pure; one thread.
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "base/clock.h"
#include "base/ids.h"
#include "proto/gcs.pb.h"
#include "raylet/cluster/gcs_link.h"
#include "raylet/death_register.h"

namespace sheaf {

class GroupPlacers {
 public:
  static constexpr Nanos kAskAgainAfter = 1 * kSecond;  // While the GCS names no other live node.

  struct Deps {  // All outlive it.
    NodeNumber local;
    Clock& clock;
    GcsLink& gcs;
    const DeathRegister& deaths;
  };
  // The GCS has said who places the group now; 0: there is no such group.
  using Told = std::function<void(PlacementGroupId, NodeNumber)>;
  GroupPlacers(const Deps& deps, Told told) : deps_(deps), told_(std::move(told)) {}
  GroupPlacers(const GroupPlacers&) = delete;
  GroupPlacers& operator=(const GroupPlacers&) = delete;

  // The node whose raylet places `id`; 0: it is not known, or this one.
  NodeNumber Of(PlacementGroupId id) const;
  // The GCS is asked for it, or has named another node than its maker's.
  bool IsMoved(PlacementGroupId id) const { return moved_.contains(id); }
  // `node` places `id`, or did so last.
  bool IsBy(PlacementGroupId id, NodeNumber node) const;
  // Asks the GCS, which calls `told` later, never at once.
  void Ask(PlacementGroupId id);
  // This raylet places it now.
  void Forget(PlacementGroupId id) { moved_.erase(id); }
  void Tick();

 private:
  struct Moved {
    NodeNumber node = 0;         // As the GCS said last; 0: not yet.
    bool asked = false;          // The answer is on its way.
    Nanos ask_again = kForever;  // What it said names nobody to turn to.
  };
  void OnReply(PlacementGroupId id, const proto::GcsReply& reply);

  const Deps deps_;
  const Told told_;
  absl::btree_map<PlacementGroupId, Moved> moved_;
};

}  // namespace sheaf
