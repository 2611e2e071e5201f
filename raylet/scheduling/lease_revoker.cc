// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "raylet/scheduling/lease_revoker.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace sheaf {
namespace {

constexpr int kWaitersLooked = 32;  // Per event.
// Of those that hold something already. One that holds nothing speaks for all of its class.
constexpr int kLookedInVain = 4;

void MarkRevoked(GrantedLease& lease, bool revoked) {
  lease.revoked = revoked;
  lease.granted_to->revoked += revoked ? 1 : -1;
}

bool IsOnlyOneWaiting(const SchedulingClass& cls) {
  const auto& waiting = cls.capacity->waiting;
  return !waiting.empty() && &waiting.front() == &cls && &waiting.back() == &cls;
}

// Whether the owner of `lease`, which is asked back, will not want another one for it.
bool IsMissedByNobody(const GrantedLease* lease) {
  const Demand& holder = *lease->granted_to;
  return holder.backlog == 0 || holder.useful() - holder.revoked >= holder.wanted;
}

}  // namespace

// Leases asked back too long ago are in long tasks: others are asked instead.
void LeaseRevoker::ForgetAsked(Capacity& capacity, Nanos now) {
  for (; !capacity.asked.empty(); capacity.asked.pop_front()) {
    const auto [number, at] = capacity.asked.front();
    GrantedLease* lease = demands_.FindLease(number);
    if (lease == nullptr || !lease->coming) continue;
    const Nanos until = Deadline(at, options_.patience);
    if (now < until) return capacity.WakeAt(until);
    lease->SetComing(false);
  }
}

void LeaseRevoker::AskForWaiting(Capacity& capacity, Nanos now) {
  ForgetAsked(capacity, now);
  if (capacity.holders.empty()) return;
  if (capacity.barren_version == capacity.version && now < capacity.barren_until)
    return capacity.WakeAt(capacity.barren_until);
  capacity.soonest = kForever;
  const size_t before = actions_.size();
  Resources free = ledger_.AvailableIn(capacity.group) + capacity.coming;
  int looked = 0;
  if (capacity.reserving != nullptr) AskForClass(*capacity.reserving, &free, &looked, now);
  for (SchedulingClass& cls : capacity.waiting) {
    if (looked >= kWaitersLooked) break;
    if (&cls != capacity.reserving) AskForClass(cls, &free, &looked, now);
  }
  capacity.WakeAt(capacity.soonest);
  if (actions_.size() == before && capacity.coming.empty()) {
    capacity.barren_version = capacity.version;
    capacity.barren_until = capacity.soonest;
  }
}

void LeaseRevoker::AskForDeficit(Capacity& capacity, Nanos now) {
  // Asked with each event: of the node without a copy of all that is free.
  Amount deficit =
      capacity.is_node() ? -ledger_.available().cpu() : -ledger_.AvailableIn(capacity.group).cpu();
  if (deficit <= 0) {
    capacity.overdrawn_since = 0;
    return;
  }
  if (capacity.overdrawn_since == 0) capacity.overdrawn_since = std::max<Nanos>(now, 1);
  const Nanos due = Deadline(capacity.overdrawn_since, options_.quantum);
  if (now < due) return capacity.WakeAt(due);
  ForgetAsked(capacity, now);
  deficit -= capacity.coming.cpu();
  while (deficit > 0) {
    GrantedLease* victim =
        ChooseVictim(capacity, nullptr, 0, Resources::Of(KnownResource::kCpu, deficit), now);
    if (victim == nullptr) return capacity.WakeAt(capacity.soonest);
    deficit -= victim->allocation.resources.cpu();
    MarkRevoked(*victim, true);
    Ask(*victim, now);
  }
}

void LeaseRevoker::Ask(GrantedLease& lease, Nanos now) {
  Capacity& capacity = lease.capacity();
  lease.SetComing(true);
  capacity.asked.emplace_back(lease.number, now);
  capacity.WakeAt(Deadline(now, options_.patience));
  actions_.Revoke(lease);
}

void LeaseRevoker::AskForClass(SchedulingClass& cls, Resources* free, int* looked, Nanos now) {
  if (demands_.IsInfeasible(cls) || (cls.capacity->is_node() && !cls.local)) return;
  if (cls.pending_group) {
    AskFor(cls, nullptr, 0, free, now);
    ++*looked;
    return;
  }
  for (const auto* list : {&cls.starving, &cls.waiting}) {
    int in_vain = 0;
    for (const Demand& waiter : *list) {
      uint32_t share = waiter.useful() - waiter.revoked;
      for (uint32_t missing = waiter.missing(); missing > 0; --missing, ++share) {
        if (++*looked > kWaitersLooked) return;
        if (AskFor(cls, &waiter, share, free, now)) continue;
        ++in_vain;
        break;
      }
      if (in_vain >= (list == &cls.starving ? 1 : kLookedInVain)) break;
    }
  }
}

// Asks as many leases back as one more lease for `waiter`, which has `share`, needs beyond `free`.
// false: not to be had.
bool LeaseRevoker::AskFor(SchedulingClass& cls, const Demand* waiter, uint32_t share,
                          Resources* free, Nanos now) {
  Capacity& capacity = *cls.capacity;
  const Resources& needed = cls.spec->resources;
  std::vector<GrantedLease*> victims;
  Resources then = *free;
  while (!then.Fits(needed)) {
    GrantedLease* victim = ChooseVictim(capacity, waiter, share, then.Missing(needed), now);
    if (victim == nullptr) break;
    then += victim->allocation.resources;
    MarkRevoked(*victim, true);
    victims.push_back(victim);
  }
  // Unless room is kept for it, what several give back may go to others before it is enough.
  const auto stays_free = [&] {
    return victims.size() <= 1 ||
           (IsOnlyOneWaiting(cls) && std::ranges::all_of(victims, IsMissedByNobody));
  };
  if (capacity.reserving != &cls && !(then.Fits(needed) && stays_free())) {
    for (GrantedLease* victim : victims) MarkRevoked(*victim, false);
    return false;
  }
  for (GrantedLease* victim : victims) Ask(*victim, now);
  *free = then;
  *free -= needed;
  return true;
}

void LeaseRevoker::AskForAll() {
  for (const Lease* out : demands_.Leases()) {
    GrantedLease& lease = *demands_.FindLease(out->number);
    if (lease.revoked || lease.ending || lease.leaving || lease.spec->actor ||
        !lease.capacity().is_node()) {
      continue;
    }
    MarkRevoked(lease, true);
    actions_.Revoke(lease);
  }
}

void LeaseRevoker::End(GrantedLease& lease, ErrorKind error, const char* message) {
  if (std::exchange(lease.ending, true)) return;
  lease.SetComing(true);
  actions_.End(lease, error, message);
}

// The lease that its owner can best do without: of a surplus, else of an owner without a backlog,
// else of the one with most leases if that is more than fair. A lease in its quantum is spared
// unless its owner has two more than the waiter.
GrantedLease* LeaseRevoker::ChooseVictim(Capacity& capacity, const Demand* waiter, uint32_t share,
                                         const Resources& missing, Nanos now) {
  GrantedLease* best = nullptr;
  std::pair<int, uint32_t> best_rank;
  for (Demand& holder : capacity.holders) {
    const uint32_t has = holder.useful() - holder.revoked;
    if (&holder == waiter || has == 0 || holder.spec->actor || holder.gone ||
        !missing.Overlaps(holder.spec->running)) {
      continue;
    }
    const bool surplus = has > holder.wanted;
    const bool idle = holder.backlog == 0;
    if (!surplus && !idle && has < share + 2 && share > 0) continue;
    const std::pair<int, uint32_t> rank = {surplus ? 2 : idle ? 1 : 0, has};
    if (best != nullptr && rank <= best_rank) continue;
    const auto oldest =
        std::find_if(holder.leases.begin(), holder.leases.end(), [](const GrantedLease& lease) {
          return !lease.revoked && !lease.ending && !lease.leaving && lease.blocked_since == 0;
        });
    if (oldest == holder.leases.end()) continue;
    const Nanos due = Deadline(oldest->granted_at, options_.quantum);
    if (!surplus && has < share + 2 && now < due) {
      capacity.soonest = std::min(capacity.soonest, due);
      continue;
    }
    best = &*oldest;
    best_rank = rank;
  }
  return best;
}

}  // namespace sheaf
