// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Placement groups. Those of this node's processes live and die with their creator and are this
// raylet's alone; named and detached ones are registered with the GCS first, which has detached
// ones placed anew when they lose their place.
#include "base/status_macros.h"
#include "raylet/parse_frame.h"
#include "raylet/raylet.h"

namespace sheaf {
namespace {

proto::GroupState Gone(PlacementGroupId id, const std::string& words) {
  proto::GroupState state;
  state.set_id(id.Binary());
  state.set_state(proto::GroupState::REMOVED);
  state.set_message(words);
  return state;
}

}  // namespace

absl::Status Raylet::OnGroupRequest(ProcessId from, const Frame& frame) {
  SHEAF_ASSIGN_OR_RETURN(const auto request, ParseFrame<proto::GroupRequest>(frame));
  SHEAF_ASSIGN_OR_RETURN(const auto id, PlacementGroupId::FromBinary(request.id()));
  switch (request.action()) {
    case proto::GroupRequest::CREATE:
      return CreateGroup(from, id, request);
    case proto::GroupRequest::REMOVE:
      if (registered_groups_.contains(id)) {
        proto::GcsRequest removal;
        removal.mutable_remove_group()->set_group_id(id.Binary());
        gcs_.Command(std::move(removal), nullptr);
      }
      if (!groups_.OnRemove(id, Now())) SendMessage(To(from), FrameKind::kGroupState, Gone(id, ""));
      return absl::OkStatus();
    case proto::GroupRequest::WATCH:
      if (groups_.Find(id) == nullptr) {
        SendMessage(To(from), FrameKind::kGroupState, Gone(id, "no such placement group"));
        return absl::OkStatus();
      }
      group_watchers_[id].insert(from);
      SendMessage(To(from), FrameKind::kGroupState, group_states_[id]);
      return absl::OkStatus();
    default:
      return absl::InvalidArgumentError("an unknown action on a placement group");
  }
}

absl::Status Raylet::CreateGroup(ProcessId from, PlacementGroupId id,
                                 const proto::GroupRequest& request) {
  absl::StatusOr<GroupSpec> spec = ParseGroupSpec(request);
  if (spec.ok() && id.maker() != from) {
    spec = absl::InvalidArgumentError("the id of a placement group names its creator");
  }
  if (!spec.ok()) {  // What the user asked for can be wrong without the process being so.
    SendMessage(To(from), FrameKind::kGroupState, Gone(id, std::string(spec.status().message())));
    return absl::OkStatus();
  }
  group_watchers_[id].insert(from);
  if (groups_.Find(id) != nullptr || (!spec->detached && spec->name.empty())) {
    groups_.OnCreate(*std::move(spec), from, Now());
    return absl::OkStatus();
  }
  proto::GcsRequest registration;
  proto::RegisterGroup& group = *registration.mutable_register_group();
  group.set_group_id(id.Binary());
  group.set_name(spec->name);
  if (const auto job = jobs_.find(processes_.at(from).job); job != jobs_.end()) {
    group.set_job(job->second.number);
    group.set_name_space(job->second.start.name_space());
  }
  *group.mutable_bundles() = request.bundles();
  *group.mutable_selectors() = request.selectors();
  group.set_placement(request.placement());
  group.set_detached(spec->detached);
  gcs_.Command(std::move(registration),
               [this, from, id, spec = *std::move(spec)](const proto::GcsReply& reply) {
                 if (reply.error() != 0) {
                   if (IsAlive(from))
                     SendMessage(To(from), FrameKind::kGroupState, Gone(id, reply.message()));
                   group_watchers_.erase(id);
                   return;
                 }
                 if (!spec.detached && !IsAlive(from)) return;
                 registered_groups_[id] = reply.group().placement_number();
                 groups_.OnCreate(spec, spec.detached ? RayletOf(options_.node) : from, Now());
               });
  return absl::OkStatus();
}

void Raylet::Perform(const GroupAction& action) {
  switch (action.kind) {
    case GroupAction::Kind::kPrepare:  // The view has one node, so there is no other to ask.
      groups_.OnPrepared(action.group, action.node, action.attempt, false, Now());
      return;
    case GroupAction::Kind::kCommit:
    case GroupAction::Kind::kReturn:
      return;
    case GroupAction::Kind::kState:
      break;
  }
  proto::GroupState state;
  state.set_id(action.group.Binary());
  state.set_state(action.state);
  for (const NodeNumber node : action.bundle_nodes) state.add_bundle_nodes(node);
  state.set_message(action.words);
  const bool removed = action.state == proto::GroupState::REMOVED;
  if (const auto watchers = group_watchers_.find(action.group); watchers != group_watchers_.end()) {
    for (const ProcessId watcher : watchers->second) {
      if (IsAlive(watcher)) SendMessage(To(watcher), FrameKind::kGroupState, state);
    }
    if (removed) group_watchers_.erase(watchers);
  }
  if (removed) {
    group_states_.erase(action.group);
  } else {
    group_states_[action.group] = state;
  }
  ReportGroup(action.group, state);
  if (removed) registered_groups_.erase(action.group);
  queue_.OnGroupChanged(action.group, Now());
  if (removed) queue_.OnRoom(Now());
  queue_.SetGroupWaiting(groups_.WaitingHere(), Now());
}

void Raylet::ReportGroup(PlacementGroupId id, const proto::GroupState& state) {
  const auto registered = registered_groups_.find(id);
  if (registered == registered_groups_.end()) return;
  proto::GcsRequest request;
  proto::GroupReport& report = *request.mutable_group_report();
  report.set_group_id(id.Binary());
  report.set_placement_number(registered->second);
  switch (state.state()) {
    case proto::GroupState::CREATED:
      report.set_state(proto::GroupInfo::CREATED);
      break;
    case proto::GroupState::REMOVED:
      report.set_state(proto::GroupInfo::REMOVED);
      break;
    default:
      report.set_state(proto::GroupInfo::PENDING);
      break;
  }
  *report.mutable_bundle_nodes() = state.bundle_nodes();
  report.set_words(state.message());
  gcs_.Command(std::move(request), nullptr);
}

void Raylet::OnPlaceGroup(const proto::PlaceGroup& message) {
  const auto id = PlacementGroupId::FromBinary(message.group().group_id());
  if (!id.ok()) return;
  registered_groups_[*id] = message.group().placement_number();
  if (const auto known = group_states_.find(*id); known != group_states_.end()) {
    ReportGroup(*id, known->second);
    return;
  }
  proto::GroupRequest request;
  request.set_id(message.group().group_id());
  *request.mutable_bundles() = message.group().bundles();
  *request.mutable_selectors() = message.group().selectors();
  request.set_placement(message.group().placement());
  request.set_name(message.group().name());
  request.set_detached(true);
  absl::StatusOr<GroupSpec> spec = ParseGroupSpec(request);
  if (spec.ok()) groups_.OnCreate(*std::move(spec), RayletOf(options_.node), Now());
}

void Raylet::OnDropGroup(const proto::DropGroup& message) {
  const auto id = PlacementGroupId::FromBinary(message.group_id());
  if (!id.ok()) return;
  const auto it = registered_groups_.find(*id);
  if (it != registered_groups_.end() && it->second > message.placement_number()) return;
  if (groups_.OnRemove(*id, Now())) return;
  registered_groups_[*id] = message.placement_number();
  ReportGroup(*id, Gone(*id, ""));
  registered_groups_.erase(*id);
}

void Raylet::DropWatcher(ProcessId process) {
  for (auto it = group_watchers_.begin(); it != group_watchers_.end();) {
    it->second.erase(process);
    it = it->second.empty() ? group_watchers_.erase(it) : std::next(it);
  }
}

}  // namespace sheaf
