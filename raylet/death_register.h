// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Who is dead, of the processes and nodes of the cluster, as far as this node knows, and how the
// last processes of those died. Pure; one thread.
#pragma once

#include <deque>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/clock.h"
#include "base/ids.h"
#include "proto/raylet.pb.h"
#include "raylet/node_tables.h"
#include "scheduling/cluster_view.h"

namespace sheaf {

class DeathRegister {
 public:
  static constexpr size_t kMostRecorded = 10'000;

  // Both outlive it. This node is `view.local`; `attached` are its processes that live.
  DeathRegister(const AttachedProcesses& attached, const ClusterView& view)
      : attached_(attached), view_(view) {}
  DeathRegister(const DeathRegister&) = delete;
  DeathRegister& operator=(const DeathRegister&) = delete;

  // `process`, of any node, died so. What was recorded first stands.
  void Record(ProcessId process, const proto::Death& death);
  // Nothing is left of the dead `process` of this node, or so it seems.
  void RecordNothingLeft(ProcessId process, Nanos now);
  // The GCS has described `node`. It gives each number once, in order.
  void OnNodeDescribed(NodeNumber node);

  // `process` is attached to this raylet, and lives.
  bool IsAlive(ProcessId process) const { return attached_.contains(process); }
  // Whether Record was called for it, not too long ago.
  bool IsRecorded(ProcessId process) const { return deaths_.contains(process); }
  bool IsNodeDead(NodeNumber node) const;
  // A process of this node that is not attached, or one of another that is known to be dead.
  bool IsDead(ProcessId process) const;
  // What is sent to `process` can arrive: it is alive here, or on another node and not known to be
  // dead.
  bool IsReachable(ProcessId process) const { return !IsDead(process); }
  // How `process` died; of one that was never recorded, what can be said of it.
  proto::Death DeathOf(ProcessId process) const;
  // Those of whom nothing has been left for `limit` at most, in that order; older ones are
  // forgotten.
  std::vector<ProcessId> EndedWithin(Nanos limit, Nanos now);

 private:
  const AttachedProcesses& attached_;
  const ClusterView& view_;
  NodeNumber last_described_ = 0;
  absl::flat_hash_map<ProcessId, proto::Death> deaths_;
  std::deque<ProcessId> order_;  // Of `deaths_`.
  std::deque<std::pair<Nanos, ProcessId>> ended_;
};

}  // namespace sheaf
