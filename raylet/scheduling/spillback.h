// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What of each demand other nodes are asked for, and what goes back to nodes that asked this one.
// Pure; one thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/container/btree_map.h"
#include "base/clock.h"
#include "base/ids.h"
#include "raylet/scheduling/demand.h"
#include "raylet/scheduling/lease_actions.h"
#include "raylet/scheduling/resource_ledger.h"
#include "scheduling/cluster_view.h"

namespace sheaf {

class Spillback {
 public:
  // All outlive this. What goes to a node is subtracted from what it has free in `view`.
  Spillback(const ResourceLedger& ledger, ClusterView& view, LeaseActions& actions)
      : ledger_(ledger), view_(view), actions_(actions) {}

  // --- To other nodes. ---
  // How many leases of `demand`, which waits, to ask `node` for in one step: half of what has room
  // there, so that a queue spreads in few steps but evenly; all of it if the queue would fill the
  // cluster anyway.
  uint32_t CountFor(const Demand& demand, const NodeView& node) const;
  // Whether `demand`, which waits, may go to one more node now; if not, its capacity is served again
  // when it may. In a large cluster who asks all nodes at once is mostly one of many who do.
  bool MaySpread(Demand& demand, Nanos now) const;
  // Asks `node` for `count` more.
  void Send(Demand& demand, NodeNumber node, uint32_t count);
  // `node` is asked for `share` in all; 0: it is asked no more.
  void SetShare(Demand& demand, NodeNumber node, uint32_t share);
  // Asks other nodes for `count` less in all.
  void TakeBack(Demand& demand, uint32_t count);
  // `node`, which has `demand` for the `hops`-th time, keeps only `kept`, for want of room or since no
  // more is needed there. False: that is no news.
  bool OnGivenBack(Demand& demand, NodeNumber node, uint32_t hops, uint32_t kept, bool unneeded);

  // --- From other nodes. ---
  // `demand` came from another node just now. If nothing is free it queues here, so that what comes
  // free has work at once; but no more queue than the node holds when it is empty: many nodes send
  // their demands to the same few of which the last word was that they had room. Whether it is too
  // much.
  bool IsTooMuch(const Demand& demand) const;
  // Whether `demand`, which waits here while other nodes have room, goes back to who sent it. Not
  // before the word of that room is old enough for those nodes to have used it themselves, and one
  // at a time, or all would go and meet again at the same nodes.
  bool BackIsDue(const Demand& demand, Nanos now);
  // Only what is held here or asked for elsewhere stays; the sender is told.
  void GiveBack(Demand& demand);

  // --- Which nodes matter. ---
  // A demand came, or goes; by then nobody is asked for it.
  void OnAdded(const Demand& demand);
  void OnDropped(const Demand& demand);
  // Whether `is_dead` is true of a node that owns, sent or got a demand.
  template <class IsDead>
  bool AnyOf(const IsDead& is_dead) const {
    for (const auto& [node, demands] : foreign_) {
      if (is_dead(node)) return true;
    }
    return false;
  }

 private:
  void Count(NodeNumber node) { ++foreign_[node]; }
  void Uncount(NodeNumber node);

  const ResourceLedger& ledger_;
  ClusterView& view_;
  LeaseActions& actions_;
  absl::btree_map<NodeNumber, size_t> foreign_;  // Demands by other nodes.
};

}  // namespace sheaf
