// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Room that is kept free for one class of a capacity at a time, so that a large request is not
// overtaken for ever: what it needs is kept until it fits, unless an actor or a blocked worker
// holds it (nobody knows when those end), and for `reservation_limit` at most. What is kept stands
// in Capacity. Pure; one thread.
#pragma once

#include "base/clock.h"
#include "raylet/scheduling/demand.h"
#include "raylet/scheduling/demand_table.h"
#include "raylet/scheduling/lease.h"
#include "raylet/scheduling/resource_ledger.h"

namespace sheaf {

class Reservations {
 public:
  // All outlive this.
  Reservations(const LeaseQueueOptions& options, ResourceLedger& ledger, const DemandTable& demands)
      : options_(options), ledger_(ledger), demands_(demands) {}

  // Whether room is kept free for another class, and `cls` would take of it.
  bool IsWithheldFrom(const SchedulingClass& cls) const;
  // Ends the reservation in `capacity` that is of no use any more. False: there was one.
  bool Keep(Capacity& capacity, Nanos now);
  // Begins one if somebody has been overtaken too often, or waits for too long.
  void Update(Capacity& capacity, Nanos now);

 private:
  bool Fits(const SchedulingClass& cls) const;
  bool IsObtainable(const SchedulingClass& cls) const;

  const LeaseQueueOptions& options_;
  ResourceLedger& ledger_;
  const DemandTable& demands_;
};

}  // namespace sheaf
