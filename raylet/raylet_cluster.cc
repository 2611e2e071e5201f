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
  room_came_ = true;  // Placement groups that were to come here go elsewhere.
}

bool Raylet::IsDrained() const {
  const NodeView* here = view_.Find(options_.node);
  return here->draining && queue_.leases_out() == 0 &&
         std::none_of(processes_.begin(), processes_.end(), [](const auto& entry) {
           return entry.second.info.role == ProcessRole::kDriver;
         });
}

}  // namespace sheaf
