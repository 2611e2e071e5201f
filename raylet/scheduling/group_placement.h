// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// On which nodes the bundles of a placement group should be: pure functions of the group and of
// what is believed about the cluster. PACK and SPREAD are greedy, large and choosy bundles first;
// STRICT_SPREAD finds a placement if there is one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/resources.h"
#include "scheduling/cluster_view.h"

namespace sheaf {

inline constexpr int kMaxBundles = 10'000;

enum class PlacementGroupPolicy : uint8_t {
  kPack = 0,          // On one node if they fit together, else on few.
  kSpread = 1,        // On as many as there are.
  kStrictPack = 2,    // On one node.
  kStrictSpread = 3,  // Each on another node.
};

struct GroupSpec {
  PlacementGroupId id;
  std::vector<Resources> bundles;
  std::vector<LabelSelector> selectors;  // One per bundle, or none.
  PlacementGroupPolicy policy = PlacementGroupPolicy::kPack;
  std::string name;
  bool detached = false;
};

// Where the bundles of `spec` could go now: one node each. `kept[i]` != 0: bundle i is there
// already; empty: none is. nullopt: nowhere, as far as the search goes.
std::optional<std::vector<NodeNumber>> PlaceBundles(const GroupSpec& spec, const ClusterView& view,
                                                    const std::vector<NodeNumber>& kept);
// The same, if all usable nodes were empty but for what is kept.
bool CouldEverPlace(const GroupSpec& spec, const ClusterView& view,
                    const std::vector<NodeNumber>& kept);
// Why it could not, in words.
std::string InfeasibleGroupWords(const GroupSpec& spec, const ClusterView& view);

}  // namespace sheaf
