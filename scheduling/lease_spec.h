// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What a lease is asked for, checked and in the form that scheduling works with.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/ids.h"
#include "base/resources.h"
#include "proto/common.pb.h"
#include "proto/raylet.pb.h"
#include "scheduling/cluster_view.h"

namespace sheaf {

inline constexpr int32_t kAnyBundle = -1;
inline constexpr int kMaxSelectors = 16;
inline constexpr int kMaxLabelTerms = 32;
inline constexpr int kMaxLabelValues = 256;

enum class StrategyKind : uint8_t { kHybrid, kSpread, kNodeAffinity, kPlacementGroup };

struct Strategy {
  StrategyKind kind = StrategyKind::kHybrid;
  NodeNumber node = 0;          // kNodeAffinity.
  bool soft = false;            // kNodeAffinity: elsewhere if that node is dead or too small.
  PlacementGroupId group;       // kPlacementGroup.
  int32_t bundle = kAnyBundle;  // kPlacementGroup.
  // The first that some node satisfies counts. Empty: all nodes.
  std::vector<LabelSelector> selectors;

  friend bool operator==(const Strategy&, const Strategy&) = default;
  template <class H>
  friend H AbslHashValue(H h, const Strategy& s) {
    return H::combine(std::move(h), s.kind, s.node, s.soft, s.group, s.bundle, s.selectors);
  }
};

struct LeaseSpec {
  Resources resources;  // Must fit for the lease to begin.
  Resources running;    // Is held while it lasts; equal to `resources` but for some actors.
  Strategy strategy;
  std::string environment;  // Serialized runtime environment.
  bool actor = false;       // Never returned alive, never revoked.
  ActorId actor_id;
  std::string name;  // Function or class, for people.
};

// kInvalidArgument: amounts out of range, `running` above `resources`, malformed ids, too many
// label terms.
absl::StatusOr<LeaseSpec> ParseLeaseSpec(const proto::LeaseSpec& spec);
// Parsed again it is equal.
proto::LeaseSpec ToMessage(const LeaseSpec& spec);
absl::StatusOr<LabelSelector> ParseSelector(const proto::LabelSelector& selector);
proto::LabelSelector ToMessage(const LabelSelector& selector);

}  // namespace sheaf
