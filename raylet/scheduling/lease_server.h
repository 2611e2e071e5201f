// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Who of those that wait is served next, and where: a lease here, or a part of the demand to
// another node. Between the classes of a capacity the one that was served least recently comes
// first; a class that does not fit is overtaken until reservations.h keeps room for it. Pure; one
// thread.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "absl/container/btree_set.h"
#include "base/clock.h"
#include "base/error_kind.h"
#include "base/ids.h"
#include "base/random.h"
#include "raylet/scheduling/demand.h"
#include "raylet/scheduling/demand_table.h"
#include "raylet/scheduling/lease.h"
#include "raylet/scheduling/lease_actions.h"
#include "raylet/scheduling/lease_revoker.h"
#include "raylet/scheduling/reservations.h"
#include "raylet/scheduling/resource_ledger.h"
#include "raylet/scheduling/spillback.h"
#include "scheduling/cluster_view.h"
#include "scheduling/scheduling_policy.h"

namespace sheaf {

class LeaseServer {
 public:
  struct Deps {  // All outlive this.
    ResourceLedger& ledger;
    ClusterView& view;  // here().available is kept equal to the ledger's.
    Random& random;
    DemandTable& demands;
    LeaseActions& actions;
    Spillback& spillback;
    Reservations& reservations;
    LeaseRevoker& revoker;
  };

  explicit LeaseServer(Deps deps) : deps_(deps) { SyncView(); }

  // Grants and spills back whatever is possible now; then sees to those who wait. `capacity` may be
  // gone afterwards.
  void Serve(Capacity& capacity, Nanos now);
  // Serves what is due at `now`.
  void OnTick(Nanos now);
  Nanos NextTick() const { return timers_.empty() ? kForever : timers_.begin()->first; }
  void SyncView() { deps_.view.here().available = deps_.ledger.available(); }

  // --- Demands. The caller serves their capacity. ---
  // It waits from now on, if something is missing.
  void Enqueue(Demand& demand, Nanos now);
  // Drops what it waits for; what it holds it keeps.
  void Refuse(Demand& demand, ErrorKind error, const std::string& message);
  // It holds no lease.
  void Drop(Demand& demand);
  // What cannot be had here goes back to the node that sent it. What holds the room here may hold
  // it for ever (actors), so a demand that cannot go on from here does not wait here, either.
  void GiveBack(Demand& demand);

 private:
  enum class Served : uint8_t { kNo, kYes, kChanged };  // kChanged: classes came or went.

  void ServeClasses(Capacity& capacity, Nanos now);
  Served ServeOne(SchedulingClass& cls, Nanos now);
  Served ServeOnNode(SchedulingClass& cls, Demand& head, NodeNumber node, Nanos now);
  Served ServeElsewhere(SchedulingClass& cls, Demand& head, NodeNumber node, Nanos now);
  Served ServeInGroup(SchedulingClass& cls, Demand& head, NodeNumber node, Nanos now);
  Placement Decide(SchedulingClass& cls, const Demand& head);
  Demand& HeadOf(SchedulingClass& cls) const;
  bool AwaitsLent(const Demand& demand) const;
  bool Grant(SchedulingClass& cls, Demand& demand, Nanos now);
  Served SpillTo(SchedulingClass& cls, Demand& demand, NodeNumber node, uint32_t count, Nanos now);
  Served RefuseAll(SchedulingClass& cls, ErrorKind error, const std::string& message);
  void SetInfeasible(SchedulingClass& cls, bool infeasible);
  void SayInfeasible(Demand& demand);
  void SetTimer(Capacity& capacity);

  const Deps deps_;
  NodeNumber last_spread_ = 0;
  LeaseNumber last_lease_ = 0;
  absl::btree_set<std::pair<Nanos, PlacementGroupId>> timers_;  // Capacity::timer; nil: the node's.
};

}  // namespace sheaf
