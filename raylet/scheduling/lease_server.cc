// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "raylet/scheduling/lease_server.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"

namespace sheaf {
namespace {

// The next one that other nodes may get; nullptr: none.
Demand* FirstOfThisNode(SchedulingClass& cls) {
  for (auto* list : {&cls.starving, &cls.waiting}) {
    for (Demand& demand : *list) {
      if (demand.hops < kHopsToRoom) return &demand;
    }
  }
  return nullptr;
}

ErrorKind UnschedulableError(const Demand& demand) {
  return demand.spec->actor ? ErrorKind::kActorUnschedulable : ErrorKind::kTaskUnschedulable;
}

}  // namespace

void LeaseServer::Serve(Capacity& capacity, Nanos now) {
  capacity.next = kForever;
  deps_.revoker.AskForDeficit(capacity, now);
  if (!capacity.waiting.empty()) {
    const LeaseNumber before = last_lease_;
    do {
      ServeClasses(capacity, now);
    } while (!deps_.reservations.Keep(capacity, now));
    if (last_lease_ == before) ++capacity.version;  // There may be more room than before.
    deps_.reservations.Update(capacity, now);
    deps_.revoker.AskForWaiting(capacity, now);
  }
  SetTimer(capacity);
  SyncView();
  deps_.demands.DropIfUnused(capacity);
}

void LeaseServer::ServeClasses(Capacity& capacity, Nanos now) {
  bool again = true;
  while (again) {
    again = false;
    if (capacity.reserving != nullptr && !capacity.reserving->pending_group &&
        ServeOne(*capacity.reserving, now) != Served::kNo) {
      again = true;
      continue;
    }
    for (SchedulingClass& cls : capacity.waiting) {
      if (cls.pending_group || &cls == capacity.reserving || ServeOne(cls, now) == Served::kNo)
        continue;
      again = true;
      break;
    }
  }
}

void LeaseServer::SetTimer(Capacity& capacity) {
  if (capacity.timer == capacity.next) return;
  if (capacity.timer != kForever) timers_.erase({capacity.timer, capacity.group});
  capacity.timer = capacity.next;
  if (capacity.timer != kForever) timers_.insert({capacity.timer, capacity.group});
}

void LeaseServer::OnTick(Nanos now) {
  while (!timers_.empty() && timers_.begin()->first <= now) {
    Capacity* capacity = deps_.demands.Find(timers_.begin()->second);
    timers_.erase(timers_.begin());
    capacity->timer = kForever;
    Serve(*capacity, now);
  }
}

// Whether all that is left are CPUs that calls lend which wait for admission, some of `demand`'s
// among them.
bool LeaseServer::AwaitsLent(const Demand& demand) const {
  if (demand.lending == 0) return false;
  const Capacity& capacity = *demand.cls->capacity;
  const Amount cpu = demand.spec->running.cpu();
  return cpu > 0 && deps_.ledger.AvailableIn(capacity.group).cpu() - capacity.lent_waiting < cpu;
}

Demand& LeaseServer::HeadOf(SchedulingClass& cls) const {
  if (!cls.starving.empty()) return cls.starving.front();
  constexpr int kLooked = 8;
  Demand* head = nullptr;
  int looked = 0;
  for (Demand& demand : cls.waiting) {
    if (++looked > kLooked) break;
    const bool has_less =
        head == nullptr || demand.useful() - demand.revoked < head->useful() - head->revoked;
    if (has_less && !AwaitsLent(demand)) head = &demand;
  }
  return head != nullptr ? *head : cls.waiting.front();
}

Placement LeaseServer::Decide(SchedulingClass& cls, const Demand& head) {
  using Kind = Placement::Kind;
  ClusterView& view = deps_.view;
  const uint64_t epoch = deps_.demands.epoch();
  if (cls.capacity->is_node()) {
    if (cls.epoch != epoch) {
      cls.local = CouldHold(*cls.spec, view, view.local);
      cls.no_room_elsewhere = cls.local && view.nodes.size() == 1 ? epoch : 0;
      cls.search = {};
      cls.epoch = epoch;
    } else if (cls.infeasible) {
      return {Kind::kInfeasible};
    }
    if (cls.no_room_elsewhere == epoch)
      return cls.local ? Placement{Kind::kNode, view.local} : Placement{Kind::kWait};
    SyncView();
  }
  const bool awaits = AwaitsLent(head);
  if (awaits) {  // For it there is no more room here than without them; elsewhere perhaps.
    view.here().available -= Resources::Of(KnownResource::kCpu, cls.capacity->lent_waiting);
  }
  PolicyContext context;
  context.argument_bytes = head.argument_bytes.empty() ? nullptr : &head.argument_bytes;
  context.search = cls.epoch == epoch ? &cls.search : nullptr;
  context.last_spread = last_spread_;
  context.random = &deps_.random;
  const Placement placement = Place(*cls.spec, view, context);
  if (awaits) SyncView();
  return placement;
}

LeaseServer::Served LeaseServer::ServeOne(SchedulingClass& cls, Nanos now) {
  Demand& head = HeadOf(cls);
  const Strategy& strategy = cls.spec->strategy;
  const bool on_node = cls.capacity->is_node();
  const Placement placement = Decide(cls, head);
  switch (placement.kind) {
    case Placement::Kind::kGroupGone:
      return RefuseAll(cls, ErrorKind::kGroupRemoved,
                       absl::StrCat("placement group ", strategy.group.ToHex(), " was removed"));
    case Placement::Kind::kNodeGone:
      return RefuseAll(cls, UnschedulableError(head),
                       absl::StrCat("node ", strategy.node,
                                    ", which it is bound to, is dead or was never there"));
    case Placement::Kind::kNodeUnfit:
      return RefuseAll(cls, UnschedulableError(head), InfeasibleWords(*cls.spec, deps_.view));
    case Placement::Kind::kInfeasible:
      if (!on_node) {  // The bundles of a group never change.
        return RefuseAll(cls, UnschedulableError(head), InfeasibleWords(*cls.spec, deps_.view));
      }
      SetInfeasible(cls, true);
      return Served::kNo;
    case Placement::Kind::kWait:
      SetInfeasible(cls, false);
      if (placement.node != 0 && placement.node != deps_.view.local &&
          head.hops < (on_node ? kHopsToRoom : kMaxHops)) {
        return SpillTo(cls, head, placement.node, head.missing(), now);  // It queues there.
      }
      if (on_node) cls.no_room_elsewhere = deps_.demands.epoch();
      return Served::kNo;
    case Placement::Kind::kNode:
      SetInfeasible(cls, false);
      return on_node ? ServeOnNode(cls, head, placement.node, now)
                     : ServeInGroup(cls, head, placement.node, now);
  }
  return Served::kNo;
}

LeaseServer::Served LeaseServer::ServeOnNode(SchedulingClass& cls, Demand& head, NodeNumber node,
                                             Nanos now) {
  const bool here = node == deps_.view.local;
  const bool spreads = cls.spec->strategy.kind == StrategyKind::kSpread;
  const bool next_in_turn = here && head.hops == 0 && spreads;
  if ((here || (head.hops > 0 && cls.local)) && Grant(cls, head, now)) {
    if (next_in_turn) last_spread_ = deps_.view.local;
    return Served::kYes;
  }
  return here ? Served::kNo : ServeElsewhere(cls, head, node, now);
}

// `node` has room for `head`, or for another of its class that may go there.
LeaseServer::Served LeaseServer::ServeElsewhere(SchedulingClass& cls, Demand& head, NodeNumber node,
                                                Nanos now) {
  Demand* goes = &head;
  if (head.hops >= kHopsToRoom) {
    if (head.id.via != 0 && deps_.spillback.BackIsDue(head, now)) {
      GiveBack(head);
      return Served::kChanged;
    }
    goes = FirstOfThisNode(cls);
  }
  if (goes == nullptr) return Served::kNo;
  uint32_t count = 1;
  if (cls.spec->strategy.kind == StrategyKind::kSpread) {
    last_spread_ = node;
  } else {
    if (!deps_.spillback.MaySpread(*goes, now)) return Served::kNo;
    count = deps_.spillback.CountFor(*goes, deps_.view.nodes.at(node));
  }
  return SpillTo(cls, *goes, node, count, now);
}

LeaseServer::Served LeaseServer::ServeInGroup(SchedulingClass& cls, Demand& head, NodeNumber node,
                                              Nanos now) {
  const NodeNumber local = deps_.view.local;
  const bool here = node == local;
  if (here && Grant(cls, head, now)) return Served::kYes;
  const Strategy& strategy = cls.spec->strategy;
  std::vector<NodeNumber> others;
  const auto& nodes = deps_.view.groups.at(strategy.group).bundle_nodes;
  std::copy_if(nodes.begin(), nodes.end(), std::back_inserter(others),
               [local](NodeNumber number) { return number != local; });
  if (here && (others.empty() || strategy.bundle != kAnyBundle)) {
    if (deps_.ledger.CouldEverAcquireIn(strategy.group, strategy.bundle, cls.spec->resources))
      return Served::kNo;
    return RefuseAll(cls, UnschedulableError(head), InfeasibleWords(*cls.spec, deps_.view));
  }
  if (head.hops >= kMaxHops) return Served::kNo;
  // Any bundle, none here has room: one of the others, which queues it.
  const NodeNumber other = here ? others[deps_.random.Below(others.size())] : node;
  return SpillTo(cls, head, other, head.missing(), now);
}

// Takes what the head of `cls` asks for from the ledger.
bool LeaseServer::Grant(SchedulingClass& cls, Demand& demand, Nanos now) {
  if (deps_.reservations.IsWithheldFrom(cls) || AwaitsLent(demand)) return false;
  const LeaseSpec& spec = *demand.spec;
  Capacity& capacity = *cls.capacity;
  ResourceLedger& ledger = deps_.ledger;
  std::optional<Allocation> allocation;
  if (!capacity.is_node()) {
    if (ledger.CanAcquireIn(capacity.group, spec.strategy.bundle, spec.resources))
      allocation = ledger.AcquireIn(capacity.group, spec.strategy.bundle, spec.running);
  } else if (!spec.actor || ledger.CanAcquire(spec.resources)) {
    allocation = ledger.Acquire(spec.running);
  }
  if (!allocation.has_value()) return false;
  Lease lease;
  lease.number = ++last_lease_;
  lease.demand = demand.id;
  lease.spec = demand.spec;
  lease.allocation = *std::move(allocation);
  lease.granted_at = now;
  GrantedLease& granted = deps_.demands.AddLease(demand, std::move(lease));
  if (!spec.actor) granted.SetYielding(true);
  // One more to ask something back from.
  if (demand.held > 1 || demand.backlog == 0) ++capacity.version;
  for (SchedulingClass& passed : capacity.waiting) {
    if (&passed == &cls) break;
    ++passed.overtaken;
  }
  cls.overtaken = 0;
  cls.failures = 0;
  cls.head_since = now;
  if (capacity.reserving == &cls) capacity.reserving = nullptr;
  deps_.actions.Grant(granted);
  if (demand.missing() == 0) {
    deps_.demands.Dequeue(demand);
  } else {
    deps_.demands.Requeue(demand);
  }
  if (cls.waits()) {
    capacity.waiting.splice(capacity.waiting.end(), capacity.waiting,
                            capacity.waiting.iterator_to(cls));
  }
  return true;
}

LeaseServer::Served LeaseServer::SpillTo(SchedulingClass& cls, Demand& demand, NodeNumber node,
                                         uint32_t count, Nanos now) {
  deps_.spillback.Send(demand, node, count);
  cls.overtaken = 0;
  cls.head_since = now;
  if (demand.missing() == 0) {
    deps_.demands.Dequeue(demand);
  } else {
    deps_.demands.Requeue(demand);
  }
  return Served::kYes;
}

void LeaseServer::Enqueue(Demand& demand, Nanos now) {
  if (!deps_.demands.Enqueue(demand, now)) return;
  if (deps_.demands.IsInfeasible(*demand.cls)) SayInfeasible(demand);
}

void LeaseServer::Refuse(Demand& demand, ErrorKind error, const std::string& message) {
  deps_.actions.Refuse(demand.id, error, message);
  deps_.spillback.TakeBack(demand, demand.spillback);
  demand.wanted = 0;
  deps_.demands.Dequeue(demand);
  if (demand.held == 0 && demand.ends_when_idle()) Drop(demand);
}

void LeaseServer::Drop(Demand& demand) {
  deps_.demands.Dequeue(demand);
  deps_.spillback.TakeBack(demand, demand.spillback);
  deps_.spillback.OnDropped(demand);
  deps_.demands.Drop(demand);
}

void LeaseServer::GiveBack(Demand& demand) {
  deps_.spillback.GiveBack(demand);
  deps_.demands.Dequeue(demand);
  if (demand.wanted == 0 && demand.held == 0) Drop(demand);  // Leases that leave hold it.
}

LeaseServer::Served LeaseServer::RefuseAll(SchedulingClass& cls, ErrorKind error,
                                           const std::string& message) {
  std::vector<Demand*> demands;
  for (auto* list : {&cls.starving, &cls.waiting}) {
    for (Demand& demand : *list) demands.push_back(&demand);
  }
  for (Demand* demand : demands) Refuse(*demand, error, message);  // The last may take `cls` along.
  return Served::kChanged;
}

void LeaseServer::SetInfeasible(SchedulingClass& cls, bool infeasible) {
  cls.epoch = deps_.demands.epoch();
  if (std::exchange(cls.infeasible, infeasible) == infeasible) return;
  for (auto* list : {&cls.starving, &cls.waiting}) {
    for (Demand& demand : *list) {
      if (infeasible) {
        SayInfeasible(demand);
      } else {
        demand.noticed = false;
      }
    }
  }
}

void LeaseServer::SayInfeasible(Demand& demand) {
  if (std::exchange(demand.noticed, true)) return;
  deps_.actions.Notice(demand.id, InfeasibleWords(*demand.spec, deps_.view));
}

}  // namespace sheaf
