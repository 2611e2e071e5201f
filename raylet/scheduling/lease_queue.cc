// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "raylet/scheduling/lease_queue.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "raylet/scheduling/lease_queue_state.h"

namespace sheaf {

LeaseQueue::LeaseQueue(const LeaseQueueOptions& options, ResourceLedger& ledger, ClusterView& view,
                       Random& random)
    : options_(options),
      ledger_(ledger),
      view_(view),
      random_(random),
      node_pool_(std::make_unique<Pool>()),
      group_waiting_(std::make_unique<Class>()) {
  group_waiting_->pool = node_pool_.get();
  SyncView();
}

LeaseQueue::~LeaseQueue() = default;

std::vector<LeaseAction> LeaseQueue::TakeActions() { return std::exchange(actions_, {}); }

// ---- Demands ----

void LeaseQueue::OnDemand(ProcessId owner, const proto::LeaseDemand& demand, Nanos now,
                          ArgumentBytes argument_bytes, NodeNumber via, uint32_t hops) {
  const DemandId id{owner, demand.key(), via};
  const auto it = entries_.find(id);
  Entry* entry = it == entries_.end() ? nullptr : it->second.get();
  const bool comes = entry == nullptr;
  if (comes) {
    if (demand.wanted() == 0) {
      return;
    }
    entry = AddEntry(id, demand, hops);
    if (entry == nullptr) {
      return;
    }
  }
  if (entry->gone) {
    return;
  }
  entry->backlog = demand.backlog();
  entry->silent = false;
  entry->argument_bytes = std::move(argument_bytes);
  uint32_t wanted = std::min(demand.wanted(), kMaxWanted);
  if (entry->spec->actor) {
    wanted = std::min(wanted, 1u);
  } else if (entry->spec->resources.empty()) {
    wanted = std::min(wanted, options_.free_leases_max);
  }
  SetWanted(*entry, wanted, now);
  const auto made = entries_.find(id);
  if (made == entries_.end()) {
    return;
  }
  if (comes && via != 0) {
    RefuseToQueue(*made->second);
  } else if (demand.wanted() == 0 && demand.has_spec() && made->second->held == 0) {
    DropEntry(made->second.get());  // With its spec: the owner does not use the key again.
  }
}

void LeaseQueue::OnGivenBack(ProcessId owner, uint64_t key, NodeNumber node, uint32_t hops,
                             uint32_t kept, Nanos now) {
  const auto it = owners_.find(owner);
  if (it == owners_.end()) {
    return;
  }
  for (Entry& entry : it->second->entries) {
    if (entry.id.key != key || entry.hops + 1 != hops) {
      continue;
    }
    for (const auto& [at, share] : entry.shares) {
      if (at == node && share > kept) {
        SetShare(entry, node, kept);
        const auto at_node = view_.nodes.find(node);
        if (entry.missing() > 0 && entry.of->pool->is_node() && at_node != view_.nodes.end()) {
          Resources& available = at_node->second.available;  // It came back for want of room.
          entry.spec->resources.ForEach([&](std::string_view name, Amount amount) {
            available.Set(name, std::min(available.Get(name), amount - 1));
          });
        }
        SetWanted(entry, entry.wanted, now);  // What is missing now is looked for elsewhere.
        return;
      }
    }
  }
}

LeaseQueue::Entry* LeaseQueue::AddEntry(const DemandId& id, const proto::LeaseDemand& demand,
                                        uint32_t hops) {
  if (!demand.has_spec()) {
    Refuse(id, ErrorKind::kInvalidArgument, "the first demand of a key says what it asks for");
    return nullptr;
  }
  absl::StatusOr<LeaseSpec> spec = ParseLeaseSpec(demand.spec());
  if (!spec.ok()) {
    Refuse(id, ErrorKind::kInvalidArgument, std::string(spec.status().message()));
    return nullptr;
  }
  std::unique_ptr<Owner>& owner = owners_[id.owner];
  if (owner == nullptr) {
    owner = std::make_unique<Owner>();
  }
  if (owner->count >= kMaxKeysPerOwner) {
    Refuse(id, ErrorKind::kPendingCallsLimit,
           absl::StrCat(kMaxKeysPerOwner, " kinds of leases asked for by one process"));
    return nullptr;
  }
  auto made = std::make_unique<Entry>();
  Entry* entry = made.get();
  entry->id = id;
  entry->spec = std::make_shared<const LeaseSpec>(*std::move(spec));
  entry->hops = hops;
  entry->owner = owner.get();
  owner->entries.push_back(*entry);
  ++owner->count;

  std::unique_ptr<Class>& of = classes_[{entry->spec->resources, entry->spec->strategy}];
  if (of == nullptr) {
    of = std::make_unique<Class>();
    of->spec = entry->spec;
    of->pool = node_pool_.get();
    if (entry->spec->strategy.kind == StrategyKind::kPlacementGroup) {
      std::unique_ptr<Pool>& pool = group_pools_[entry->spec->strategy.group];
      if (pool == nullptr) {
        pool = std::make_unique<Pool>();
        pool->group = entry->spec->strategy.group;
      }
      of->pool = pool.get();
    }
    ++of->pool->classes;
  }
  entry->of = of.get();
  ++of->entries;
  for (const NodeNumber node : {id.via, id.owner.node}) {
    if (node != 0 && node != view_.local) {
      ++foreign_[node];
    }
  }
  entries_.emplace(id, std::move(made));
  return entry;
}

// `entry` holds no lease. Its pool stays until the next Serve.
void LeaseQueue::DropEntry(Entry* entry) {
  Dequeue(*entry);
  TakeShareBack(*entry, entry->handed_on);
  for (const NodeNumber node : {entry->id.via, entry->id.owner.node}) {
    if (const auto it = foreign_.find(node); it != foreign_.end() && --it->second == 0) {
      foreign_.erase(it);
    }
  }
  Class* of = entry->of;
  if (--of->entries == 0) {
    --of->pool->classes;
    const std::shared_ptr<const LeaseSpec> spec = of->spec;
    classes_.erase({spec->resources, spec->strategy});
  }
  const DemandId id = entry->id;
  Owner* owner = entry->owner;
  entries_.erase(id);
  if (--owner->count == 0) {
    owners_.erase(id.owner);
  }
}

void LeaseQueue::Enqueue(Entry& entry, Nanos now) {
  if (entry.waiting()) {
    return;
  }
  Class& of = *entry.of;
  entry.since = now;
  of.handed += entry.id.via != 0 ? 1 : 0;
  AppendTo(of, entry);
  if (!of.waits()) {
    of.pool->waiting.push_back(of);
    of.head_since = now;
    of.overtaken = 0;
  }
  if (of.infeasible && of.epoch == epoch_) {
    SayInfeasible(entry);
  }
}

void LeaseQueue::AppendTo(Class& of, Entry& entry) {
  if (entry.held == 0) {
    // The first to starve may ask for more than the others could.
    of.pool->version += of.starving.empty() ? 1 : 0;
    of.starving.push_back(entry);
  } else {
    of.waiting.push_back(entry);
  }
}

void LeaseQueue::Dequeue(Entry& entry) {
  if (!entry.waiting()) {
    return;
  }
  entry.WaitHook::unlink();
  entry.noticed = false;
  Class& of = *entry.of;
  of.handed -= entry.id.via != 0 ? 1 : 0;
  if (of.empty()) {
    of.unlink();
    if (of.pool->reserving == &of) {
      of.pool->reserving = nullptr;
    }
  }
}

void LeaseQueue::SetWanted(Entry& entry, uint32_t wanted, Nanos now) {
  entry.wanted = wanted;
  const uint64_t have = uint64_t{entry.held} + entry.handed_on;
  if (have > wanted) {
    TakeShareBack(entry, std::min<uint64_t>(have - wanted, entry.handed_on));
  }
  if (entry.missing() > 0) {
    Enqueue(entry, now);
  } else {
    Dequeue(entry);
  }
  Pool& pool = *entry.of->pool;
  ++pool.version;
  if (wanted == 0 && entry.held == 0 && (entry.spec->actor || entry.id.via != 0)) {
    DropEntry(&entry);
  }
  Serve(pool, now);
}

void LeaseQueue::TakeShareBack(Entry& entry, uint32_t count) {
  while (count > 0 && !entry.shares.empty()) {
    const auto [node, share] = entry.shares.back();
    const uint32_t less = std::min(share, count);
    count -= less;
    SetShare(entry, node, share - less);
  }
}

void LeaseQueue::Refuse(const DemandId& id, ErrorKind error, std::string words) {
  LeaseAction action;
  action.kind = LeaseAction::Kind::kRefuse;
  action.demand = id;
  action.error = error;
  action.words = std::move(words);
  actions_.push_back(std::move(action));
}

// Drops what `entry` waits for; what it holds it keeps. The caller serves its pool.
void LeaseQueue::RefuseEntry(Entry& entry, ErrorKind error, const std::string& words) {
  Refuse(entry.id, error, words);
  TakeShareBack(entry, entry.handed_on);
  entry.wanted = 0;
  Dequeue(entry);
  if (entry.held == 0 && (entry.spec->actor || entry.id.via != 0 || entry.gone)) {
    DropEntry(&entry);
  }
}

// ---- Leases ----

void LeaseQueue::LeavePool(Record& record) {
  Pool& pool = *record.entry->of->pool;
  if (std::exchange(record.yielding, false)) {
    pool.yielding -= record.allocation.resources;
  }
  if (std::exchange(record.coming, false)) {
    pool.coming -= record.allocation.resources;
  }
}

LeaseQueue::Entry* LeaseQueue::EraseRecord(LeaseNumber lease) {
  const auto it = leases_.find(lease);
  if (it == leases_.end()) {
    return nullptr;
  }
  Record& record = *it->second;
  Entry* entry = record.entry;
  LeavePool(record);
  record.SetLends(false);
  if (record.allocation.lent) {
    --lenders_;
  }
  ledger_.Release(record.allocation);
  --entry->held;
  entry->revoked -= record.revoked ? 1 : 0;
  leases_.erase(it);
  if (entry->leases.empty()) {
    entry->HoldHook::unlink();
    if (entry->waiting()) {  // Now it starves.
      entry->WaitHook::unlink();
      AppendTo(*entry->of, *entry);
    }
  }
  return entry;
}

void LeaseQueue::OnUnneeded(LeaseNumber lease) {
  const auto it = leases_.find(lease);
  if (it == leases_.end() || it->second->revoked || it->second->demand.via == 0) {
    return;
  }
  Entry& entry = *it->second->entry;
  if (entry.wanted < entry.held) {
    return;
  }
  const uint32_t here = entry.held - 1;
  if (entry.wanted > here + entry.handed_on) {
    entry.wanted = here + entry.handed_on;
    Dequeue(entry);
    SayKept(entry);
  }
}

void LeaseQueue::OnOwnerSilent(LeaseNumber lease) {
  const auto it = leases_.find(lease);
  if (it == leases_.end()) {
    return;
  }
  it->second->entry->silent = true;
  Dequeue(*it->second->entry);
}

void LeaseQueue::OnOwnerSpoke(ProcessId owner, Nanos now) {
  const auto it = owners_.find(owner);
  if (it == owners_.end()) {
    return;
  }
  std::vector<Pool*> pools;
  for (Entry& entry : it->second->entries) {
    if (!std::exchange(entry.silent, false) || entry.missing() == 0) {
      continue;
    }
    Enqueue(entry, now);
    Pool* pool = entry.of->pool;
    ++pool->version;
    if (std::find(pools.begin(), pools.end(), pool) == pools.end()) {
      pools.push_back(pool);
    }
  }
  for (Pool* pool : pools) {
    Serve(*pool, now);
  }
}

bool LeaseQueue::OnReturn(LeaseNumber lease, Nanos now) {
  Entry* entry = EraseRecord(lease);
  if (entry == nullptr) {
    return false;
  }
  Pool& pool = *entry->of->pool;
  if (entry->spec->actor) {
    entry->wanted = 0;
  }
  if (entry->missing() > 0) {
    Enqueue(*entry, now);
  } else if (entry->held == 0 && entry->wanted == 0 &&
             (entry->spec->actor || entry->gone || entry->id.via != 0)) {
    DropEntry(entry);
  }
  if (!pool.is_node()) {  // If its bundle was returned, the node itself got this room.
    Serve(*node_pool_, now);
  }
  Serve(pool, now);
  LendDue(now);
  return true;
}

void LeaseQueue::OnGrantFailed(LeaseNumber lease, ErrorKind error, const std::string& words,
                               Nanos now) {
  Entry* entry = EraseRecord(lease);
  if (entry == nullptr) {
    return;
  }
  Pool& pool = *entry->of->pool;
  RefuseEntry(*entry, error, words);
  if (!pool.is_node()) {  // As in OnReturn.
    Serve(*node_pool_, now);
  }
  Serve(pool, now);
}

void LeaseQueue::EndLease(Record& record, ErrorKind error, std::string words) {
  if (std::exchange(record.ending, true)) {
    return;
  }
  if (!std::exchange(record.coming, true)) {
    record.entry->of->pool->coming += record.allocation.resources;
  }
  LeaseAction action;
  action.kind = LeaseAction::Kind::kEnd;
  action.demand = record.demand;
  action.lease = record.number;
  action.error = error;
  action.words = std::move(words);
  actions_.push_back(std::move(action));
}

// Nobody is there any more to use what `entry` has or wants.
void LeaseQueue::LoseOwner(Entry& entry) {
  entry.gone = true;
  TakeShareBack(entry, entry.handed_on);
  entry.wanted = 0;
  Dequeue(entry);
  for (Record& record : entry.leases) {
    EndLease(record, ErrorKind::kOwnerDied, "its owner is gone");
  }
  if (entry.held == 0) {
    DropEntry(&entry);
  }
}

void LeaseQueue::OnOwnerGone(ProcessId owner, Nanos now) {
  const auto it = owners_.find(owner);
  if (it == owners_.end()) {
    return;
  }
  std::vector<Entry*> entries;
  std::vector<Pool*> pools = {node_pool_.get()};
  for (Entry& entry : it->second->entries) {
    entries.push_back(&entry);
    if (std::find(pools.begin(), pools.end(), entry.of->pool) == pools.end()) {
      pools.push_back(entry.of->pool);
    }
  }
  for (Entry* entry : entries) {
    LoseOwner(*entry);
  }
  for (Pool* pool : pools) {
    Serve(*pool, now);
  }
}

void LeaseQueue::Record::SetLends(bool now_lends) {
  if (std::exchange(lends, now_lends) == now_lends) {
    return;
  }
  const Amount cpu = allocation.resources.cpu();
  entry->lending += now_lends ? 1 : -1;
  entry->of->pool->lent_waiting += now_lends ? cpu : -cpu;
}

void LeaseQueue::OnBlocked(LeaseNumber lease, Nanos now, bool awaits_admission) {
  const auto it = leases_.find(lease);
  if (it == leases_.end() || it->second->blocked_since != 0) {
    return;
  }
  Record& record = *it->second;
  record.blocked_since = std::max<Nanos>(now, 1);
  record.awaits = awaits_admission;
  ++record.entry->of->pool->version;
  if (std::exchange(record.yielding, false)) {
    record.entry->of->pool->yielding -= record.allocation.resources;
  }
  if (record.allocation.resources.cpu() > 0) {
    blocked_.emplace_back(lease, record.blocked_since);
  }
  // What it waits for may be withheld in favour of somebody who waits for it.
  if (Pool& pool = *record.entry->of->pool; pool.reserving != nullptr) {
    Serve(pool, now);
  }
}

void LeaseQueue::OnUnblocked(LeaseNumber lease, Nanos now) {
  const auto it = leases_.find(lease);
  if (it == leases_.end() || it->second->blocked_since == 0) {
    return;
  }
  Record& record = *it->second;
  record.blocked_since = 0;
  record.SetLends(false);
  ++record.entry->of->pool->version;
  if (!record.spec->actor && !std::exchange(record.yielding, true)) {
    record.entry->of->pool->yielding += record.allocation.resources;
  }
  if (record.allocation.lent) {
    --lenders_;
    ledger_.Reclaim(record.allocation);
    SyncView();
  }
  LendDue(now);
  if (Pool& pool = *record.entry->of->pool; FreeIn(pool).cpu() < 0) {
    Serve(pool, now);
  }
}

void LeaseQueue::LendDue(Nanos now) {
  std::vector<Pool*> roomier;
  while (!blocked_.empty()) {
    const auto [lease, since] = blocked_.front();
    const auto it = leases_.find(lease);
    if (it != leases_.end() && it->second->blocked_since == since) {
      if (since + options_.lend_after > now || lenders_ >= options_.lenders_max) {
        break;
      }
      ledger_.Lend(it->second->allocation);
      it->second->SetLends(it->second->awaits);
      ++lenders_;
      Pool* pool = it->second->entry->of->pool;
      if (std::find(roomier.begin(), roomier.end(), pool) == roomier.end()) {
        roomier.push_back(pool);
      }
    }
    blocked_.pop_front();
  }
  for (Pool* pool : roomier) {
    Serve(*pool, now);
  }
}

// ---- The world around ----

void LeaseQueue::OnClusterChanged(Nanos now) {
  ++epoch_;
  const auto dead = [&](NodeNumber node) {
    if (node == 0 || node == view_.local) {
      return false;
    }
    const NodeView* seen = view_.Find(node);
    return seen == nullptr || !seen->alive;
  };
  std::vector<DemandId> touched;
  if (std::any_of(foreign_.begin(), foreign_.end(),
                  [&](const auto& entry) { return dead(entry.first); })) {
    for (const auto& [id, entry] : entries_) {
      if (dead(id.via) || dead(id.owner.node) ||
          std::any_of(entry->shares.begin(), entry->shares.end(),
                      [&](const auto& share) { return dead(share.first); })) {
        touched.push_back(id);
      }
    }
  }
  std::sort(touched.begin(), touched.end());
  for (const DemandId& id : touched) {
    const auto it = entries_.find(id);
    if (it == entries_.end()) {
      continue;  // Went with one before it.
    }
    Entry& entry = *it->second;
    Pool& pool = *entry.of->pool;
    const auto shares = entry.shares;
    for (const auto& [node, share] : shares) {
      if (dead(node)) {
        SetShare(entry, node, 0);
      }
    }
    if (dead(id.via) || dead(id.owner.node)) {
      LoseOwner(entry);
    } else if (entry.missing() > 0) {
      Enqueue(entry, now);
    }
    Serve(pool, now);
  }
  Serve(*node_pool_, now);
}

void LeaseQueue::OnGroupChanged(PlacementGroupId group, Nanos now) {
  if (const auto it = group_pools_.find(group); it != group_pools_.end()) {
    Pool& pool = *it->second;
    const auto placed = view_.groups.find(group);
    if (placed != view_.groups.end() && placed->second.state == GroupPlacement::State::kRemoved) {
      for (Entry& entry : pool.holders) {
        for (Record& record : entry.leases) {
          EndLease(record, ErrorKind::kGroupRemoved, "its placement group was removed");
        }
      }
    }
    Serve(pool, now);
  }
  Serve(*node_pool_, now);
}

void LeaseQueue::OnRoom(Nanos now) { Serve(*node_pool_, now); }

void LeaseQueue::SetGroupWaiting(std::optional<Resources> resources, Nanos now) {
  Class& of = *group_waiting_;
  if (!resources.has_value()) {
    if (of.waits()) {
      of.unlink();
      if (node_pool_->reserving == &of) {
        node_pool_->reserving = nullptr;
      }
      Serve(*node_pool_, now);
    }
    return;
  }
  if (of.waits() && of.spec->resources == *resources) {
    return;
  }
  ++node_pool_->version;
  auto spec = std::make_shared<LeaseSpec>();
  spec->resources = *std::move(resources);
  of.spec = std::move(spec);
  of.local = true;
  if (!of.waits()) {
    of.head_since = now;
    of.overtaken = 0;
    of.failures = 0;
    node_pool_->waiting.push_back(of);
  }
  Serve(*node_pool_, now);
}

void LeaseQueue::OnTick(Nanos now) {
  LendDue(now);
  while (!timers_.empty() && timers_.begin()->first <= now) {
    const PlacementGroupId group = timers_.begin()->second;
    timers_.erase(timers_.begin());
    const auto it = group_pools_.find(group);
    Pool& pool = group.is_nil() ? *node_pool_ : *it->second;
    pool.timer = kForever;
    Serve(pool, now);
  }
}

Nanos LeaseQueue::NextTick() const {
  Nanos next = timers_.empty() ? kForever : timers_.begin()->first;
  if (!blocked_.empty() && lenders_ < options_.lenders_max) {
    next = std::min(next, Deadline(blocked_.front().second, options_.lend_after));
  }
  return next;
}

}  // namespace sheaf
