// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "worker/core/placement_groups.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "worker/limits.h"

namespace sheaf {

absl::StatusOr<PlacementGroupId> PlacementGroups::Create(proto::GroupRequest request,
                                                         uint64_t sequence) {
  if (request.bundles().empty())
    return absl::InvalidArgumentError("a placement group has at least one bundle");
  const auto id = PlacementGroupId::Make(self_, sequence);
  request.set_action(proto::GroupRequest::CREATE);
  request.set_id(id.Binary());
  if (const size_t size = request.ByteSizeLong(); size > kMaxGroupBytes) {
    return TooLarge(absl::StrCat("a placement group of ", request.bundles_size(), " bundles"), size,
                    kMaxGroupBytes, "make several, or shorten their names and labels");
  }
  groups_[id].set_state(proto::GroupState::PENDING);
  Send(request);
  return id;
}

void PlacementGroups::Remove(PlacementGroupId group) {
  groups_.erase(group);
  Ask(proto::GroupRequest::REMOVE, group);
}

void PlacementGroups::Watch(PlacementGroupId group) {
  if (groups_.contains(group)) return;
  groups_[group].set_state(proto::GroupState::PENDING);
  Ask(proto::GroupRequest::WATCH, group);
}

const proto::GroupState* PlacementGroups::Find(PlacementGroupId group) const {
  const auto found = groups_.find(group);
  return found == groups_.end() ? nullptr : &found->second;
}

void PlacementGroups::OnState(proto::GroupState state) {
  const auto id = PlacementGroupId::FromBinary(state.id());
  if (!id.ok()) return;
  // The last word on a group that was removed here: nobody asks for it again.
  if (state.state() == proto::GroupState::REMOVED && !groups_.contains(*id)) return;
  groups_[*id] = std::move(state);
}

void PlacementGroups::Ask(proto::GroupRequest::Action action, PlacementGroupId group) {
  proto::GroupRequest request;
  request.set_action(action);
  request.set_id(group.Binary());
  Send(request);
}

void PlacementGroups::Send(const proto::GroupRequest& request) {
  SendMessage(rings_.To(RayletOf(self_.node)), FrameKind::kGroupRequest, request);
}

}  // namespace sheaf
