// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What the lease queue tells those who ask: listings, metrics and `why`.
#include <algorithm>

#include "raylet/scheduling/lease_queue.h"
#include "raylet/scheduling/lease_queue_state.h"

namespace sheaf {

size_t LeaseQueue::leases_out() const { return leases_.size(); }

const Lease* LeaseQueue::Find(LeaseNumber lease) const {
  const auto it = leases_.find(lease);
  return it == leases_.end() ? nullptr : it->second.get();
}

const LeaseSpec* LeaseQueue::FindSpec(const DemandId& demand) const {
  const auto it = entries_.find(demand);
  return it == entries_.end() ? nullptr : it->second->spec.get();
}

std::vector<const Lease*> LeaseQueue::Leases() const {
  std::vector<const Lease*> all;
  all.reserve(leases_.size());
  for (const auto& [number, record] : leases_) {
    all.push_back(record.get());
  }
  std::sort(all.begin(), all.end(),
            [](const Lease* a, const Lease* b) { return a->number < b->number; });
  return all;
}

LeaseQueue::Pending LeaseQueue::PendingOf(const Entry& entry) const {
  const Class& of = *entry.of;
  Pending pending;
  pending.demand = entry.id;
  pending.spec = entry.spec.get();
  pending.missing = entry.missing();
  pending.held = entry.held;
  pending.handed_on = entry.handed_on;
  pending.backlog = entry.backlog;
  pending.since = entry.since;
  pending.overtaken = of.overtaken;
  pending.reserving = of.pool->reserving == &of;
  pending.infeasible = of.infeasible && of.epoch == epoch_;
  pending.withheld = Withheld(of);
  return pending;
}

std::vector<LeaseQueue::Pending> LeaseQueue::AllPending() const {
  std::vector<const Pool*> pools = {node_pool_.get()};
  for (const auto& [group, pool] : group_pools_) {
    pools.push_back(pool.get());
  }
  std::sort(pools.begin(), pools.end(),
            [](const Pool* a, const Pool* b) { return a->group < b->group; });
  std::vector<Pending> all;
  for (const Pool* pool : pools) {
    for (const Class& of : pool->waiting) {
      of.ForEachWaiting([&](const Entry& entry) { all.push_back(PendingOf(entry)); });
    }
  }
  return all;
}

std::optional<LeaseQueue::Pending> LeaseQueue::FindPending(ProcessId owner, uint64_t key) const {
  const auto it = entries_.find(DemandId{owner, key, 0});
  if (it == entries_.end() || (it->second->missing() == 0 && it->second->handed_on == 0)) {
    return std::nullopt;
  }
  return PendingOf(*it->second);
}

}  // namespace sheaf
