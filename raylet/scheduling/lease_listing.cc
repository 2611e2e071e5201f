// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What the lease queue tells those who ask: listings, metrics and `why`.
#include "raylet/scheduling/lease_queue.h"
#include "raylet/scheduling/lease_queue_parts.h"

namespace sheaf {

size_t LeaseQueue::leases_out() const { return parts_->demands.leases(); }
size_t LeaseQueue::lenders() const { return parts_->lending.lenders(); }
const LeaseQueueOptions& LeaseQueue::options() const { return parts_->options; }
const ResourceLedger& LeaseQueue::ledger() const { return parts_->ledger; }
const ClusterView& LeaseQueue::view() const { return parts_->view; }

const Lease* LeaseQueue::Find(LeaseNumber lease) const { return parts_->demands.FindLease(lease); }

const LeaseSpec* LeaseQueue::FindSpec(const DemandId& id) const {
  const Demand* demand = parts_->demands.Find(id);
  return demand == nullptr ? nullptr : demand->spec.get();
}

std::vector<const Lease*> LeaseQueue::Leases() const { return parts_->demands.Leases(); }

LeaseQueue::Pending LeaseQueue::PendingOf(const Demand& demand) const {
  const SchedulingClass& cls = *demand.cls;
  Pending pending;
  pending.demand = demand.id;
  pending.spec = demand.spec.get();
  pending.missing = demand.missing();
  pending.held = demand.held;
  pending.spillback = demand.spillback;
  pending.backlog = demand.backlog;
  pending.since = demand.since;
  pending.overtaken = cls.overtaken;
  pending.reserving = cls.capacity->reserving == &cls;
  pending.infeasible = parts_->demands.IsInfeasible(cls);
  pending.withheld = parts_->reservations.IsWithheldFrom(cls);
  return pending;
}

std::vector<LeaseQueue::Pending> LeaseQueue::AllPending() const {
  std::vector<Pending> all;
  for (const Capacity* capacity : parts_->demands.Capacities()) {
    for (const SchedulingClass& cls : capacity->waiting)
      cls.ForEachWaiting([&](const Demand& demand) { all.push_back(PendingOf(demand)); });
  }
  return all;
}

std::optional<LeaseQueue::Pending> LeaseQueue::FindPending(ProcessId owner, uint64_t key) const {
  const Demand* demand = parts_->demands.Find(DemandId{owner, key, 0});
  if (demand == nullptr || (demand->missing() == 0 && demand->spillback == 0)) return std::nullopt;
  return PendingOf(*demand);
}

}  // namespace sheaf
