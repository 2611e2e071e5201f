// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "raylet/scheduling/group_placement.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "scheduling/lease_spec.h"
#include "scheduling/scheduling_policy.h"

namespace sheaf {
namespace {

struct Candidate {
  NodeNumber number;
  const NodeView* node;
  Resources room;
  size_t bundles = 0;  // Of this group.
};

class Search {
 public:
  Search(const GroupSpec& spec, const ClusterView& view, const std::vector<NodeNumber>& kept,
         bool empty_nodes)
      : spec_(spec), result_(spec.bundles.size(), 0) {
    for (const auto& [number, node] : view.nodes) {
      if (node.usable())
        candidates_.push_back({number, &node, empty_nodes ? node.total : node.available});
    }
    // The local node first: among equals it is taken.
    std::stable_partition(candidates_.begin(), candidates_.end(),
                          [&](const Candidate& c) { return c.number == view.local; });
    for (size_t i = 0; i < kept.size(); ++i) {
      result_[i] = kept[i];
      for (Candidate& candidate : candidates_) {
        if (kept[i] != 0 && candidate.number == kept[i]) {
          ++candidate.bundles;
          if (empty_nodes) candidate.room -= spec.bundles[i];
        }
      }
    }
    for (size_t i = 0; i < result_.size(); ++i) {
      if (result_[i] == 0) order_.push_back(i);
    }
  }

  std::optional<std::vector<NodeNumber>> Run() {
    bool placed = false;
    switch (spec_.policy) {
      case PlacementGroupPolicy::kStrictPack:
        placed = OnOne();
        break;
      case PlacementGroupPolicy::kPack:
        placed = OnOne() || OneByOne();
        break;
      case PlacementGroupPolicy::kSpread:
        placed = OneByOne();
        break;
      case PlacementGroupPolicy::kStrictSpread:
        placed = OneEach();
        break;
    }
    return placed ? std::optional(std::move(result_)) : std::nullopt;
  }

 private:
  bool Matches(size_t bundle, const Candidate& candidate) const {
    return spec_.selectors.empty() || spec_.selectors[bundle].Matches(candidate.node->labels);
  }
  bool Fits(size_t bundle, const Candidate& candidate) const {
    return candidate.room.Fits(spec_.bundles[bundle]) && Matches(bundle, candidate);
  }
  void Put(size_t bundle, Candidate& candidate) {
    result_[bundle] = candidate.number;
    candidate.room -= spec_.bundles[bundle];
    ++candidate.bundles;
  }

  // All of them on one node; the one that has some already, if one has.
  bool OnOne() {
    Resources sum;
    for (const size_t bundle : order_) sum += spec_.bundles[bundle];
    const bool any_kept = order_.size() < result_.size();
    for (Candidate& candidate : candidates_) {
      if (any_kept && candidate.bundles == 0) continue;
      if (candidate.room.Fits(sum) && std::all_of(order_.begin(), order_.end(), [&](size_t bundle) {
            return Matches(bundle, candidate);
          })) {
        for (const size_t bundle : order_) Put(bundle, candidate);
        return true;
      }
    }
    return false;
  }

  // Those with few nodes to choose from first, then those that ask for most.
  void SortByDifficulty() {
    std::vector<size_t> choices(result_.size(), 0);
    if (!spec_.selectors.empty()) {
      for (const size_t bundle : order_) {
        choices[bundle] = std::count_if(candidates_.begin(), candidates_.end(),
                                        [&](const Candidate& c) { return Matches(bundle, c); });
      }
    }
    std::stable_sort(order_.begin(), order_.end(), [&](size_t a, size_t b) {
      const Resources& x = spec_.bundles[a];
      const Resources& y = spec_.bundles[b];
      return choices[a] != choices[b] ? choices[a] < choices[b]
             : x.gpu() != y.gpu()     ? x.gpu() > y.gpu()
                                      : x > y;
    });
  }

  bool OneByOne() {
    SortByDifficulty();
    const bool spread = spec_.policy == PlacementGroupPolicy::kSpread;
    for (const size_t bundle : order_) {
      Candidate* best = nullptr;
      for (Candidate& candidate : candidates_) {
        const bool better = best == nullptr || (spread ? candidate.bundles < best->bundles
                                                       : candidate.bundles > best->bundles);
        if (better && Fits(bundle, candidate)) best = &candidate;
      }
      if (best == nullptr) return false;
      Put(bundle, *best);
    }
    return true;
  }

  // A matching of bundles and nodes, by augmenting paths.
  bool OneEach() {
    SortByDifficulty();
    std::vector<ptrdiff_t> holds(candidates_.size(), kNone);
    for (const size_t bundle : order_) {
      std::vector<bool> tried(candidates_.size(), false);
      if (!Augment(bundle, holds, tried)) return false;
    }
    for (size_t i = 0; i < holds.size(); ++i) {
      if (holds[i] != kNone) Put(holds[i], candidates_[i]);
    }
    return true;
  }

  bool Augment(size_t bundle, std::vector<ptrdiff_t>& holds, std::vector<bool>& tried) {
    for (const bool only_free : {true, false}) {
      for (size_t i = 0; i < candidates_.size(); ++i) {
        if (candidates_[i].bundles > 0 || (only_free ? holds[i] != kNone : tried[i]) ||
            !Fits(bundle, candidates_[i])) {
          continue;
        }
        tried[i] = true;
        if (holds[i] == kNone || Augment(holds[i], holds, tried)) {
          holds[i] = static_cast<ptrdiff_t>(bundle);
          return true;
        }
      }
    }
    return false;
  }

  static constexpr ptrdiff_t kNone = -1;
  const GroupSpec& spec_;
  std::vector<Candidate> candidates_;
  std::vector<NodeNumber> result_;
  std::vector<size_t> order_;  // Bundles to be placed.
};

}  // namespace

std::optional<std::vector<NodeNumber>> PlaceBundles(const GroupSpec& spec, const ClusterView& view,
                                                    const std::vector<NodeNumber>& kept) {
  return Search(spec, view, kept, /*empty_nodes=*/false).Run();
}

bool CouldEverPlace(const GroupSpec& spec, const ClusterView& view,
                    const std::vector<NodeNumber>& kept) {
  return Search(spec, view, kept, /*empty_nodes=*/true).Run().has_value();
}

std::string InfeasibleGroupWords(const GroupSpec& spec, const ClusterView& view) {
  Resources sum;
  for (size_t i = 0; i < spec.bundles.size(); ++i) {
    LeaseSpec alone;
    alone.resources = spec.bundles[i];
    if (!spec.selectors.empty()) alone.strategy.selectors = {spec.selectors[i]};
    if (Place(alone, view).kind == Placement::Kind::kInfeasible) {
      return absl::StrCat("bundle ", i, " (", spec.bundles[i].ToString(),
                          "): ", InfeasibleWords(alone, view));
    }
    sum += spec.bundles[i];
  }
  const size_t usable = std::count_if(view.nodes.begin(), view.nodes.end(),
                                      [](const auto& entry) { return entry.second.usable(); });
  switch (spec.policy) {
    case PlacementGroupPolicy::kStrictPack:
      return absl::StrCat("STRICT_PACK: no node can hold all bundles together (", sum.ToString(),
                          "); add a larger node, ask for less, or use PACK");
    case PlacementGroupPolicy::kStrictSpread:
      return absl::StrCat("STRICT_SPREAD: ", spec.bundles.size(),
                          " bundles need as many nodes, of ", usable,
                          " not enough can hold one each; add nodes or use SPREAD");
    default:
      return absl::StrCat("all ", usable, " nodes together cannot hold ", spec.bundles.size(),
                          " bundles (", sum.ToString(), "); add nodes or ask for less");
  }
}

}  // namespace sheaf
