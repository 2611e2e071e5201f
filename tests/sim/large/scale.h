// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// How the cost of tasks, and of nodes that do nothing, grows with the cluster.
#pragma once

#include <cstdint>

namespace sheaf::sim {

// Runs clusters of 1/100, 1/10 and all of `nodes`, with 100 tasks per node, without faults, and
// prints what a task and an idle node take. 0: no call was wrong or lost, and from the smallest
// cluster to the largest the events per task and per node grew by a twentieth of what the nodes did
// at most; else 1.
// At most `drivers` make them; each has workers of its own on the nodes that it uses.
int RunAtScale(uint64_t seed, int nodes, int drivers);

// A cluster of `nodes` in which 1,000 tasks a node wait, and each node ends 3,200 calls a second: what
// it takes to be told of all of it. 0: each comes within 0.3 s, 1.5 kB a node and 2.5 kB a lane that is
// shown, and of each node what is asked of nodes.
int RunLookedAt(uint64_t seed, int nodes);

}  // namespace sheaf::sim
