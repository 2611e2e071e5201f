// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What the lease queue says is to be done, in order, until somebody takes it. Pure; one thread.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "raylet/scheduling/demand.h"
#include "raylet/scheduling/lease.h"

namespace sheaf {

class LeaseActions {
 public:
  void Grant(const Lease& lease) {
    Add(LeaseAction::Kind::kGrant, lease.demand).lease = lease.number;
  }
  void Revoke(const Lease& lease) {
    Add(LeaseAction::Kind::kRevoke, lease.demand).lease = lease.number;
  }
  void End(const Lease& lease, ErrorKind error, std::string message) {
    LeaseAction& action = Add(LeaseAction::Kind::kEnd, lease.demand);
    action.lease = lease.number;
    action.error = error;
    action.message = std::move(message);
  }
  void Refuse(const DemandId& demand, ErrorKind error, std::string message) {
    LeaseAction& action = Add(LeaseAction::Kind::kRefuse, demand);
    action.error = error;
    action.message = std::move(message);
  }
  void Notice(const DemandId& demand, std::string message) {
    Add(LeaseAction::Kind::kNotice, demand).message = std::move(message);
  }
  // `wanted` of `demand` is what `node` is asked for. Of one event, the last word counts.
  void Spillback(const Demand& demand, NodeNumber node, uint32_t wanted) {
    for (auto earlier = actions_.rbegin();
         earlier != actions_.rend() && earlier->kind == LeaseAction::Kind::kSpillback; ++earlier) {
      if (earlier->demand == demand.id && earlier->node == node) {
        earlier->wanted = wanted;
        return;
      }
    }
    LeaseAction& action = Add(LeaseAction::Kind::kSpillback, demand.id);
    action.node = node;
    action.wanted = wanted;
    action.hops = demand.hops + 1;
  }
  // What is wanted of `demand` is all that stays here: there is no room, or it is `unneeded`.
  void GiveBack(const Demand& demand, bool unneeded) {
    LeaseAction& action = Add(LeaseAction::Kind::kGiveBack, demand.id);
    action.node = demand.id.via;
    action.hops = demand.hops;
    action.wanted = demand.wanted;
    action.unneeded = unneeded;
  }

  std::vector<LeaseAction> Take() { return std::exchange(actions_, {}); }
  size_t size() const { return actions_.size(); }

 private:
  LeaseAction& Add(LeaseAction::Kind kind, const DemandId& demand) {
    LeaseAction& action = actions_.emplace_back();
    action.kind = kind;
    action.demand = demand;
    return action;
  }

  std::vector<LeaseAction> actions_;
};

}  // namespace sheaf
