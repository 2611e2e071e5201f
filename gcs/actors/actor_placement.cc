// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "gcs/actors/actor_placement.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "scheduling/node_loads.h"
#include "scheduling/scheduling_policy.h"

namespace sheaf {

ActorPlacement::ActorPlacement(NodeTable& nodes, const PlacementGroupTable& groups, Random& random)
    : nodes_(nodes), groups_(groups), random_(random) {
  nodes.Watch([this](NodeNumber node) { changed_.insert(node); });
}

void ActorPlacement::Refresh() {
  for (const NodeNumber node : std::exchange(changed_, {})) {
    const proto::NodeInfo* info = nodes_.Find(node);
    if (info == nullptr) {
      view_.nodes.erase(node);
      continue;
    }
    NodeView& seen = view_.nodes[node];
    seen.alive = info->state() != proto::NodeInfo::DEAD;
    seen.draining = info->state() == proto::NodeInfo::DRAINING || info->suspect();
    seen.labels.clear();
    for (const auto& [key, value] : info->labels()) seen.labels.emplace(key, value);
    seen.total = Resources::FromMap(info->total().amounts()).value_or(Resources());
    seen.available = FreeResources(info->available());
    if (const auto ordered = ordered_.find(node); ordered != ordered_.end()) {
      for (const auto& [id, one] : ordered->second) seen.available -= one.amount;
    }
  }
}

ActorPlacement::Choice ActorPlacement::Choose(const proto::LeaseSpec& lease, NodeNumber creator,
                                              NodeNumber avoid) {
  absl::StatusOr<LeaseSpec> parsed = ParseLeaseSpec(lease);
  if (!parsed.ok()) return {.never = true, .reason = std::string(parsed.status().message())};
  LeaseSpec& spec = *parsed;
  Refresh();
  if (spec.strategy.kind == StrategyKind::kPlacementGroup) return ChooseInGroup(spec, avoid);
  // What holds nothing while it runs never fills a node: its creator's would get all of them.
  if (spec.running.empty() && spec.strategy.kind == StrategyKind::kHybrid)
    spec.strategy.kind = StrategyKind::kSpread;
  view_.local = creator;
  PolicyContext context;
  context.last_spread = last_spread_;
  context.random = &random_;
  // It said that it has none.
  const auto shunned = view_.nodes.find(avoid);
  Resources hidden;
  if (shunned != view_.nodes.end()) std::swap(hidden, shunned->second.available);
  const Placement placement = Place(spec, view_, context);
  if (shunned != view_.nodes.end()) std::swap(hidden, shunned->second.available);
  switch (placement.kind) {
    case Placement::Kind::kNode:
      if (spec.strategy.kind == StrategyKind::kSpread) last_spread_ = placement.node;
      return {.node = placement.node, .has_room = true};
    case Placement::Kind::kWait: {
      const NodeNumber node = placement.node != 0 ? placement.node : NextThatCouldHold(spec, avoid);
      if (node != 0) return {.node = node};
      return {.reason =
                  absl::StrCat("a node for ", spec.resources.ToString(), " that takes new work")};
    }
    case Placement::Kind::kInfeasible:
      return {.infeasible = true, .reason = InfeasibleWords(spec, view_)};
    case Placement::Kind::kNodeUnfit:
      return {.never = true, .reason = InfeasibleWords(spec, view_)};
    case Placement::Kind::kNodeGone:
      return {.never = true,
              .reason = absl::StrCat("node ", spec.strategy.node,
                                     ", which it is bound to, is dead or was never there")};
    case Placement::Kind::kGroupGone:
      break;
  }
  return {.never = true, .reason = "its placement group was removed"};
}

// Named and detached groups are in the table. Of others only the raylet of their creator's node
// knows; it tells where their bundles are when it is asked for an actor there
// (PlacementGroupTable::PutPlace).
ActorPlacement::Choice ActorPlacement::ChooseInGroup(const LeaseSpec& spec, NodeNumber avoid) {
  const PlacementGroupId group = spec.strategy.group;
  const std::string name = absl::StrCat("placement group ", group.ToHex());
  std::vector<NodeNumber> nodes;
  if (const GroupEntry* entry = groups_.Find(group)) {
    if (entry->info.state() != proto::GroupInfo::CREATED)
      return {.reason = absl::StrCat(name, ", which is not placed yet")};
    nodes.assign(entry->info.bundle_nodes().begin(), entry->info.bundle_nodes().end());
  } else if (const std::vector<NodeNumber>* place = groups_.FindPlace(group)) {
    nodes = *place;
  } else if (nodes_.IsMember(group.maker().node)) {
    // It placed the group and says where, also if it takes no work, as the node of a driver
    // outside.
    return {.node = group.maker().node};
  } else {
    return {.never = true, .reason = absl::StrCat(name, " was removed")};
  }
  if (spec.strategy.bundle != kAnyBundle) {
    const size_t bundle = static_cast<size_t>(spec.strategy.bundle);
    if (bundle >= nodes.size()) {
      return {.never = true,
              .reason = absl::StrCat(name, " has ", nodes.size(), " bundles, there is no bundle ",
                                     spec.strategy.bundle)};
    }
    nodes = {nodes[bundle]};
  }
  std::sort(nodes.begin(), nodes.end());
  nodes.erase(std::unique(nodes.begin(), nodes.end()), nodes.end());
  // A bundle holds its room also on a node that drains: it is used when no other has one.
  std::erase_if(nodes, [&](NodeNumber node) {
    const proto::NodeInfo* info = nodes_.Find(node);
    return info == nullptr || info->state() == proto::NodeInfo::DEAD || info->suspect();
  });
  const auto usable = [&](NodeNumber node) { return view_.nodes.at(node).usable(); };
  if (std::any_of(nodes.begin(), nodes.end(), usable)) std::erase_if(nodes, std::not_fn(usable));
  if (nodes.empty()) return {.reason = absl::StrCat(name, ", whose nodes are not heard")};
  if (nodes.size() > 1) std::erase(nodes, avoid);
  return {.node = nodes[random_.Below(nodes.size())]};
}

bool ActorPlacement::OnlyRayletKnowsGroup(const proto::LeaseSpec& lease) const {
  if (lease.strategy().kind() != proto::Strategy::PLACEMENT_GROUP) return false;
  const auto group = PlacementGroupId::FromBinary(lease.strategy().group_id());
  return group.ok() && groups_.Find(*group) == nullptr;
}

// Of those without room the next in turn, so that what queues is spread.
NodeNumber ActorPlacement::NextThatCouldHold(const LeaseSpec& spec, NodeNumber avoid) {
  NodeNumber first = 0;
  NodeNumber next = 0;
  for (const auto& [node, seen] : view_.nodes) {
    if (node == avoid || !seen.usable() || !CouldHold(spec, view_, node)) continue;
    if (first == 0) first = node;
    if (next == 0 && node > last_queued_) next = node;
  }
  if (next == 0) next = first;
  if (next == 0) {
    const NodeView* only = view_.Find(avoid);
    return only != nullptr && only->usable() && CouldHold(spec, view_, avoid) ? avoid : 0;
  }
  return last_queued_ = next;
}

void ActorPlacement::OnOrdered(const std::string& id, const proto::LeaseSpec& lease,
                               NodeNumber node) {
  const absl::StatusOr<LeaseSpec> spec = ParseLeaseSpec(lease);
  if (!spec.ok() || spec->running.empty() ||
      spec->strategy.kind == StrategyKind::kPlacementGroup)  // Its bundle is taken already.
    return;
  ordered_[node][id] = {spec->running};
  changed_.insert(node);
}

void ActorPlacement::OnReported(const std::string& id, NodeNumber node) {
  const auto at = ordered_.find(node);
  if (at == ordered_.end()) return;
  if (const auto one = at->second.find(id); one != at->second.end()) one->second.reported = true;
}

void ActorPlacement::OnGone(const std::string& id, NodeNumber node) {
  const auto at = ordered_.find(node);
  if (at == ordered_.end() || at->second.erase(id) == 0) return;
  if (at->second.empty()) ordered_.erase(at);
  changed_.insert(node);
}

void ActorPlacement::OnHeartbeat(NodeNumber node) {
  const auto at = ordered_.find(node);
  if (at == ordered_.end()) return;
  std::erase_if(at->second, [](const auto& one) { return one.second.reported; });
  if (at->second.empty()) ordered_.erase(at);
  changed_.insert(node);
}

}  // namespace sheaf
