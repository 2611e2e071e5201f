// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Which nodes are alive, by what they say, on the monotonic clock. Pure: called by the GCS loop
// and by tests/sim.
#pragma once

#include <map>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"

namespace sheaf {

enum class Health : uint8_t { kHealthy, kSuspect, kDead };

class HealthMonitor {
 public:
  struct Options {
    Nanos suspect_after = kSecond;
    Nanos dead_after = 5 * kSecond;
  };
  struct Change {
    NodeNumber node;
    Health health;
    friend bool operator==(const Change&, const Change&) = default;
  };
  HealthMonitor(Options options, const Clock& clock)
      : options_(options), clock_(clock), last_tick_(clock.Now()) {}

  // A node counts as heard of when it is added.
  void Add(NodeNumber node) { Add(node, options_.dead_after); }
  // One that has yet to be heard of for the first time: it is dead after `first_silence` until then.
  void Add(NodeNumber node, Nanos first_silence);
  void Remove(NodeNumber node) { nodes_.erase(node); }
  // The node has said something. True: it was suspect and is healthy again. Nodes that were not
  // added, or are dead, are ignored.
  bool OnHeard(NodeNumber node);
  bool IsHealthy(NodeNumber node) const;
  // What has changed since the last Tick, in the order of the numbers. A dead node is reported
  // once, then forgotten. After a pause of this process the time of the pause counts for nobody:
  // heartbeats may wait unread.
  std::vector<Change> Tick();

 private:
  struct Peer {
    Nanos last_heard;
    Nanos dead_after;
    bool suspect = false;
  };
  const Options options_;
  const Clock& clock_;
  Nanos last_tick_;
  std::map<NodeNumber, Peer> nodes_;
};

}  // namespace sheaf
