// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What this raylet believes about the nodes of the cluster. Scheduling reads it. Who writes what,
// in the raylet: `nodes` the ClusterFollower, from what the GCS says; `available` of other nodes
// also whoever hands something to them, until they report anew; `available` of this one the
// PlacementGroupLedger, from the resource ledger; `draining` of this one also the Raylet, when it
// shuts down; `groups` the PlacementGroupCoordinator. The GCS (gcs/) has a view of its own.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/flat_hash_map.h"
#include "base/ids.h"
#include "base/resources.h"

namespace sheaf {

using Labels = absl::btree_map<std::string, std::string>;
// A label that each node has, by which programs place work on it: NodeIdText of its number.
inline constexpr char kNodeIdLabel[] = "ray.io/node-id";
std::string NodeIdText(NodeNumber node);  // 56 hexadecimal digits.

// One label must be one of `values`, or (negated) none of them. An absent label satisfies only
// negated terms.
struct LabelTerm {
  std::string key;
  std::vector<std::string> values;
  bool negated = false;

  friend bool operator==(const LabelTerm&, const LabelTerm&) = default;
  template <class H>
  friend H AbslHashValue(H h, const LabelTerm& term) {
    return H::combine(std::move(h), term.key, term.values, term.negated);
  }
};
struct LabelSelector {
  std::vector<LabelTerm> terms;  // All must hold; none at all matches every node.

  bool Matches(const Labels& labels) const;
  std::string ToString() const;  // "zone in (a, b) and gpu not in (T4)".
  friend bool operator==(const LabelSelector&, const LabelSelector&) = default;
  template <class H>
  friend H AbslHashValue(H h, const LabelSelector& selector) {
    return H::combine(std::move(h), selector.terms);
  }
};

struct NodeView {
  Resources total;
  Resources reported;  // What it said last to be free. Of the local node: nothing.
  // Last reported, less what was sent there since. Of the local node: the ledger's.
  Resources available;
  Labels labels;
  bool alive = true;
  bool draining = false;  // Takes nothing new.
  bool refuses = false;   // Gave back what needs no room; believed until it is looked at again.
  bool heard = true;      // By this node itself. While not, it is given what only it can take.

  bool usable() const { return alive && !draining && !refuses; }
};

// Where the bundles of a placement group are.
struct GroupPlacement {
  enum class State : uint8_t { kPending, kCreated, kRemoved };
  State state = State::kPending;
  std::vector<NodeNumber> bundle_nodes;  // kCreated: one per bundle.
};

struct ClusterView {
  NodeNumber local = 0;
  bool complete = true;  // false: the GCS has not listed the nodes yet.
  // The local one included. Ordered: equal seeds, equal choices.
  absl::btree_map<NodeNumber, NodeView> nodes;
  absl::flat_hash_map<PlacementGroupId, GroupPlacement> groups;

  NodeView& here() { return nodes[local]; }
  const NodeView* Find(NodeNumber node) const {
    const auto it = nodes.find(node);
    return it == nodes.end() ? nullptr : &it->second;
  }
};

}  // namespace sheaf
