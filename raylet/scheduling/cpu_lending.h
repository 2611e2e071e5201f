// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Workers that wait in user code lend their CPUs to others, and have them again when they go on.
// Pure; one thread.
#pragma once

#include <cstddef>
#include <deque>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "raylet/scheduling/demand.h"
#include "raylet/scheduling/demand_table.h"
#include "raylet/scheduling/lease.h"
#include "raylet/scheduling/resource_ledger.h"

namespace sheaf {

class CpuLending {
 public:
  // All outlive this.
  CpuLending(const LeaseQueueOptions& options, ResourceLedger& ledger, const DemandTable& demands)
      : options_(options), ledger_(ledger), demands_(demands) {}

  // The worker of `lease` waits: its CPUs are lent after `lend_after`. `awaits_admission`: its own
  // demand gets none of them.
  void OnBlocked(GrantedLease& lease, Nanos now, bool awaits_admission);
  // It goes on. Whether it took CPUs back, which others may have.
  bool OnUnblocked(GrantedLease& lease);
  // It is over, and about to be released.
  void OnEnded(GrantedLease& lease);
  // Lends what is due. Where there is more room now, each once, in that order.
  std::vector<Capacity*> LendDue(Nanos now);
  // When LendDue is of use next; kForever: not before something happens.
  Nanos NextDue() const;

  size_t lenders() const { return lenders_; }

 private:
  const LeaseQueueOptions& options_;
  ResourceLedger& ledger_;
  const DemandTable& demands_;
  size_t lenders_ = 0;
  std::deque<std::pair<LeaseNumber, Nanos>> blocked_;  // Not lent yet, by time.
};

}  // namespace sheaf
