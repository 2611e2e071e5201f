// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "raylet/scheduling/lease_queue.h"

#include <algorithm>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "raylet/scheduling/lease_queue_parts.h"

namespace sheaf {
namespace {

void AddOnce(Capacity* capacity, std::vector<Capacity*>* capacities) {
  if (std::find(capacities->begin(), capacities->end(), capacity) == capacities->end())
    capacities->push_back(capacity);
}

// What its owner has for it next is another function: the leases that it got keep theirs.
void Rename(const std::string& name, Demand& demand) {
  if (name == demand.spec->name) return;
  auto spec = std::make_shared<LeaseSpec>(*demand.spec);
  spec->name = name;
  demand.spec = std::move(spec);
}

}  // namespace

LeaseQueue::LeaseQueue(const LeaseQueueOptions& options, ResourceLedger& ledger, ClusterView& view,
                       Random& random)
    : parts_(std::make_unique<LeaseQueueParts>(options, ledger, view, random)) {}

LeaseQueue::~LeaseQueue() = default;

std::vector<LeaseAction> LeaseQueue::TakeActions() { return parts_->actions.Take(); }

// ---- Demands ----

void LeaseQueue::OnDemand(ProcessId owner, const proto::LeaseDemand& message, Nanos now,
                          ArgumentBytes argument_bytes, NodeNumber via, uint32_t hops) {
  const DemandId id{owner, message.key(), via};
  Demand* demand = parts_->demands.Find(id);
  const bool comes = demand == nullptr;
  if (comes) {
    if (message.wanted() == 0) return;
    demand = AddDemand(id, message, hops);
    if (demand == nullptr) return;
  }
  if (demand->gone) return;
  if (message.wanted() > 0 && message.has_spec()) Rename(message.spec().name(), *demand);
  demand->backlog = message.backlog();
  demand->silent = false;
  demand->argument_bytes = std::move(argument_bytes);
  uint32_t wanted = std::min(message.wanted(), kMaxWanted);
  if (demand->spec->actor) {
    wanted = std::min(wanted, 1u);
  } else if (demand->spec->resources.empty()) {
    wanted = std::min(wanted, parts_->options.free_leases_max);
  }
  SetWanted(*demand, wanted, now);
  demand = parts_->demands.Find(id);
  if (demand == nullptr) return;
  if (comes && via != 0) {
    if (parts_->spillback.IsTooMuch(*demand)) parts_->server.GiveBack(*demand);
  } else if (message.wanted() == 0 && message.has_spec() && demand->held == 0) {
    parts_->server.Drop(*demand);  // With its spec: the owner does not use the key again.
  }
}

void LeaseQueue::OnGivenBack(ProcessId owner, uint64_t key, NodeNumber node, uint32_t hops,
                             uint32_t kept, bool unneeded, Nanos now) {
  DemandTable::Owned* owned = parts_->demands.OwnedBy(owner);
  if (owned == nullptr) return;
  for (Demand& demand : *owned) {
    if (demand.id.key != key ||
        !parts_->spillback.OnGivenBack(demand, node, hops, kept, unneeded)) {
      continue;
    }
    return SetWanted(demand, demand.wanted, now);  // What is missing now is looked for elsewhere.
  }
}

Demand* LeaseQueue::AddDemand(const DemandId& id, const proto::LeaseDemand& message,
                              uint32_t hops) {
  LeaseActions& actions = parts_->actions;
  if (!message.has_spec()) {
    actions.Refuse(id, ErrorKind::kInvalidArgument,
                   "the first demand of a key says what it asks for");
    return nullptr;
  }
  absl::StatusOr<LeaseSpec> spec = ParseLeaseSpec(message.spec());
  if (!spec.ok()) {
    actions.Refuse(id, ErrorKind::kInvalidArgument, std::string(spec.status().message()));
    return nullptr;
  }
  if (parts_->demands.HasMost(id.owner)) {
    actions.Refuse(id, ErrorKind::kPendingCallsLimit,
                   absl::StrCat(kMaxKeysPerOwner, " kinds of leases asked for by one process"));
    return nullptr;
  }
  Demand& demand = parts_->demands.Add(id, *std::move(spec), hops);
  parts_->spillback.OnAdded(demand);
  return &demand;
}

void LeaseQueue::SetWanted(Demand& demand, uint32_t wanted, Nanos now) {
  demand.wanted = wanted;
  const uint64_t have = uint64_t{demand.useful()} + demand.spillback;
  if (have > wanted)
    parts_->spillback.TakeBack(demand, std::min<uint64_t>(have - wanted, demand.spillback));
  if (demand.missing() > 0) {
    parts_->server.Enqueue(demand, now);
  } else {
    parts_->demands.Dequeue(demand);
  }
  Capacity& capacity = *demand.cls->capacity;
  ++capacity.version;
  if (wanted == 0 && demand.held == 0 && demand.ends_when_idle()) parts_->server.Drop(demand);
  parts_->server.Serve(capacity, now);
}

// ---- Leases ----

Demand* LeaseQueue::EraseLease(LeaseNumber number) {
  GrantedLease* lease = parts_->demands.FindLease(number);
  if (lease == nullptr) return nullptr;
  Demand* demand = lease->granted_to;
  lease->SetYielding(false);
  lease->SetComing(false);
  parts_->lending.OnEnded(*lease);
  parts_->ledger.Release(lease->allocation);
  parts_->demands.EraseLease(*lease);
  return demand;
}

void LeaseQueue::OnUnneeded(LeaseNumber number) {
  GrantedLease* lease = parts_->demands.FindLease(number);
  if (lease == nullptr || lease->revoked || lease->leaving || lease->demand.via == 0) return;
  Demand& demand = *lease->granted_to;
  if (demand.wanted < demand.useful()) return;
  const uint32_t stays = demand.useful() - 1 + demand.spillback;
  if (demand.wanted <= stays) return;
  demand.wanted = stays;
  parts_->demands.Dequeue(demand);
  parts_->actions.GiveBack(demand, /*unneeded=*/true);
}

void LeaseQueue::OnOwnerSilent(LeaseNumber number) {
  GrantedLease* lease = parts_->demands.FindLease(number);
  if (lease == nullptr) return;
  lease->granted_to->silent = true;
  parts_->demands.Dequeue(*lease->granted_to);
}

void LeaseQueue::OnOwnerSpoke(ProcessId owner, Nanos now) {
  DemandTable::Owned* owned = parts_->demands.OwnedBy(owner);
  if (owned == nullptr) return;
  std::vector<Capacity*> capacities;
  for (Demand& demand : *owned) {
    if (!std::exchange(demand.silent, false) || demand.missing() == 0) continue;
    parts_->server.Enqueue(demand, now);
    Capacity* capacity = demand.cls->capacity;
    ++capacity->version;
    AddOnce(capacity, &capacities);
  }
  for (Capacity* capacity : capacities) parts_->server.Serve(*capacity, now);
}

bool LeaseQueue::OnReturn(LeaseNumber lease, Nanos now) {
  Demand* demand = EraseLease(lease);
  if (demand == nullptr) return false;
  Capacity& capacity = *demand->cls->capacity;
  if (demand->spec->actor) demand->wanted = 0;
  if (demand->missing() > 0) {
    parts_->server.Enqueue(*demand, now);
  } else if (demand->held == 0 && demand->wanted == 0 && demand->ends_when_idle()) {
    parts_->server.Drop(*demand);
  }
  // If its bundle was returned, the node itself got this room.
  if (!capacity.is_node()) OnRoom(now);
  parts_->server.Serve(capacity, now);
  LendDue(now);
  return true;
}

void LeaseQueue::OnGrantFailed(LeaseNumber lease, ErrorKind error, const std::string& message,
                               Nanos now) {
  Demand* demand = EraseLease(lease);
  if (demand == nullptr) return;
  Capacity& capacity = *demand->cls->capacity;
  parts_->server.Refuse(*demand, error, message);
  if (!capacity.is_node()) OnRoom(now);  // As in OnReturn.
  parts_->server.Serve(capacity, now);
}

// Nobody is there any more to use what `demand` has or wants.
void LeaseQueue::LoseOwner(Demand& demand) {
  demand.gone = true;
  parts_->spillback.TakeBack(demand, demand.spillback);
  demand.wanted = 0;
  parts_->demands.Dequeue(demand);
  for (GrantedLease& lease : demand.leases) {
    if (!lease.leaving) parts_->revoker.End(lease, ErrorKind::kOwnerDied, "its owner is gone");
  }
  if (demand.held == 0) parts_->server.Drop(demand);
}

void LeaseQueue::OnOwnerGone(ProcessId owner, Nanos now) {
  DemandTable::Owned* owned = parts_->demands.OwnedBy(owner);
  if (owned == nullptr) return;
  std::vector<Demand*> lost;
  std::vector<Capacity*> capacities = {&parts_->demands.node()};
  for (Demand& demand : *owned) {
    lost.push_back(&demand);
    AddOnce(demand.cls->capacity, &capacities);
  }
  for (Demand* demand : lost) LoseOwner(*demand);
  for (Capacity* capacity : capacities) parts_->server.Serve(*capacity, now);
}

void LeaseQueue::OnBlocked(LeaseNumber number, Nanos now, bool awaits_admission) {
  GrantedLease* lease = parts_->demands.FindLease(number);
  if (lease == nullptr || lease->blocked_since != 0) return;
  parts_->lending.OnBlocked(*lease, now, awaits_admission);
  // What it waits for may be withheld in favour of somebody who waits for it.
  Capacity& capacity = lease->capacity();
  if (capacity.reserving != nullptr) parts_->server.Serve(capacity, now);
}

void LeaseQueue::OnUnblocked(LeaseNumber number, Nanos now) {
  GrantedLease* lease = parts_->demands.FindLease(number);
  if (lease == nullptr || lease->blocked_since == 0) return;
  if (parts_->lending.OnUnblocked(*lease)) parts_->server.SyncView();
  LendDue(now);
  Capacity& capacity = lease->capacity();
  if (parts_->ledger.AvailableIn(capacity.group).cpu() < 0) parts_->server.Serve(capacity, now);
}

void LeaseQueue::OnLeaving(LeaseNumber number, Nanos now) {
  GrantedLease* lease = parts_->demands.FindLease(number);
  if (lease == nullptr || lease->leaving) return;
  Demand& demand = *lease->granted_to;
  if (std::exchange(lease->revoked, false)) --demand.revoked;
  lease->leaving = true;
  ++demand.leaving;
  OnBlocked(number, now);
  if (demand.spec->actor) demand.wanted = 0;
  if (demand.missing() == 0) return;
  parts_->server.Enqueue(demand, now);
  parts_->server.Serve(*demand.cls->capacity, now);
}

void LeaseQueue::LendDue(Nanos now) {
  for (Capacity* roomier : parts_->lending.LendDue(now)) parts_->server.Serve(*roomier, now);
}

// ---- The world around ----

void LeaseQueue::OnClusterChanged(Nanos now) {
  parts_->demands.OnClusterChanged();
  const auto is_dead = [&view = parts_->view](NodeNumber node) {
    if (node == 0 || node == view.local) return false;
    const NodeView* seen = view.Find(node);
    return seen == nullptr || !seen->alive;
  };
  const auto has_lost_its_owner = [&is_dead](const DemandId& id) {
    return is_dead(id.via) || is_dead(id.owner.node);
  };
  std::vector<DemandId> touched;
  if (parts_->spillback.AnyOf(is_dead)) {
    parts_->demands.ForEach([&](const Demand& demand) {
      if (has_lost_its_owner(demand.id) ||
          std::any_of(demand.shares.begin(), demand.shares.end(),
                      [&](const auto& share) { return is_dead(share.first); })) {
        touched.push_back(demand.id);
      }
    });
  }
  std::sort(touched.begin(), touched.end());
  for (const DemandId& id : touched) {
    Demand* demand = parts_->demands.Find(id);
    if (demand == nullptr) continue;  // Went with one before it.
    Capacity& capacity = *demand->cls->capacity;
    const auto shares = demand->shares;
    for (const auto& [node, share] : shares) {
      if (is_dead(node)) parts_->spillback.SetShare(*demand, node, 0);
    }
    if (has_lost_its_owner(id)) {
      LoseOwner(*demand);
    } else if (demand->missing() > 0) {
      parts_->server.Enqueue(*demand, now);
    }
    parts_->server.Serve(capacity, now);
  }
  OnRoom(now);
}

void LeaseQueue::OnDraining(Nanos now) {
  parts_->revoker.AskForAll();
  OnClusterChanged(now);
}

void LeaseQueue::OnGroupChanged(PlacementGroupId group, Nanos now) {
  Capacity* capacity = parts_->demands.Find(group);
  if (capacity != nullptr && !capacity->is_node()) {
    const auto placed = parts_->view.groups.find(group);
    const bool removed = placed != parts_->view.groups.end() &&
                         placed->second.state == GroupPlacement::State::kRemoved;
    const auto& bundles = parts_->ledger.bundles();
    for (Demand& demand : capacity->holders) {
      for (GrantedLease& lease : demand.leases) {
        if (removed || !bundles.contains(lease.allocation.bundle.value_or(BundleId{})))
          parts_->revoker.End(lease, ErrorKind::kGroupRemoved,
                              removed ? "its placement group was removed"
                                      : "the bundles of its placement group are placed anew");
      }
    }
    parts_->server.Serve(*capacity, now);
  }
  OnRoom(now);
}

void LeaseQueue::OnRoom(Nanos now) { parts_->server.Serve(parts_->demands.node(), now); }

void LeaseQueue::SetGroupWaiting(std::optional<Resources> resources, Nanos now) {
  SchedulingClass& cls = parts_->demands.pending_group();
  Capacity& node = parts_->demands.node();
  if (!resources.has_value()) {
    if (!cls.waits()) return;
    cls.unlink();
    if (node.reserving == &cls) node.reserving = nullptr;
    return OnRoom(now);
  }
  if (cls.waits() && cls.spec->resources == *resources) return;
  ++node.version;
  auto spec = std::make_shared<LeaseSpec>();
  spec->resources = *std::move(resources);
  cls.spec = std::move(spec);
  cls.local = true;
  if (!cls.waits()) {
    cls.head_since = now;
    cls.overtaken = 0;
    cls.failures = 0;
    node.waiting.push_back(cls);
  }
  OnRoom(now);
}

void LeaseQueue::OnTick(Nanos now) {
  LendDue(now);
  parts_->server.OnTick(now);
}

Nanos LeaseQueue::NextTick() const {
  return std::min(parts_->server.NextTick(), parts_->lending.NextDue());
}

}  // namespace sheaf
