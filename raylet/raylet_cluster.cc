// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What follows from changes of the cluster.
#include <algorithm>

#include "raylet/raylet.h"

namespace sheaf {

void Raylet::OnNodeLink(NodeNumber node, bool up) {
  silence_.OnNodeLink(node, up);
  follower_.OnNodeLink(node, up);
}

void Raylet::OnDraining() {
  std::vector<uint64_t> waiting;  // Detached actors that have no worker yet.
  for (const auto& [id, actor] : detached_) {
    if (actor.worker.process == 0 && !MayStartHere(actor)) waiting.push_back(actor.key);
  }
  for (const uint64_t key : waiting)
    OnDetachedRefused(key, ErrorKind::kNodeDied, "the node drains");
  groups_.OnRoom();  // Placement groups that were to come here go elsewhere.
}

}  // namespace sheaf
