// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "raylet/scheduling/reservations.h"

#include <algorithm>
#include <cstdint>
#include <string_view>

namespace sheaf {
namespace {

constexpr uint32_t kMaxDoubling = 8;

}  // namespace

bool Reservations::Fits(const SchedulingClass& cls) const {
  const LeaseSpec& spec = *cls.spec;
  return cls.capacity->is_node()
             ? ledger_.CanAcquire(spec.resources)
             : ledger_.CanAcquireIn(cls.capacity->group, spec.strategy.bundle, spec.resources);
}

bool Reservations::IsWithheldFrom(const SchedulingClass& cls) const {
  const SchedulingClass* reserving = cls.capacity->reserving;
  if (reserving == nullptr || reserving == &cls) return false;
  if (!cls.capacity->is_node()) return true;
  bool takes = false;
  cls.spec->resources.ForEach([&](std::string_view name, Amount amount) {
    const Amount kept = reserving->spec->resources.Get(name);
    takes = takes || (kept > 0 && ledger_.available().Get(name) - amount < kept);
  });
  return takes;
}

// Whether `cls` will fit once all tasks that run are over. Actors and blocked workers do not count:
// nobody knows when those end, and what a blocked one waits for may be the very work that a
// reservation would hold up.
bool Reservations::IsObtainable(const SchedulingClass& cls) const {
  const Capacity& capacity = *cls.capacity;
  return (ledger_.AvailableIn(capacity.group) + capacity.yielding).Fits(cls.spec->resources);
}

bool Reservations::Keep(Capacity& capacity, Nanos now) {
  SchedulingClass* cls = capacity.reserving;
  if (cls == nullptr) return true;
  const Nanos until = Deadline(capacity.reserving_since, options_.reservation_limit);
  if (now < until && IsObtainable(*cls)) {
    capacity.WakeAt(until);
    return true;
  }
  if (now >= until) {  // It must wait longer for the next one.
    cls->failures = std::min(cls->failures + 1, kMaxDoubling);
    cls->overtaken = 0;
    cls->head_since = now;
  }
  capacity.reserving = nullptr;
  return false;
}

void Reservations::Update(Capacity& capacity, Nanos now) {
  if (capacity.reserving != nullptr) return;
  for (SchedulingClass& cls : capacity.waiting) {
    const bool starves = cls.pending_group || !cls.starving.empty();
    if (!starves || demands_.IsInfeasible(cls) || (capacity.is_node() && !cls.local) || Fits(cls))
      continue;
    const Nanos due = Deadline(cls.head_since, options_.reserve_after << cls.failures);
    if (cls.overtaken < uint64_t{options_.overtakes_max} << cls.failures && now < due) {
      capacity.WakeAt(due);
    } else if (IsObtainable(cls)) {
      capacity.reserving = &cls;
      ++capacity.version;
      capacity.reserving_since = now;
      capacity.WakeAt(Deadline(now, options_.reservation_limit));
      return;
    }
  }
}

}  // namespace sheaf
