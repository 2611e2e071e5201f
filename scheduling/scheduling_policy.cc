// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "scheduling/scheduling_policy.h"

#include <algorithm>
#include <iterator>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace sheaf {
namespace {

using Kind = Placement::Kind;

// Nodes that are filled one after the other are chosen among the first of so many: others choose
// at the same time, and know as little of each other.
constexpr size_t kNodesPerChoice = 5;
constexpr size_t kMostChoices = 20;
// In clusters larger than these each raylet begins behind its own node. Smaller ones are filled from
// the first node on, so that the last stay empty for what needs a whole node.
constexpr size_t kSmallCluster = 50;
// The least loaded one is looked for among so many that have room.
constexpr size_t kCompared = 64;
static_assert(kCompared > kSmallCluster);

// Whether `node` may be chosen at all, now or later.
bool Feasible(const LeaseSpec& spec, const NodeView& node, const LabelSelector* selector) {
  return node.usable() && node.total.Fits(spec.resources) &&
         (selector == nullptr || selector->Matches(node.labels));
}

bool HasRoom(const LeaseSpec& spec, const NodeView& node, const LabelSelector* selector) {
  return node.heard && node.available.Fits(spec.resources) && Feasible(spec, node, selector);
}

Placement WaitOrInfeasible(const LeaseSpec& spec, const ClusterView& view,
                           const LabelSelector* selector) {
  const bool ever = std::any_of(view.nodes.begin(), view.nodes.end(), [&](const auto& entry) {
    return Feasible(spec, entry.second, selector);
  });
  return {ever ? Kind::kWait : Kind::kInfeasible};
}

Placement PlaceInGroup(const LeaseSpec& spec, const ClusterView& view,
                       const PolicyContext& context) {
  const auto it = view.groups.find(spec.strategy.group);
  if (it == view.groups.end()) {
    return {Kind::kWait};  // Not heard of yet.
  }
  const GroupPlacement& group = it->second;
  if (group.state != GroupPlacement::State::kCreated)
    return {group.state == GroupPlacement::State::kRemoved ? Kind::kGroupGone : Kind::kWait};
  const std::vector<NodeNumber>& nodes = group.bundle_nodes;
  if (spec.strategy.bundle != kAnyBundle) {
    const size_t bundle = static_cast<size_t>(spec.strategy.bundle);
    return bundle < nodes.size() ? Placement{Kind::kNode, nodes[bundle]}
                                 : Placement{Kind::kInfeasible};
  }
  if (nodes.empty()) return {Kind::kInfeasible};
  if (std::find(nodes.begin(), nodes.end(), view.local) != nodes.end())
    return {Kind::kNode, view.local};
  return {Kind::kNode, nodes[context.random == nullptr ? 0 : context.random->Below(nodes.size())]};
}

Placement PlaceSpread(const LeaseSpec& spec, const ClusterView& view, const LabelSelector* selector,
                      NodeNumber last) {
  const auto start = view.nodes.upper_bound(last);
  for (auto it = start; it != view.nodes.end(); ++it) {
    if (HasRoom(spec, it->second, selector)) return {Kind::kNode, it->first};
  }
  for (auto it = view.nodes.begin(); it != start; ++it) {
    if (HasRoom(spec, it->second, selector)) return {Kind::kNode, it->first};
  }
  return WaitOrInfeasible(spec, view, selector);
}

// Nodes that are taken one after the other.
struct TierNodes {
  bool with_gpus;  // That are not wanted.
  bool packs;      // Less than half full.
};
constexpr TierNodes kTierNodes[] = {{false, true}, {false, false}, {true, true}, {true, false}};
constexpr int kTiers = std::size(kTierNodes);
constexpr double kNoBound = 2;

// One of the tier that `search` is in, other than the local node, which is so full (kNoBound: it has
// no room) and is taken if it is the least loaded.
std::optional<NodeNumber> SearchTier(const LeaseSpec& spec, const ClusterView& view,
                                     const LabelSelector* selector, double local_used,
                                     Random* random, NodeSearch* search) {
  const TierNodes& tier = kTierNodes[search->tier];
  const size_t first_few = std::min(view.nodes.size() / kNodesPerChoice, kMostChoices);
  const size_t most = tier.packs ? std::max<size_t>(first_few, 1) : kCompared;
  std::optional<NodeNumber> chosen;
  double least = kNoBound;
  size_t found = 0;
  uint64_t equals = 0;
  auto at = view.nodes.upper_bound(search->behind);
  for (size_t i = 0; i < view.nodes.size() && found < most; ++i, ++at) {
    if (at == view.nodes.end()) at = view.nodes.begin();
    const auto& [number, node] = *at;
    if (number == view.local || !HasRoom(spec, node, selector)) continue;
    if ((spec.resources.gpu() == 0 && node.total.gpu() > 0) != tier.with_gpus) continue;
    const double used = Utilization(node, spec.resources);
    if (tier.packs && used >= kPackUntil) continue;
    if (found++ == 0) search->behind = number - 1;
    const double score = tier.packs ? 0 : used;
    if (score < least) {
      least = score;
      chosen = number;
      equals = 1;
    } else if (score == least && random != nullptr && random->OneIn(++equals)) {
      chosen = number;
    }
  }
  // Of equals the local node comes first.
  if (chosen.has_value() && !tier.packs && local_used <= least) return view.local;
  return chosen;
}

Placement PlaceHybrid(const LeaseSpec& spec, const ClusterView& view, const LabelSelector* selector,
                      const PolicyContext& context) {
  if (context.argument_bytes != nullptr) {
    const std::pair<NodeNumber, uint64_t>* most = nullptr;
    for (const auto& entry : *context.argument_bytes) {
      if (entry.second > 0 && (most == nullptr || entry.second > most->second)) most = &entry;
    }
    const NodeView* node = most == nullptr ? nullptr : view.Find(most->first);
    if (node != nullptr && HasRoom(spec, *node, selector)) return {Kind::kNode, most->first};
  }
  const NodeView* local = view.Find(view.local);
  const bool local_room = local != nullptr && HasRoom(spec, *local, selector);
  const double local_used = local_room ? Utilization(*local, spec.resources) : 1;
  if (local_room && (view.nodes.size() == 1 || local_used < kPackUntil))
    return {Kind::kNode, view.local};
  NodeSearch search = context.search != nullptr ? *context.search : NodeSearch();
  if (!search.begun)
    search = {.begun = true, .behind = view.nodes.size() > kSmallCluster ? view.local : 0};
  std::optional<NodeNumber> chosen;
  for (;; ++search.tier) {
    if (search.tier == kTiers || (local_room && kTierNodes[search.tier].with_gpus)) {
      if (local_room) chosen = view.local;
      break;
    }
    chosen = SearchTier(spec, view, selector, local_room ? local_used : kNoBound, context.random,
                        &search);
    if (chosen.has_value()) break;
  }
  if (context.search != nullptr) *context.search = search;
  return chosen.has_value() ? Placement{Kind::kNode, *chosen}
                            : WaitOrInfeasible(spec, view, selector);
}

}  // namespace

double Utilization(const NodeView& node, const Resources& request) {
  double most = 0;
  const auto count = [&](Amount total, Amount available) {
    if (total > 0)
      most = std::max(most, static_cast<double>(total - available) / static_cast<double>(total));
  };
  for (size_t i = 0; i < kKnownResources; ++i) {
    const auto name = static_cast<KnownResource>(i);
    if (request.Get(name) > 0) count(node.total.Get(name), node.available.Get(name));
  }
  for (const auto& [name, amount] : request.custom())
    count(node.total.Get(name), node.available.Get(name));
  return std::min(most, 1.0);
}

const LabelSelector* EffectiveSelector(const LeaseSpec& spec, const ClusterView& view, bool* none) {
  *none = false;
  const bool bound = spec.strategy.kind == StrategyKind::kNodeAffinity && !spec.strategy.soft;
  for (const LabelSelector& selector : spec.strategy.selectors) {
    for (const auto& [number, node] : view.nodes) {
      if (bound && number != spec.strategy.node) continue;
      if (Feasible(spec, node, &selector)) return &selector;
    }
  }
  *none = !spec.strategy.selectors.empty();
  return nullptr;
}

bool CouldHold(const LeaseSpec& spec, const ClusterView& view, NodeNumber number) {
  bool none = false;
  const LabelSelector* selector = EffectiveSelector(spec, view, &none);
  const NodeView* node = view.Find(number);
  if (none || node == nullptr || !Feasible(spec, *node, selector)) return false;
  if (spec.strategy.kind != StrategyKind::kNodeAffinity || spec.strategy.node == number)
    return true;
  const NodeView* wanted = view.Find(spec.strategy.node);
  return spec.strategy.soft && (wanted == nullptr || !Feasible(spec, *wanted, selector));
}

Placement Place(const LeaseSpec& spec, const ClusterView& view, const PolicyContext& context) {
  if (spec.strategy.kind == StrategyKind::kPlacementGroup) return PlaceInGroup(spec, view, context);
  bool none = false;
  const LabelSelector* selector = EffectiveSelector(spec, view, &none);
  if (spec.strategy.kind == StrategyKind::kNodeAffinity) {
    const NodeView* node = view.Find(spec.strategy.node);
    if (!spec.strategy.soft && node == nullptr && !view.complete) {
      return {Kind::kInfeasible};  // The word of it is on its way.
    }
    if (!spec.strategy.soft && (node == nullptr || !node->alive)) return {Kind::kNodeGone};
    const bool may_wait = node != nullptr && (node->heard || !spec.strategy.soft);
    if (!none && may_wait && Feasible(spec, *node, selector))
      return {node->available.Fits(spec.resources) ? Kind::kNode : Kind::kWait, spec.strategy.node};
    if (!spec.strategy.soft)
      return {node->draining || node->refuses ? Kind::kWait : Kind::kNodeUnfit};
  }
  if (none) return {Kind::kInfeasible};
  if (spec.strategy.kind == StrategyKind::kSpread)
    return PlaceSpread(spec, view, selector, context.last_spread);
  return PlaceHybrid(spec, view, selector, context);
}

std::string InfeasibleWords(const LeaseSpec& spec, const ClusterView& view) {
  const Strategy& strategy = spec.strategy;
  if (strategy.kind == StrategyKind::kPlacementGroup) {
    const auto it = view.groups.find(strategy.group);
    const size_t bundles = it == view.groups.end() ? 0 : it->second.bundle_nodes.size();
    if (strategy.bundle >= 0 && static_cast<size_t>(strategy.bundle) >= bundles) {
      return absl::StrCat("the placement group has ", bundles, " bundles, there is no bundle ",
                          strategy.bundle);
    }
    return absl::StrCat("no bundle of the placement group can ever hold ",
                        spec.resources.ToString());
  }
  Resources largest;
  size_t usable = 0;
  for (const auto& [number, node] : view.nodes) {
    if (node.usable() && (strategy.kind != StrategyKind::kNodeAffinity || strategy.soft ||
                          number == strategy.node)) {
      ++usable;
      node.total.ForEach([&](std::string_view name, Amount amount) {
        largest.Set(name, std::max(largest.Get(name), amount));
      });
    }
  }
  if (usable == 0) return "no node takes work: all are draining or dead";
  static constexpr char kLarger[] = "; add a larger node or lower the request";
  const bool bound = strategy.kind == StrategyKind::kNodeAffinity && !strategy.soft;
  const std::string node = absl::StrCat("node ", strategy.node);
  std::string words;
  largest.Missing(spec.resources).ForEach([&](std::string_view name, Amount) {
    const std::string most = AmountToString(name, largest.Get(name));
    const std::string asked = AmountToString(name, spec.resources.Get(name));
    if (!words.empty()) return;
    if (largest.Get(name) <= 0) {
      words = absl::StrCat(bound ? node + " lacks" : "no node has", " the resource '",
                           std::string(name), "'; add a node with it or lower the request");
    } else {
      words = absl::StrCat(bound ? node + " has at most " : "no node has more than ", most, ", ",
                           asked, " are asked for", kLarger);
    }
  });
  if (words.empty() && !strategy.selectors.empty()) {
    words = absl::StrCat(bound ? node + " does not match the labels "
                               : absl::StrCat("no node that has ", spec.resources.ToString(),
                                              " matches the labels "),
                         absl::StrJoin(strategy.selectors, ", nor ",
                                       [](std::string* out, const LabelSelector& selector) {
                                         absl::StrAppend(out, selector.ToString());
                                       }));
  }
  if (words.empty())
    words = absl::StrCat("no node has ", spec.resources.ToString(), " together", kLarger);
  return words;
}

}  // namespace sheaf
