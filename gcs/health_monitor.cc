// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "gcs/health_monitor.h"

#include <algorithm>
#include <utility>

namespace sheaf {

void HealthMonitor::Add(NodeNumber node, Nanos first_silence) {
  nodes_[node] = {clock_.Now(), first_silence};
}

bool HealthMonitor::OnHeard(NodeNumber node) {
  const auto found = nodes_.find(node);
  if (found == nodes_.end()) return false;
  found->second.last_heard = clock_.Now();
  found->second.dead_after = options_.dead_after;
  return std::exchange(found->second.suspect, false);
}

bool HealthMonitor::IsHealthy(NodeNumber node) const {
  const auto found = nodes_.find(node);
  return found != nodes_.end() && !found->second.suspect;
}

std::vector<HealthMonitor::Change> HealthMonitor::Tick() {
  const Nanos now = clock_.Now();
  const Nanos away = now - last_tick_;
  last_tick_ = now;
  if (away >= options_.suspect_after) {
    for (auto& [node, peer] : nodes_) peer.last_heard = std::min(peer.last_heard + away, now);
  }
  std::vector<Change> changes;
  for (auto next = nodes_.begin(); next != nodes_.end();) {
    const auto at = next++;
    const Nanos silent = now - at->second.last_heard;
    if (silent >= at->second.dead_after) {
      changes.push_back({at->first, Health::kDead});
      nodes_.erase(at);
    } else if (silent >= options_.suspect_after && !at->second.suspect) {
      at->second.suspect = true;
      changes.push_back({at->first, Health::kSuspect});
    }
  }
  return changes;
}

}  // namespace sheaf
