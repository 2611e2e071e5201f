// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Which leases are asked back when others wait, and which end at once. Those of a surplus go first,
// then those of owners without a backlog, then those of who has more than is fair. What was asked
// for stands in Capacity. Pure; one thread.
#pragma once

#include <cstdint>

#include "base/clock.h"
#include "base/error_kind.h"
#include "base/resources.h"
#include "raylet/scheduling/demand.h"
#include "raylet/scheduling/demand_table.h"
#include "raylet/scheduling/lease.h"
#include "raylet/scheduling/lease_actions.h"
#include "raylet/scheduling/resource_ledger.h"

namespace sheaf {

class LeaseRevoker {
 public:
  // All outlive this.
  LeaseRevoker(const LeaseQueueOptions& options, const ResourceLedger& ledger,
               const DemandTable& demands, LeaseActions& actions)
      : options_(options), ledger_(ledger), demands_(demands), actions_(actions) {}

  // CPUs that were lent and are in use again leave less than none. As many leases end with the
  // tasks that they run: their owners would go on with them for as long as they have work. What
  // idles goes first, and returns by itself within a quantum as a rule.
  void AskForDeficit(Capacity& capacity, Nanos now);
  // Asks for what those who wait in `capacity` need beyond what is free or was asked for.
  void AskForWaiting(Capacity& capacity, Nanos now);
  // Asks for all leases of tasks that the node itself gave.
  void AskForAll();
  // Ends `lease` at its worker, once.
  void End(GrantedLease& lease, ErrorKind error, const char* message);

 private:
  void AskForClass(SchedulingClass& cls, Resources* free, int* looked, Nanos now);
  bool AskFor(SchedulingClass& cls, const Demand* waiter, uint32_t share, Resources* free,
              Nanos now);
  void Ask(GrantedLease& lease, Nanos now);
  GrantedLease* ChooseVictim(Capacity& capacity, const Demand* waiter, uint32_t share,
                             const Resources& missing, Nanos now);
  void ForgetAsked(Capacity& capacity, Nanos now);

  const LeaseQueueOptions& options_;
  const ResourceLedger& ledger_;
  const DemandTable& demands_;
  LeaseActions& actions_;
};

}  // namespace sheaf
