// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// On which node a detached actor starts: the raylets' own policy (scheduling/), over what nodes say
// to have free, less what was ordered from each since. Pure; one thread.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/random.h"
#include "gcs/node_table.h"
#include "gcs/placement_groups/placement_group_table.h"
#include "proto/gcs.pb.h"
#include "scheduling/cluster_view.h"
#include "scheduling/lease_spec.h"

namespace sheaf {

class ActorPlacement {
 public:
  // All outlive this. `nodes` tells it of changes (NodeTable::Watch).
  ActorPlacement(NodeTable& nodes, const PlacementGroupTable& groups, Random& random);
  ActorPlacement(const ActorPlacement&) = delete;
  ActorPlacement& operator=(const ActorPlacement&) = delete;

  struct Choice {
    NodeNumber node = 0;      // 0: none now.
    bool has_room = false;    // Now, as far as is known; else it queues there.
    bool never = false;       // Nor ever: what it is bound to is gone.
    bool infeasible = false;  // Nor ever, of those that there are.
    std::string reason = {};  // Without a node: why.
  };
  // For an actor made on node `creator`. A node with room, else one that could hold it, where it
  // queues with what runs there. `avoid` found no room for it: another one if there is any.
  Choice Choose(const proto::LeaseSpec& lease, NodeNumber creator, NodeNumber avoid);

  // Whether it is for a group of which only a raylet can say whether it is there.
  bool OnlyRayletKnowsGroup(const proto::LeaseSpec& lease) const;

  // `id`, an actor's in binary or any other name, was ordered from `node`: what it will hold counts as taken there, until a heartbeat that
  // follows the node's report of it says what is free.
  void OnOrdered(const std::string& id, const proto::LeaseSpec& lease, NodeNumber node);
  void OnReported(const std::string& id, NodeNumber node);
  void OnGone(const std::string& id, NodeNumber node);  // It will not start there, or ended.
  void OnHeartbeat(NodeNumber node);
  void OnNodeDead(NodeNumber node) { ordered_.erase(node); }

 private:
  struct Ordered {
    Resources amount;
    bool reported = false;
  };
  void Refresh();
  Choice ChooseInGroup(const LeaseSpec& spec, NodeNumber avoid);
  NodeNumber NextThatCouldHold(const LeaseSpec& spec, NodeNumber avoid);

  const NodeTable& nodes_;
  const PlacementGroupTable& groups_;
  Random& random_;
  ClusterView view_;
  std::set<NodeNumber> changed_;  // To be read anew before the next choice.
  std::map<NodeNumber, std::map<std::string, Ordered>> ordered_;
  NodeNumber last_spread_ = 0;
  NodeNumber last_queued_ = 0;
};

}  // namespace sheaf
