// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// On which node a lease should be: a pure function of the request and of what is believed about the
// cluster.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/random.h"
#include "base/resources.h"
#include "scheduling/cluster_view.h"
#include "scheduling/lease_spec.h"

namespace sheaf {

// Bytes of a task's arguments by node; nodes without any are left out.
using ArgumentBytes = std::vector<std::pair<NodeNumber, uint64_t>>;

struct Placement {
  enum class Kind : uint8_t {
    kNode,        // `node` has room now.
    kWait,        // Some node could hold it, none has room now.
    kInfeasible,  // No node of this cluster could ever hold it.
    kGroupGone,   // Its placement group was removed.
    kNodeGone,    // Hard affinity to a node that is dead or unknown.
    kNodeUnfit,   // Hard affinity to a node that could never hold it.
  };
  Kind kind = Kind::kInfeasible;
  NodeNumber node = 0;
};

// Hybrid: nodes are filled one after the other up to here.
inline constexpr double kPackUntil = 0.5;

// The largest used share of any resource of `node` that `request` names, in [0, 1].
double Utilization(const NodeView& node, const Resources& request);

// Where the search for a node of hybrid goes on, for equal requests and as long as nodes have no more
// room than when it began: what it has passed has no more. A choice then looks at a few nodes, however
// many there are.
struct NodeSearch {
  bool begun = false;
  NodeNumber behind = 0;  // It goes on behind this one.
  int tier = 0;           // Of the kinds of nodes that are taken one after the other.
};

struct PolicyContext {
  const ArgumentBytes* argument_bytes = nullptr;
  NodeSearch* search = nullptr;  // Null: it begins.
  NodeNumber last_spread = 0;    // kSpread takes the next node with room after this one.
  // Breaks ties between equally loaded nodes; nullptr: the lowest number.
  Random* random = nullptr;
};

// Hybrid: the node with most argument bytes if it has room; else the local node while less than
// half full; else the other nodes in order (without GPUs first, unless GPUs are wanted) while less
// than half full, of many nodes one of the next few; else the least loaded, of many the least loaded
// of the next few. In large clusters the order begins behind the local node: who choose at the same
// time, on different nodes, fill different nodes. Placement group: the node of the bundle; any
// bundle: the local node if it has one, else one of the others. Whether the bundle has room is for
// the ledger of that node to say.
Placement Place(const LeaseSpec& spec, const ClusterView& view, const PolicyContext& context = {});

// Whether node `number` could hold `spec` if it were empty: labels, totals, affinity; not its
// placement group.
bool CouldHold(const LeaseSpec& spec, const ClusterView& view, NodeNumber number);
// The selector that counts: the first that some usable node satisfies with room in its totals.
// nullptr: all nodes count.
// `*none` is set when selectors exist and no node satisfies any.
const LabelSelector* EffectiveSelector(const LeaseSpec& spec, const ClusterView& view, bool* none);

// In words, why `spec` is infeasible: "no node has the resource 'slot'; add a node with it or lower
// the request".
std::string InfeasibleWords(const LeaseSpec& spec, const ClusterView& view);

}  // namespace sheaf
