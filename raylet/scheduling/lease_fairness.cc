// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The part of the lease queue that sees to those who wait: room kept free for a large request,
// leases asked back.
#include <algorithm>
#include <utility>
#include <vector>

#include "raylet/scheduling/lease_queue.h"
#include "raylet/scheduling/lease_queue_state.h"

namespace sheaf {
namespace {

constexpr int kWaitersLooked = 32;  // Per event.
// Of those that hold something already. One that holds nothing speaks for all of its class.
constexpr int kLookedInVain = 4;
constexpr uint32_t kMaxDoubling = 8;

}  // namespace

bool LeaseQueue::Fits(const Class& of) const {
  const LeaseSpec& spec = *of.spec;
  return of.pool->is_node()
             ? ledger_.CanAcquire(spec.resources)
             : ledger_.CanAcquireIn(of.pool->group, spec.strategy.bundle, spec.resources);
}

// Whether room is being kept free for another class, and `of` would take of it.
bool LeaseQueue::Withheld(const Class& of) const {
  const Class* reserving = of.pool->reserving;
  if (reserving == nullptr || reserving == &of) {
    return false;
  }
  if (!of.pool->is_node()) {
    return true;
  }
  bool takes = false;
  of.spec->resources.ForEach([&](std::string_view name, Amount amount) {
    const Amount kept = reserving->spec->resources.Get(name);
    takes = takes || (kept > 0 && ledger_.available().Get(name) - amount < kept);
  });
  return takes;
}

Resources LeaseQueue::FreeIn(const Pool& pool) const {
  if (pool.is_node()) {
    return ledger_.available();
  }
  Resources free;
  for (auto it = ledger_.bundles().lower_bound(BundleId{pool.group, 0});
       it != ledger_.bundles().end() && it->first.group == pool.group; ++it) {
    free += it->second.available;
  }
  return free;
}

// Whether `of` will fit once all tasks that run are over. Actors and blocked workers do not count:
// nobody knows when those end, and what a blocked one waits for may be the very work that a
// reservation would hold up.
bool LeaseQueue::Obtainable(const Class& of) const {
  return (FreeIn(*of.pool) + of.pool->yielding).Fits(of.spec->resources);
}

// false: room was being kept free, and is no more.
bool LeaseQueue::KeepsReservation(Pool& pool, Nanos now) {
  Class* of = pool.reserving;
  if (of == nullptr) {
    return true;
  }
  const Nanos until = Deadline(pool.reserving_since, options_.reservation_limit);
  if (now < until && Obtainable(*of)) {
    pool.next = std::min(pool.next, until);
    return true;
  }
  if (now >= until) {  // It must wait longer for the next one.
    of->failures = std::min(of->failures + 1, kMaxDoubling);
    of->overtaken = 0;
    of->head_since = now;
  }
  pool.reserving = nullptr;
  return false;
}

void LeaseQueue::UpdateReservation(Pool& pool, Nanos now) {
  if (pool.reserving != nullptr) {
    return;
  }
  for (Class& of : pool.waiting) {
    const bool starves = &of == group_waiting_.get() || !of.starving.empty();
    if (!starves || (of.infeasible && of.epoch == epoch_) || (pool.is_node() && !of.local) ||
        Fits(of)) {
      continue;
    }
    const Nanos due = Deadline(of.head_since, options_.reserve_after << of.failures);
    if (of.overtaken < uint64_t{options_.overtakes_max} << of.failures && now < due) {
      pool.next = std::min(pool.next, due);
    } else if (Obtainable(of)) {
      pool.reserving = &of;
      ++pool.version;
      pool.reserving_since = now;
      pool.next = std::min(pool.next, Deadline(now, options_.reservation_limit));
      return;
    }
  }
}

// Leases asked back too long ago are in long tasks: others are asked instead.
void LeaseQueue::ForgetRevoked(Pool& pool, Nanos now) {
  while (!pool.asked.empty()) {
    const auto [lease, at] = pool.asked.front();
    const auto it = leases_.find(lease);
    const bool counts = it != leases_.end() && it->second->coming;
    if (counts && now < Deadline(at, options_.patience)) {
      pool.next = std::min(pool.next, Deadline(at, options_.patience));
      return;
    }
    if (counts) {
      it->second->coming = false;
      pool.coming -= it->second->allocation.resources;
    }
    pool.asked.pop_front();
  }
}

void LeaseQueue::AskBack(Pool& pool, Nanos now) {
  ForgetRevoked(pool, now);
  if (pool.holders.empty()) {
    return;
  }
  if (pool.barren_version == pool.version && now < pool.barren_until) {
    pool.next = std::min(pool.next, pool.barren_until);
    return;
  }
  pool.soonest = kForever;
  const size_t before = actions_.size();
  Resources free = FreeIn(pool) + pool.coming;
  int looked = 0;
  if (pool.reserving != nullptr) {
    AskForClass(pool, *pool.reserving, &free, &looked, now);
  }
  for (Class& of : pool.waiting) {
    if (looked >= kWaitersLooked) {
      break;
    }
    if (&of != pool.reserving) {
      AskForClass(pool, of, &free, &looked, now);
    }
  }
  pool.next = std::min(pool.next, pool.soonest);
  if (actions_.size() == before && pool.coming.empty()) {
    pool.barren_version = pool.version;
    pool.barren_until = pool.soonest;
  }
}

// CPUs that were lent and are in use again leave less than none. As many leases end with the tasks
// that they run: their owners would go on with them for as long as they have work. What idles goes
// first, and returns by itself within a quantum as a rule.
void LeaseQueue::AskForDeficit(Pool& pool, Nanos now) {
  // Asked with each event: of the node without a copy of all that is free.
  Amount deficit = pool.is_node() ? -ledger_.available().cpu() : -FreeIn(pool).cpu();
  if (deficit <= 0) {
    pool.overdrawn_since = 0;
    return;
  }
  if (pool.overdrawn_since == 0) {
    pool.overdrawn_since = std::max<Nanos>(now, 1);
  }
  const Nanos due = Deadline(pool.overdrawn_since, options_.quantum);
  if (now < due) {
    pool.next = std::min(pool.next, due);
    return;
  }
  ForgetRevoked(pool, now);
  deficit -= pool.coming.cpu();
  while (deficit > 0) {
    Record* victim =
        ChooseVictim(pool, nullptr, 0, Resources::Of(KnownResource::kCpu, deficit), now);
    if (victim == nullptr) {
      pool.next = std::min(pool.next, pool.soonest);
      break;
    }
    deficit -= victim->allocation.resources.cpu();
    victim->revoked = true;
    ++victim->entry->revoked;
    AskBackLease(pool, *victim, now);
  }
}

void LeaseQueue::AskBackLease(Pool& pool, Record& victim, Nanos now) {
  victim.coming = true;
  pool.coming += victim.allocation.resources;
  pool.asked.emplace_back(victim.number, now);
  pool.next = std::min(pool.next, Deadline(now, options_.patience));
  LeaseAction action;
  action.kind = LeaseAction::Kind::kRevoke;
  action.demand = victim.demand;
  action.lease = victim.number;
  actions_.push_back(std::move(action));
}

void LeaseQueue::AskForClass(Pool& pool, Class& of, Resources* free, int* looked, Nanos now) {
  if ((of.infeasible && of.epoch == epoch_) || (pool.is_node() && !of.local)) {
    return;
  }
  if (&of == group_waiting_.get()) {
    AskFor(pool, of, nullptr, 0, free, now);
    ++*looked;
    return;
  }
  for (const auto* list : {&of.starving, &of.waiting}) {
    int in_vain = 0;
    for (const Entry& waiter : *list) {
      uint32_t share = waiter.held - waiter.revoked;
      for (uint32_t missing = waiter.missing(); missing > 0; --missing, ++share) {
        if (++*looked > kWaitersLooked) {
          return;
        }
        if (!AskFor(pool, of, &waiter, share, free, now)) {
          ++in_vain;
          break;
        }
      }
      if (in_vain >= (list == &of.starving ? 1 : kLookedInVain)) {
        break;
      }
    }
  }
}

// Asks as many leases back as one more lease for `waiter`, which has `share`, needs beyond `free`.
// false: not to be had.
bool LeaseQueue::AskFor(Pool& pool, Class& of, const Entry* waiter, uint32_t share, Resources* free,
                        Nanos now) {
  const Resources& needed = of.spec->resources;
  std::vector<Record*> victims;
  Resources then = *free;
  while (!then.Fits(needed)) {
    Record* victim = ChooseVictim(pool, waiter, share, then.Missing(needed), now);
    if (victim == nullptr) {
      break;
    }
    then += victim->allocation.resources;
    victim->revoked = true;
    ++victim->entry->revoked;
    victims.push_back(victim);
  }
  const bool reserving = pool.reserving == &of;
  // Unless room is kept for it, what several give back would go to others before it is enough.
  if (!then.Fits(needed) ? !reserving : victims.size() > 1 && !reserving) {
    for (Record* victim : victims) {
      victim->revoked = false;
      --victim->entry->revoked;
    }
    return false;
  }
  for (Record* victim : victims) {
    AskBackLease(pool, *victim, now);
  }
  *free = then;
  *free -= needed;
  return true;
}

void LeaseQueue::OnDraining(Nanos now) {
  for (const Lease* lease : Leases()) {
    Record& record = *leases_.at(lease->number);
    Entry& entry = *record.entry;
    if (record.revoked || record.ending || record.spec->actor || !entry.of->pool->is_node()) {
      continue;
    }
    record.revoked = true;
    ++entry.revoked;
    LeaseAction action;
    action.kind = LeaseAction::Kind::kRevoke;
    action.demand = record.demand;
    action.lease = record.number;
    actions_.push_back(std::move(action));
  }
  OnClusterChanged(now);
}

// The lease that its owner can best do without: of a surplus, else of an owner without a backlog,
// else of the one with most leases if that is more than fair. A lease in its quantum is spared
// unless its owner has two more than the waiter.
LeaseQueue::Record* LeaseQueue::ChooseVictim(Pool& pool, const Entry* waiter, uint32_t share,
                                             const Resources& missing, Nanos now) {
  Record* best = nullptr;
  std::pair<int, uint32_t> best_rank;
  for (Entry& entry : pool.holders) {
    const uint32_t has = entry.held - entry.revoked;
    if (&entry == waiter || has == 0 || entry.spec->actor || entry.gone ||
        !missing.Overlaps(entry.spec->running)) {
      continue;
    }
    const bool surplus = has > entry.wanted;
    const bool idle = entry.backlog == 0;
    if (!surplus && !idle && has < share + 2 && share > 0) {
      continue;
    }
    const std::pair<int, uint32_t> rank = {surplus ? 2 : idle ? 1 : 0, has};
    if (best != nullptr && rank <= best_rank) {
      continue;
    }
    const auto oldest = std::find_if(entry.leases.begin(), entry.leases.end(), [](const Record& r) {
      return !r.revoked && !r.ending && r.blocked_since == 0;
    });
    if (oldest == entry.leases.end()) {
      continue;
    }
    const Nanos due = Deadline(oldest->granted_at, options_.quantum);
    if (!surplus && has < share + 2 && now < due) {
      pool.soonest = std::min(pool.soonest, due);
      continue;
    }
    best = &*oldest;
    best_rank = rank;
  }
  return best;
}

}  // namespace sheaf
