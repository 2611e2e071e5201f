// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "raylet/scheduling/cpu_lending.h"

#include <algorithm>

namespace sheaf {

void CpuLending::OnBlocked(GrantedLease& lease, Nanos now, bool awaits_admission) {
  lease.blocked_since = std::max<Nanos>(now, 1);
  lease.awaits = awaits_admission;
  ++lease.capacity().version;
  lease.SetYielding(false);
  if (lease.allocation.resources.cpu() > 0)
    blocked_.emplace_back(lease.number, lease.blocked_since);
}

bool CpuLending::OnUnblocked(GrantedLease& lease) {
  lease.blocked_since = 0;
  lease.SetLends(false);
  ++lease.capacity().version;
  if (!lease.spec->actor) lease.SetYielding(true);
  if (!lease.allocation.lent) return false;
  --lenders_;
  ledger_.Reclaim(lease.allocation);
  return true;
}

void CpuLending::OnEnded(GrantedLease& lease) {
  lease.SetLends(false);
  if (lease.allocation.lent) --lenders_;
}

std::vector<Capacity*> CpuLending::LendDue(Nanos now) {
  std::vector<Capacity*> roomier;
  for (; !blocked_.empty(); blocked_.pop_front()) {
    const auto [number, since] = blocked_.front();
    GrantedLease* lease = demands_.FindLease(number);
    if (lease == nullptr || lease->blocked_since != since) continue;
    if (since + options_.lend_after > now || lenders_ >= options_.lenders_max) break;
    ledger_.Lend(lease->allocation);
    lease->SetLends(lease->awaits);
    ++lenders_;
    Capacity* capacity = &lease->capacity();
    if (std::find(roomier.begin(), roomier.end(), capacity) == roomier.end())
      roomier.push_back(capacity);
  }
  return roomier;
}

Nanos CpuLending::NextDue() const {
  if (blocked_.empty() || lenders_ >= options_.lenders_max) return kForever;
  return Deadline(blocked_.front().second, options_.lend_after);
}

}  // namespace sheaf
