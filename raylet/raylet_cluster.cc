// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What follows from changes of the cluster.
#include "raylet/raylet.h"

namespace sheaf {

void Raylet::OnNodeLink(NodeNumber node, bool up) {
  silence_.OnNodeLink(node, up);
  follower_.OnNodeLink(node, up);
}

void Raylet::OnDraining() {
  detached_.OnDraining();
  groups_.OnRoom();  // Placement groups that were to come here go elsewhere.
}

}  // namespace sheaf
