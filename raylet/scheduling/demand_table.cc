// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "raylet/scheduling/demand_table.h"

#include <algorithm>

namespace sheaf {

DemandTable::DemandTable()
    : node_(std::make_unique<Capacity>()), pending_group_(std::make_unique<SchedulingClass>()) {
  pending_group_->capacity = node_.get();
  pending_group_->pending_group = true;
}

Demand* DemandTable::Find(const DemandId& id) const {
  const auto found = demands_.find(id);
  return found == demands_.end() ? nullptr : found->second.get();
}

DemandTable::Owned* DemandTable::OwnedBy(ProcessId owner) const {
  const auto found = owners_.find(owner);
  return found == owners_.end() ? nullptr : &found->second->demands;
}

bool DemandTable::HasMost(ProcessId owner) const {
  const auto found = owners_.find(owner);
  return found != owners_.end() && found->second->count >= kMaxKeysPerOwner;
}

Demand& DemandTable::Add(const DemandId& id, LeaseSpec spec, uint32_t hops) {
  std::unique_ptr<DemandOwner>& owner = owners_[id.owner];
  if (owner == nullptr) owner = std::make_unique<DemandOwner>();
  auto made = std::make_unique<Demand>();
  Demand& demand = *made;
  demand.id = id;
  demand.spec = std::make_shared<const LeaseSpec>(std::move(spec));
  demand.hops = hops;
  demand.owner = owner.get();
  owner->demands.push_back(demand);
  ++owner->count;
  demand.cls = &ClassOf(demand.spec);
  ++demand.cls->demands;
  demands_.emplace(id, std::move(made));
  return demand;
}

SchedulingClass& DemandTable::ClassOf(const std::shared_ptr<const LeaseSpec>& spec) {
  std::unique_ptr<SchedulingClass>& cls = classes_[{spec->resources, spec->strategy}];
  if (cls != nullptr) return *cls;
  cls = std::make_unique<SchedulingClass>();
  cls->spec = spec;
  cls->capacity = node_.get();
  if (spec->strategy.kind == StrategyKind::kPlacementGroup) {
    std::unique_ptr<Capacity>& capacity = groups_[spec->strategy.group];
    if (capacity == nullptr) {
      capacity = std::make_unique<Capacity>();
      capacity->group = spec->strategy.group;
    }
    cls->capacity = capacity.get();
  }
  ++cls->capacity->classes;
  return *cls;
}

void DemandTable::Drop(Demand& demand) {
  SchedulingClass* cls = demand.cls;
  if (--cls->demands == 0) {
    --cls->capacity->classes;
    const std::shared_ptr<const LeaseSpec> spec = cls->spec;
    classes_.erase({spec->resources, spec->strategy});
  }
  const DemandId id = demand.id;
  DemandOwner* owner = demand.owner;
  demands_.erase(id);
  if (--owner->count == 0) owners_.erase(id.owner);
}

bool DemandTable::Enqueue(Demand& demand, Nanos now) {
  if (demand.waiting()) return false;
  SchedulingClass& cls = *demand.cls;
  demand.since = now;
  cls.from_others += demand.id.via != 0 ? 1 : 0;
  Append(demand);
  if (!cls.waits()) {
    cls.capacity->waiting.push_back(cls);
    cls.head_since = now;
    cls.overtaken = 0;
  }
  return true;
}

void DemandTable::Append(Demand& demand) {
  SchedulingClass& cls = *demand.cls;
  if (demand.useful() == 0) {
    // The first to starve may ask for more than the others could.
    cls.capacity->version += cls.starving.empty() ? 1 : 0;
    cls.starving.push_back(demand);
  } else {
    cls.waiting.push_back(demand);
  }
}

void DemandTable::Requeue(Demand& demand) {
  demand.WaitHook::unlink();
  Append(demand);
}

void DemandTable::Dequeue(Demand& demand) {
  if (!demand.waiting()) return;
  demand.WaitHook::unlink();
  demand.noticed = false;
  SchedulingClass& cls = *demand.cls;
  cls.from_others -= demand.id.via != 0 ? 1 : 0;
  if (!cls.empty()) return;
  cls.unlink();
  if (cls.capacity->reserving == &cls) cls.capacity->reserving = nullptr;
}

GrantedLease* DemandTable::FindLease(LeaseNumber number) const {
  const auto found = leases_.find(number);
  return found == leases_.end() ? nullptr : found->second.get();
}

GrantedLease& DemandTable::AddLease(Demand& demand, Lease lease) {
  auto made = std::make_unique<GrantedLease>();
  GrantedLease& granted = *made;
  static_cast<Lease&>(granted) = std::move(lease);
  granted.granted_to = &demand;
  leases_.emplace(granted.number, std::move(made));
  if (demand.leases.empty()) demand.cls->capacity->holders.push_back(demand);
  demand.leases.push_back(granted);
  ++demand.held;
  return granted;
}

void DemandTable::EraseLease(GrantedLease& lease) {
  Demand& demand = *lease.granted_to;
  --demand.held;
  demand.leaving -= lease.leaving ? 1 : 0;
  demand.revoked -= lease.revoked ? 1 : 0;
  leases_.erase(LeaseNumber{lease.number});
  if (!demand.leases.empty()) return;
  demand.HoldHook::unlink();
  if (demand.waiting()) Requeue(demand);  // Now it starves.
}

std::vector<const Lease*> DemandTable::Leases() const {
  std::vector<const Lease*> all;
  all.reserve(leases_.size());
  for (const auto& [number, lease] : leases_) all.push_back(lease.get());
  std::sort(all.begin(), all.end(),
            [](const Lease* a, const Lease* b) { return a->number < b->number; });
  return all;
}

Capacity* DemandTable::Find(PlacementGroupId group) const {
  if (group.is_nil()) return node_.get();
  const auto found = groups_.find(group);
  return found == groups_.end() ? nullptr : found->second.get();
}

void DemandTable::DropIfUnused(Capacity& capacity) {
  if (!capacity.is_node() && capacity.classes == 0) groups_.erase(PlacementGroupId(capacity.group));
}

std::vector<const Capacity*> DemandTable::Capacities() const {
  std::vector<const Capacity*> all = {node_.get()};
  for (const auto& [group, capacity] : groups_) all.push_back(capacity.get());
  std::sort(all.begin(), all.end(),
            [](const Capacity* a, const Capacity* b) { return a->group < b->group; });
  return all;
}

}  // namespace sheaf
