// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The placement groups that this process has made or asked about, as its raylet said last. Guarded
// by the runtime's lock.
#pragma once

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "base/ids.h"
#include "base/transport.h"
#include "proto/raylet.pb.h"

namespace sheaf {

class PlacementGroups {
 public:
  // `rings` reaches the raylet of `self`, and outlives this.
  PlacementGroups(ProcessId self, Transport& rings) : self_(self), rings_(rings) {}

  // Asks for a new group, the process's `sequence`-th name. kInvalidArgument: it has no bundle, or
  // is too large to be described.
  absl::StatusOr<PlacementGroupId> Create(proto::GroupRequest request, uint64_t sequence);
  void Remove(PlacementGroupId group);
  // The raylet is asked about a group that is not known here, which is PENDING until it answers.
  void Watch(PlacementGroupId group);
  // nullptr: neither made nor watched here, or removed since.
  const proto::GroupState* Find(PlacementGroupId group) const;
  // It is there, or never will be.
  static bool IsSettled(const proto::GroupState& group) {
    return group.state() != proto::GroupState::PENDING &&
           group.state() != proto::GroupState::INFEASIBLE;
  }

  void OnState(proto::GroupState state);

 private:
  void Ask(proto::GroupRequest::Action action, PlacementGroupId group);
  void Send(const proto::GroupRequest& request);

  const ProcessId self_;
  Transport& rings_;
  absl::flat_hash_map<PlacementGroupId, proto::GroupState> groups_;
};

}  // namespace sheaf
