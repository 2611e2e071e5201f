// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The parts of a lease queue, to be called one by one. For tests only.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "raylet/scheduling/lease_queue_for_test.h"
#include "raylet/scheduling/lease_queue_parts.h"

namespace sheaf::lease_queue_test {

// One node of `total`, number 1; `others` are numbered from 2 on.
struct LeaseParts {
  explicit LeaseParts(const std::string& total, std::vector<std::string> others = {},
                      LeaseQueueOptions options = {})
      : ledger(Parsed(total), {}),
        parts(options, ledger, Node::WithLocal(view, Parsed(total)), random) {
    NodeNumber number = 1;
    for (const std::string& other : others) {
      NodeView& node = view.nodes[++number];
      node.total = node.available = Parsed(other);
    }
  }

  Demand& Add(ProcessId owner, uint64_t key, const std::string& resources, uint32_t wanted = 1,
              NodeNumber via = 0, bool actor = false) {
    LeaseSpec spec;
    spec.resources = spec.running = Parsed(resources);
    spec.actor = actor;
    Demand& demand = parts.demands.Add({owner, key, via}, std::move(spec), via != 0 ? 1 : 0);
    demand.wanted = wanted;
    demand.backlog = 1'000'000;
    parts.spillback.OnAdded(demand);
    return demand;
  }
  // One lease, whatever is fair.
  GrantedLease& Grant(Demand& demand) {
    Lease lease;
    lease.number = ++last_lease;
    lease.demand = demand.id;
    lease.spec = demand.spec;
    lease.allocation = ledger.Acquire(demand.spec->running).value();
    lease.granted_at = now;
    GrantedLease& granted = parts.demands.AddLease(demand, std::move(lease));
    if (!demand.spec->actor) granted.SetYielding(true);
    return granted;
  }
  Capacity& node() { return parts.demands.node(); }
  std::vector<LeaseNumber> TakeRevoked() {
    std::vector<LeaseNumber> revoked;
    for (const LeaseAction& action : parts.actions.Take()) {
      if (action.kind == Kind::kRevoke) revoked.push_back(action.lease);
    }
    return revoked;
  }

  SeededRandom random{1};
  ResourceLedger ledger;
  ClusterView view;
  LeaseQueueParts parts;
  LeaseNumber last_lease = 0;
  Nanos now = kSecond;
};

}  // namespace sheaf::lease_queue_test
