// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Bundles of groups over several nodes: what the raylets ask of each other, and answer.
#include "absl/status/statusor.h"
#include "base/parse_frame.h"
#include "base/status_macros.h"
#include "raylet/jobs/placement_group_coordinator.h"

namespace sheaf {

void PlacementGroupCoordinator::SendBundles(const GroupAction& action, FrameKind kind) {
  proto::Bundles message;
  message.set_group_id(action.group.Binary());
  message.set_attempt(action.attempt);
  for (const auto& [bundle, resources] : action.bundles) {
    message.add_indexes(static_cast<uint32_t>(bundle.index));
    resources.ToMap(*message.add_resources()->mutable_amounts());
  }
  SendMessage(To(RayletOf(action.node)), kind, message);
}

absl::Status PlacementGroupCoordinator::OnBundles(ProcessId from, const Frame& frame) {
  SHEAF_ASSIGN_OR_RETURN(const auto message, ParseFrame<proto::Bundles>(frame));
  SHEAF_ASSIGN_OR_RETURN(const auto id, PlacementGroupId::FromBinary(message.group_id()));
  if (frame.kind == FrameKind::kBundlesPrepared) {
    groups_.OnPrepared(id, from.node, message.attempt(), message.ok(), Now());
    return absl::OkStatus();
  }
  if (message.indexes_size() != message.resources_size()) {
    return absl::InvalidArgumentError("bundles without their resources");
  }
  std::vector<BundleId> bundles;
  for (const uint32_t index : message.indexes()) {
    bundles.push_back({id, static_cast<int32_t>(index)});
  }
  if (frame.kind == FrameKind::kPrepareBundles) {
    proto::Bundles answer;
    answer.set_group_id(message.group_id());
    answer.set_attempt(message.attempt());
    answer.set_ok(PrepareBundles(from, bundles, message));
    SendMessage(To(from), FrameKind::kBundlesPrepared, answer);
  } else if (frame.kind == FrameKind::kCommitBundles) {
    for (const BundleId& bundle : bundles) SHEAF_RETURN_IF_ERROR(deps_.ledger.Commit(bundle));
  } else {
    for (const BundleId& bundle : bundles) deps_.ledger.ReturnBundle(bundle);
    deps_.queue.OnGroupChanged(id, Now());
  }
  OnRoom();
  deps_.queue.OnRoom(Now());
  return absl::OkStatus();
}

// All or none.
bool PlacementGroupCoordinator::PrepareBundles(ProcessId coordinator,
                                               const std::vector<BundleId>& bundles,
                                               const proto::Bundles& message) {
  for (size_t i = 0; i < bundles.size(); ++i) {
    const auto resources = Resources::FromMap(message.resources(static_cast<int>(i)).amounts());
    if (resources.ok() && deps_.ledger.Prepare(bundles[i], *resources, coordinator).ok()) continue;
    for (size_t done = 0; done < i; ++done) deps_.ledger.ReturnBundle(bundles[done]);
    return false;
  }
  return true;
}

}  // namespace sheaf
