// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "raylet/scheduling/spillback.h"

#include <algorithm>
#include <string_view>

namespace sheaf {
namespace {

// The GCS says what nodes have free about so often (gcs/node_service.cc).
constexpr Nanos kNewsPerNode = kSecond / 10'000;

constexpr size_t kPacedFrom = 50;  // Nodes.
constexpr uint32_t kMostNodesAPeriod = 256;
constexpr Nanos kLongestPeriod = 64 * kMillisecond;
constexpr Nanos kPaceForgotten = kSecond;

}  // namespace

uint32_t Spillback::CountFor(const Demand& demand, const NodeView& node) const {
  uint64_t room = kMaxWanted;
  demand.spec->resources.ForEach([&](std::string_view name, Amount amount) {
    room = std::min(room, static_cast<uint64_t>(node.available.Get(name) / amount));
  });
  const uint64_t fills = room * view_.nodes.size();
  return static_cast<uint32_t>(
      std::clamp<uint64_t>(demand.missing() >= fills ? room : room / 2, 1, demand.missing()));
}

bool Spillback::MaySpread(Demand& demand, Nanos now) const {
  if (view_.nodes.size() <= kPacedFrom) return true;
  SpreadPace& pace = demand.pace;
  if (now >= pace.until) {
    if (now >= Deadline(pace.until, kPaceForgotten)) {
      pace = {};
    } else if (!pace.given_back) {
      pace.nodes = std::min(2 * pace.nodes, kMostNodesAPeriod);
      pace.period = kMillisecond;
    } else if (pace.nodes > 1) {
      pace.nodes /= 2;
    } else {
      pace.period = std::min(2 * pace.period, kLongestPeriod);
    }
    pace.given_back = false;
    pace.left = pace.nodes;
    pace.until = Deadline(now, pace.period);
  }
  if (pace.left == 0) {
    demand.cls->capacity->WakeAt(pace.until);
    return false;
  }
  --pace.left;
  return true;
}

void Spillback::Send(Demand& demand, NodeNumber node, uint32_t count) {
  uint32_t share = 0;
  for (const auto& [at, already] : demand.shares) share += at == node ? already : 0;
  SetShare(demand, node, share + count);
  if (!demand.cls->capacity->is_node()) return;
  Resources& available = view_.nodes[node].available;  // Until the node reports anew.
  demand.spec->resources.ForEach([&](std::string_view name, Amount amount) {
    const Amount has = available.Get(name);
    available.Set(name, amount <= has / count ? has - amount * count : 0);
  });
}

void Spillback::SetShare(Demand& demand, NodeNumber node, uint32_t share) {
  auto it = std::find_if(demand.shares.begin(), demand.shares.end(),
                         [&](const auto& known) { return known.first == node; });
  if (it == demand.shares.end()) {
    it = demand.shares.insert(it, {node, 0});
    Count(node);
  }
  demand.spillback = demand.spillback - it->second + share;
  it->second = share;
  if (share == 0) {
    demand.shares.erase(it);
    Uncount(node);
  }
  actions_.Spillback(demand, node, share);
}

void Spillback::TakeBack(Demand& demand, uint32_t count) {
  while (count > 0 && !demand.shares.empty()) {
    const auto [node, share] = demand.shares.back();
    const uint32_t less = std::min(share, count);
    count -= less;
    SetShare(demand, node, share - less);
  }
}

bool Spillback::OnGivenBack(Demand& demand, NodeNumber node, uint32_t hops, uint32_t kept,
                            bool unneeded) {
  if (demand.hops + 1 != hops) return false;
  const bool is_news =
      std::any_of(demand.shares.begin(), demand.shares.end(),
                  [&](const auto& share) { return share.first == node && share.second > kept; });
  if (!is_news) return false;
  SetShare(demand, node, kept);
  if (unneeded) return true;  // It says nothing of the node.
  demand.pace.given_back = true;
  const auto at_node = view_.nodes.find(node);
  if (demand.missing() > 0 && demand.cls->capacity->is_node() && at_node != view_.nodes.end()) {
    Resources& available = at_node->second.available;  // It came back for want of room.
    bool needs_something = false;
    demand.spec->resources.ForEach([&](std::string_view name, Amount amount) {
      available.Set(name, std::min(available.Get(name), amount - 1));
      needs_something = true;
    });
    // There is always room for what needs none: the node drains, of which the GCS has not told yet.
    if (!needs_something) at_node->second.refuses = true;
  }
  return true;
}

bool Spillback::IsTooMuch(const Demand& demand) const {
  const SchedulingClass& cls = *demand.cls;
  if (!demand.waiting() || !cls.capacity->is_node() ||
      cls.spec->strategy.kind == StrategyKind::kNodeAffinity) {  // It is this node or none.
    return false;
  }
  uint64_t most = cls.local ? UINT64_MAX : 0;
  cls.spec->resources.ForEach([&](std::string_view name, Amount amount) {
    most = std::min(most, static_cast<uint64_t>(ledger_.total().Get(name) / amount));
  });
  return cls.from_others > most;
}

bool Spillback::BackIsDue(const Demand& demand, Nanos now) {
  SchedulingClass& cls = *demand.cls;
  const Nanos due = std::max(demand.since, cls.gave_back_at) +
                    static_cast<Nanos>(view_.nodes.size()) * kNewsPerNode;
  if (now < due) {
    cls.capacity->WakeAt(due);
    return false;
  }
  cls.gave_back_at = now;
  return true;
}

void Spillback::GiveBack(Demand& demand) {
  demand.wanted = demand.useful() + demand.spillback;
  actions_.GiveBack(demand, /*unneeded=*/false);
}

void Spillback::OnAdded(const Demand& demand) {
  for (const NodeNumber node : {demand.id.via, demand.id.owner.node}) {
    if (node != 0 && node != view_.local) Count(node);
  }
}

void Spillback::OnDropped(const Demand& demand) {
  for (const NodeNumber node : {demand.id.via, demand.id.owner.node}) {
    if (node != 0 && node != view_.local) Uncount(node);
  }
}

void Spillback::Uncount(NodeNumber node) {
  const auto count = foreign_.find(node);
  if (--count->second == 0) foreign_.erase(count);
}

}  // namespace sheaf
