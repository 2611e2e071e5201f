// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The part of the lease queue that decides who is next, and where.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "raylet/scheduling/lease_queue.h"
#include "raylet/scheduling/lease_queue_state.h"

namespace sheaf {
namespace {

// The GCS says what nodes have free about so often (gcs/node_service.cc).
constexpr Nanos kNewsPerNode = kSecond / 10'000;

}  // namespace

// Whether all that is left are CPUs that calls lend which wait for admission, some of `entry`'s
// among them.
bool LeaseQueue::AwaitsLent(const Entry& entry) const {
  if (entry.lending == 0) {
    return false;
  }
  const Pool& pool = *entry.of->pool;
  const Amount cpu = entry.spec->running.cpu();
  return cpu > 0 && FreeIn(pool).cpu() - pool.lent_waiting < cpu;
}

LeaseQueue::Entry& LeaseQueue::Class::Head(const LeaseQueue& queue) {
  if (!starving.empty()) {
    return starving.front();
  }
  constexpr int kLooked = 8;
  Entry* head = nullptr;
  int looked = 0;
  for (Entry& entry : waiting) {
    if (++looked > kLooked) {
      break;
    }
    const bool has_less =
        head == nullptr || entry.held - entry.revoked < head->held - head->revoked;
    if (has_less && !queue.AwaitsLent(entry)) {
      head = &entry;
    }
  }
  return head != nullptr ? *head : waiting.front();
}

LeaseQueue::Entry* LeaseQueue::Class::FirstOfThisNode() {
  for (auto* list : {&starving, &waiting}) {
    for (Entry& entry : *list) {
      if (entry.hops < kHopsToRoom) {
        return &entry;
      }
    }
  }
  return nullptr;
}

// Grants and hands on whatever is possible now; then sees to those who wait. `pool` may be gone
// afterwards.
void LeaseQueue::Serve(Pool& pool, Nanos now) {
  pool.next = kForever;
  AskForDeficit(pool, now);
  if (!pool.waiting.empty()) {
    const LeaseNumber before = last_lease_;
    do {
      ServeClasses(pool, now);
    } while (!KeepsReservation(pool, now));
    if (last_lease_ == before) {
      ++pool.version;  // There may be more room than before.
    }
    UpdateReservation(pool, now);
    AskBack(pool, now);
  }
  SetTimer(pool);
  SyncView();
  if (!pool.is_node() && pool.classes == 0) {
    group_pools_.erase(PlacementGroupId(pool.group));
  }
}

void LeaseQueue::ServeClasses(Pool& pool, Nanos now) {
  bool again = true;
  while (again) {
    again = false;
    if (pool.reserving != nullptr && pool.reserving != group_waiting_.get() &&
        ServeOne(*pool.reserving, now) != Served::kNo) {
      again = true;
      continue;
    }
    for (Class& of : pool.waiting) {
      if (&of != group_waiting_.get() && &of != pool.reserving &&
          ServeOne(of, now) != Served::kNo) {
        again = true;
        break;
      }
    }
  }
}

void LeaseQueue::SetTimer(Pool& pool) {
  if (pool.timer == pool.next) {
    return;
  }
  if (pool.timer != kForever) {
    timers_.erase({pool.timer, pool.group});
  }
  pool.timer = pool.next;
  if (pool.timer != kForever) {
    timers_.insert({pool.timer, pool.group});
  }
}

void LeaseQueue::SyncView() { view_.here().available = ledger_.available(); }

Placement LeaseQueue::Decide(Class& of, const Entry& head) {
  using Kind = Placement::Kind;
  const LeaseSpec& spec = *of.spec;
  if (of.pool->is_node()) {
    if (of.epoch != epoch_) {
      of.local = CouldHold(spec, view_, view_.local);
      of.no_room_elsewhere = of.local && view_.nodes.size() == 1 ? epoch_ : 0;
      SetInfeasible(of, of.infeasible);
    } else if (of.infeasible) {
      return {Kind::kInfeasible};
    }
    if (of.no_room_elsewhere == epoch_) {
      return of.local ? Placement{Kind::kNode, view_.local} : Placement{Kind::kWait};
    }
    SyncView();
  }
  const bool awaits = AwaitsLent(head);
  if (awaits) {  // For it there is no more room here than without them; elsewhere perhaps.
    view_.here().available -= Resources::Of(KnownResource::kCpu, of.pool->lent_waiting);
  }
  PolicyContext context;
  context.argument_bytes = head.argument_bytes.empty() ? nullptr : &head.argument_bytes;
  context.last_spread = last_spread_;
  context.random = &random_;
  const Placement placement = Place(spec, view_, context);
  if (awaits) {
    SyncView();
  }
  return placement;
}

// How many leases of `head` to hand to `node` in one step: half of what has room there, so that a
// queue is handed on in few steps but evenly; all of it if the queue would fill the cluster anyway.
uint32_t LeaseQueue::CountFor(const Entry& head, const NodeView& node) const {
  uint64_t room = kMaxWanted;
  head.spec->resources.ForEach([&](std::string_view name, Amount amount) {
    room = std::min(room, static_cast<uint64_t>(node.available.Get(name) / amount));
  });
  const uint64_t fills = room * view_.nodes.size();
  return static_cast<uint32_t>(
      std::clamp<uint64_t>(head.missing() >= fills ? room : room / 2, 1, head.missing()));
}

LeaseQueue::Served LeaseQueue::ServeOne(Class& of, Nanos now) {
  Entry& head = of.Head(*this);
  const LeaseSpec& spec = *of.spec;
  const ErrorKind unschedulable =
      head.spec->actor ? ErrorKind::kActorUnschedulable : ErrorKind::kTaskUnschedulable;
  const Placement placement = Decide(of, head);
  const bool may_hand_on = head.hops < (of.pool->is_node() ? kHopsToRoom : kMaxHops);
  switch (placement.kind) {
    case Placement::Kind::kGroupGone:
      RefuseAll(of, ErrorKind::kGroupRemoved,
                absl::StrCat("placement group ", spec.strategy.group.ToHex(), " was removed"));
      return Served::kChanged;
    case Placement::Kind::kNodeGone:
      RefuseAll(of, unschedulable,
                absl::StrCat("node ", spec.strategy.node,
                             ", which it is bound to, is dead or was never there"));
      return Served::kChanged;
    case Placement::Kind::kInfeasible:
      if (!of.pool->is_node()) {  // The bundles of a group never change.
        RefuseAll(of, unschedulable, InfeasibleWords(spec, view_));
        return Served::kChanged;
      }
      SetInfeasible(of, true);
      return Served::kNo;
    case Placement::Kind::kWait:
      SetInfeasible(of, false);
      if (placement.node != 0 && placement.node != view_.local && may_hand_on) {
        return HandOn(of, head, placement.node, head.missing(), now);  // It queues there.
      }
      if (of.pool->is_node()) {
        of.no_room_elsewhere = epoch_;
      }
      return Served::kNo;
    case Placement::Kind::kNode:
      break;
  }
  SetInfeasible(of, false);
  const bool here = placement.node == view_.local;
  if (of.pool->is_node()) {
    const bool next_in_turn = here && head.hops == 0 && spec.strategy.kind == StrategyKind::kSpread;
    if ((here || (head.hops > 0 && of.local)) && Grant(of, head, now)) {
      if (next_in_turn) last_spread_ = view_.local;
      return Served::kYes;
    }
    if (here) {
      return Served::kNo;
    }
    Entry* goes = &head;
    if (!may_hand_on) {
      if (head.id.via != 0 && BackIsDue(of, head, now)) {
        return GiveBack(head);
      }
      goes = of.FirstOfThisNode();
    }
    if (goes == nullptr) {
      return Served::kNo;
    }
    uint32_t count = 1;
    if (spec.strategy.kind == StrategyKind::kSpread) {
      last_spread_ = placement.node;
    } else {
      count = CountFor(*goes, view_.nodes.at(placement.node));
    }
    return HandOn(of, *goes, placement.node, count, now);
  }
  if (here && Grant(of, head, now)) {
    return Served::kYes;
  }
  const std::vector<NodeNumber>& nodes = view_.groups.at(spec.strategy.group).bundle_nodes;
  const bool all_here =
      std::all_of(nodes.begin(), nodes.end(), [&](NodeNumber node) { return node == view_.local; });
  if (here && (all_here || spec.strategy.bundle != kAnyBundle)) {
    if (ledger_.CouldEverAcquireIn(spec.strategy.group, spec.strategy.bundle, spec.resources)) {
      return Served::kNo;
    }
    RefuseAll(of, unschedulable, InfeasibleWords(spec, view_));
    return Served::kChanged;
  }
  if (!may_hand_on) {
    return Served::kNo;
  }
  NodeNumber other = placement.node;
  if (here) {  // Any bundle, none here has room: one of the others, which queues it.
    std::vector<NodeNumber> others;
    std::copy_if(nodes.begin(), nodes.end(), std::back_inserter(others),
                 [&](NodeNumber node) { return node != view_.local; });
    other = others[random_.Below(others.size())];
  }
  return HandOn(of, head, other, head.missing(), now);
}

// Takes what the head of `of` asks for from the ledger.
bool LeaseQueue::Grant(Class& of, Entry& entry, Nanos now) {
  if (Withheld(of) || AwaitsLent(entry)) {
    return false;
  }
  const LeaseSpec& spec = *entry.spec;
  Pool& pool = *of.pool;
  std::optional<Allocation> allocation;
  if (!pool.is_node()) {
    if (ledger_.CanAcquireIn(pool.group, spec.strategy.bundle, spec.resources)) {
      allocation = ledger_.AcquireIn(pool.group, spec.strategy.bundle, spec.running);
    }
  } else if (!spec.actor || ledger_.CanAcquire(spec.resources)) {
    allocation = ledger_.Acquire(spec.running);
  }
  if (!allocation.has_value()) {
    return false;
  }
  auto made = std::make_unique<Record>();
  Record& record = *made;
  record.number = ++last_lease_;
  record.demand = entry.id;
  record.spec = entry.spec;
  record.allocation = *std::move(allocation);
  record.granted_at = now;
  record.entry = &entry;
  if (!spec.actor) {
    record.yielding = true;
    pool.yielding += record.allocation.resources;
  }
  leases_.emplace(record.number, std::move(made));
  if (entry.leases.empty()) {
    pool.holders.push_back(entry);
  }
  entry.leases.push_back(record);
  ++entry.held;
  if (entry.held > 1 || entry.backlog == 0) {
    ++pool.version;  // One more to ask something back from.
  }

  for (Class& passed : pool.waiting) {
    if (&passed == &of) {
      break;
    }
    ++passed.overtaken;
  }
  of.overtaken = 0;
  of.failures = 0;
  of.head_since = now;
  if (pool.reserving == &of) {
    pool.reserving = nullptr;
  }
  LeaseAction action;
  action.kind = LeaseAction::Kind::kGrant;
  action.demand = entry.id;
  action.lease = record.number;
  actions_.push_back(std::move(action));
  if (entry.missing() == 0) {
    Dequeue(entry);
  } else {
    entry.WaitHook::unlink();
    AppendTo(of, entry);
  }
  if (of.waits()) {
    pool.waiting.splice(pool.waiting.end(), pool.waiting, pool.waiting.iterator_to(of));
  }
  return true;
}

LeaseQueue::Served LeaseQueue::HandOn(Class& of, Entry& entry, NodeNumber node, uint32_t count,
                                      Nanos now) {
  uint32_t share = 0;
  for (const auto& [at, already] : entry.shares) {
    share += at == node ? already : 0;
  }
  SetShare(entry, node, share + count);
  if (of.pool->is_node()) {  // Until the node reports anew.
    Resources& available = view_.nodes[node].available;
    of.spec->resources.ForEach([&](std::string_view name, Amount amount) {
      const Amount has = available.Get(name);
      available.Set(name, amount <= has / count ? has - amount * count : 0);
    });
  }
  of.overtaken = 0;
  of.head_since = now;
  if (entry.missing() == 0) {
    Dequeue(entry);
  } else {
    entry.WaitHook::unlink();
    AppendTo(of, entry);
  }
  return Served::kYes;
}

void LeaseQueue::SayKept(const Entry& entry) {
  LeaseAction action;
  action.kind = LeaseAction::Kind::kGiveBack;
  action.demand = entry.id;
  action.node = entry.id.via;
  action.hops = entry.hops;
  action.wanted = entry.wanted;
  actions_.push_back(std::move(action));
}

// What holds the room here may hold it for ever (actors), so a demand that cannot go on from here
// goes back to who sent it.
LeaseQueue::Served LeaseQueue::GiveBack(Entry& entry) {
  entry.wanted = entry.held + entry.handed_on;
  SayKept(entry);
  Dequeue(entry);
  if (entry.wanted == 0) {
    DropEntry(&entry);
  }
  return Served::kChanged;
}

// `entry` was handed on to this node just now. If nothing is free it queues here, so that what
// comes free has work at once; but no more queue than the node holds when it is empty: many nodes
// send their demands to the same few of which the last word was that they had room.
void LeaseQueue::RefuseToQueue(Entry& entry) {
  const Class& of = *entry.of;
  if (!entry.waiting() || !of.pool->is_node() ||
      of.spec->strategy.kind == StrategyKind::kNodeAffinity) {  // For that it is this node or none.
    return;
  }
  uint64_t most = of.local ? UINT64_MAX : 0;
  of.spec->resources.ForEach([&](std::string_view name, Amount amount) {
    most = std::min(most, static_cast<uint64_t>(ledger_.total().Get(name) / amount));
  });
  if (of.handed > most) {
    GiveBack(entry);
  }
}

// Whether `entry`, which waits here while other nodes have room, goes back to who handed it on. Not
// before the word of that room is old enough for those nodes to have used it themselves, and one at
// a time, or all would go and meet again at the same nodes.
bool LeaseQueue::BackIsDue(Class& of, const Entry& entry, Nanos now) {
  const Nanos due = std::max(entry.since, of.gave_back_at) +
                    static_cast<Nanos>(view_.nodes.size()) * kNewsPerNode;
  if (now < due) {
    of.pool->next = std::min(of.pool->next, due);
    return false;
  }
  of.gave_back_at = now;
  return true;
}

void LeaseQueue::SetShare(Entry& entry, NodeNumber node, uint32_t share) {
  auto it = std::find_if(entry.shares.begin(), entry.shares.end(),
                         [&](const auto& known) { return known.first == node; });
  if (it == entry.shares.end()) {
    it = entry.shares.insert(it, {node, 0});
    ++foreign_[node];
  }
  entry.handed_on = entry.handed_on - it->second + share;
  it->second = share;
  if (share == 0) {
    entry.shares.erase(it);
    if (const auto count = foreign_.find(node); --count->second == 0) {
      foreign_.erase(count);
    }
  }
  for (auto earlier = actions_.rbegin();
       earlier != actions_.rend() && earlier->kind == LeaseAction::Kind::kSpill;
       ++earlier) {  // Of one event, the last word counts.
    if (earlier->demand == entry.id && earlier->node == node) {
      earlier->wanted = share;
      return;
    }
  }
  LeaseAction action;
  action.kind = LeaseAction::Kind::kSpill;
  action.demand = entry.id;
  action.node = node;
  action.wanted = share;
  action.hops = entry.hops + 1;
  actions_.push_back(std::move(action));
}

void LeaseQueue::RefuseAll(Class& of, ErrorKind error, const std::string& words) {
  std::vector<Entry*> entries;
  for (auto* list : {&of.starving, &of.waiting}) {
    for (Entry& entry : *list) {
      entries.push_back(&entry);
    }
  }
  for (Entry* entry : entries) {  // The last one may take `of` with it.
    RefuseEntry(*entry, error, words);
  }
}

void LeaseQueue::SetInfeasible(Class& of, bool infeasible) {
  of.epoch = epoch_;
  if (std::exchange(of.infeasible, infeasible) == infeasible) {
    return;
  }
  for (auto* list : {&of.starving, &of.waiting}) {
    for (Entry& entry : *list) {
      if (infeasible) {
        SayInfeasible(entry);
      } else {
        entry.noticed = false;
      }
    }
  }
}

void LeaseQueue::SayInfeasible(Entry& entry) {
  if (!std::exchange(entry.noticed, true)) {
    LeaseAction action;
    action.kind = LeaseAction::Kind::kNotice;
    action.demand = entry.id;
    action.words = InfeasibleWords(*entry.spec, view_);
    actions_.push_back(std::move(action));
  }
}

}  // namespace sheaf
