// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Placement groups. Those of this node's processes live and die with their creator and are this
// raylet's alone; named and detached ones are registered with the GCS first, which has detached
// ones placed anew when they lose their place.
#include "base/parse_frame.h"
#include "base/status_macros.h"
#include "raylet/raylet.h"

namespace sheaf {
namespace {

constexpr size_t kGroupsRemembered = 1000;  // Of other raylets, after their end.

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
      if (IsElsewhere(id)) {
        SendMessage(To(RayletOf(id.maker().node)), FrameKind::kGroupRequest, request);
        return absl::OkStatus();
      }
      if (IsRegistering(id)) {
        groups_.OnNeverMade(id, "");
        RemoveFromGcs(id);
        return absl::OkStatus();
      }
      if (registered_groups_.contains(id)) RemoveFromGcs(id);
      if (!groups_.OnRemove(id, Now())) SendMessage(To(from), FrameKind::kGroupState, Gone(id, ""));
      return absl::OkStatus();
    case proto::GroupRequest::WATCH:
      if (IsElsewhere(id)) {
        group_watchers_[id].insert(from);
        FollowGroup(id);
        return absl::OkStatus();
      }
      return WatchGroup(from, id);
    default:
      return absl::InvalidArgumentError("an unknown action on a placement group");
  }
}

// A group of this node stands in the view from its registration on, and in the ledger only when the
// GCS has answered that.
bool Raylet::IsRegistering(PlacementGroupId id) const {
  const auto known = view_.groups.find(id);
  return id.maker().node == options_.node && groups_.Find(id) == nullptr &&
         known != view_.groups.end() && known->second.state == GroupPlacement::State::kPending;
}

absl::Status Raylet::WatchGroup(ProcessId from, PlacementGroupId id) {
  proto::GroupState state = Gone(id, "no such placement group");
  if (groups_.Find(id) != nullptr) {
    state = group_states_[id];
  } else if (IsRegistering(id)) {
    state.set_state(proto::GroupState::PENDING);
    state.set_message("is on its way to the GCS");
  }
  if (state.state() != proto::GroupState::REMOVED) group_watchers_[id].insert(from);
  SendMessage(To(from), FrameKind::kGroupState, state);
  return absl::OkStatus();
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
  if (const NodeJob* job = jobs_.Find(processes_.at(from).job); job != nullptr) {
    group.set_job(job->number);
    group.set_name_space(job->start.name_space());
  }
  *group.mutable_bundles() = request.bundles();
  *group.mutable_selectors() = request.selectors();
  group.set_placement(request.placement());
  group.set_detached(spec->detached);
  view_.groups.try_emplace(id);
  gcs_.Command(std::move(registration),
               [this, from, spec = *std::move(spec)](const proto::GcsReply& reply) {
                 OnGroupRegistered(from, spec, reply);
               });
  return absl::OkStatus();
}

void Raylet::OnGroupRegistered(ProcessId from, const GroupSpec& spec,
                               const proto::GcsReply& reply) {
  const auto known = view_.groups.find(spec.id);
  const bool removed =
      known != view_.groups.end() && known->second.state == GroupPlacement::State::kRemoved;
  if (reply.error() != 0) return groups_.OnNeverMade(spec.id, reply.message());
  const bool orphaned = !spec.detached && !deaths_.IsAlive(from);
  if (removed || orphaned) {
    groups_.OnNeverMade(spec.id, "its creator is gone");
    // What was said of its end before may have come ahead of the registration.
    return RemoveFromGcs(spec.id);
  }
  registered_groups_[spec.id] = reply.group().placement_number();
  if (!spec.detached) attached_groups_[spec.id] = reply.group();
  groups_.OnCreate(spec, spec.detached ? RayletOf(options_.node) : from, Now());
}

void Raylet::RemoveFromGcs(PlacementGroupId id) {
  proto::GcsRequest removal;
  removal.mutable_remove_group()->set_group_id(id.Binary());
  gcs_.Insist(std::move(removal));
}

void Raylet::Perform(const GroupAction& action) {
  switch (action.kind) {
    case GroupAction::Kind::kPrepare:
      return SendBundles(action, FrameKind::kPrepareBundles);
    case GroupAction::Kind::kCommit:
      return SendBundles(action, FrameKind::kCommitBundles);
    case GroupAction::Kind::kReturn:
      return SendBundles(action, FrameKind::kReturnBundles);
    case GroupAction::Kind::kState:
      break;
  }
  proto::GroupState state;
  state.set_id(action.group.Binary());
  state.set_state(action.state);
  for (const NodeNumber node : action.bundle_nodes) state.add_bundle_nodes(node);
  state.set_message(action.words);
  const bool removed = action.state == proto::GroupState::REMOVED;
  for (const NodeNumber node : action.bundle_nodes) {  // They get tasks for it.
    if (node != options_.node) group_watchers_[action.group].insert(RayletOf(node));
  }
  TellWatchers(action.group, state);
  if (removed) {
    group_states_.erase(action.group);
  } else {
    group_states_[action.group] = state;
  }
  ReportGroup(action.group, state);
  if (removed) {
    registered_groups_.erase(action.group);
    attached_groups_.erase(action.group);
  }
  queue_.OnGroupChanged(action.group, Now());
  if (removed) queue_.OnRoom(Now());
  queue_.SetGroupWaiting(groups_.WaitingHere(), Now());
}

void Raylet::TellWatchers(PlacementGroupId id, const proto::GroupState& state) {
  const auto watchers = group_watchers_.find(id);
  if (watchers == group_watchers_.end()) return;
  for (const ProcessId watcher : watchers->second) {
    if (deaths_.IsReachable(watcher)) SendMessage(To(watcher), FrameKind::kGroupState, state);
  }
  if (state.state() == proto::GroupState::REMOVED) group_watchers_.erase(watchers);
}

// ---- Groups over several nodes. The raylet of the creator's node coordinates: it asks the others
// to prepare their bundles, then to commit them, and tells all that know the group of its state.

bool Raylet::IsElsewhere(PlacementGroupId id) const {
  return id.maker().node != options_.node && groups_.Find(id) == nullptr &&
         !deaths_.IsNodeDead(id.maker().node);
}

void Raylet::FollowGroup(PlacementGroupId id) {
  proto::GroupRequest request;
  request.set_action(proto::GroupRequest::WATCH);
  request.set_id(id.Binary());
  SendMessage(To(RayletOf(id.maker().node)), FrameKind::kGroupRequest, request);
}

void Raylet::FollowGroupOf(const proto::LeaseSpec& spec) {
  if (spec.strategy().kind() != proto::Strategy::PLACEMENT_GROUP) return;
  const auto group = PlacementGroupId::FromBinary(spec.strategy().group_id());
  if (group.ok() && IsElsewhere(*group) && !view_.groups.contains(*group)) FollowGroup(*group);
}

// The GCS does not know of a group that is neither named nor detached, and is to start an actor in
// it.
void Raylet::TellPlace(PlacementGroupId id) {
  const auto state = group_states_.find(id);
  if (state == group_states_.end() || registered_groups_.contains(id)) return;
  proto::GcsRequest request;
  proto::GroupReport& report = *request.mutable_group_report();
  report.set_group_id(id.Binary());
  report.set_state(state->second.state() == proto::GroupState::CREATED ? proto::GroupInfo::CREATED
                                                                       : proto::GroupInfo::PENDING);
  *report.mutable_bundle_nodes() = state->second.bundle_nodes();
  gcs_.Command(std::move(request), nullptr);
}

void Raylet::SendBundles(const GroupAction& action, FrameKind kind) {
  proto::Bundles message;
  message.set_group_id(action.group.Binary());
  message.set_attempt(action.attempt);
  for (const auto& [bundle, resources] : action.bundles) {
    message.add_indexes(static_cast<uint32_t>(bundle.index));
    resources.ToMap(*message.add_resources()->mutable_amounts());
  }
  SendMessage(To(RayletOf(action.node)), kind, message);
}

absl::Status Raylet::OnBundles(ProcessId from, const Frame& frame) {
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
    for (const BundleId& bundle : bundles) SHEAF_RETURN_IF_ERROR(ledger_.Commit(bundle));
  } else {
    for (const BundleId& bundle : bundles) ledger_.ReturnBundle(bundle);
    queue_.OnGroupChanged(id, Now());
  }
  room_came_ = true;
  queue_.OnRoom(Now());
  return absl::OkStatus();
}

// All or none.
bool Raylet::PrepareBundles(ProcessId coordinator, const std::vector<BundleId>& bundles,
                            const proto::Bundles& message) {
  for (size_t i = 0; i < bundles.size(); ++i) {
    const auto resources = Resources::FromMap(message.resources(static_cast<int>(i)).amounts());
    if (resources.ok() && ledger_.Prepare(bundles[i], *resources, coordinator).ok()) continue;
    for (size_t done = 0; done < i; ++done) ledger_.ReturnBundle(bundles[done]);
    return false;
  }
  return true;
}

// A group of another raylet is removed; those that were last are remembered.
void Raylet::ForgetLater(PlacementGroupId id, GroupPlacement* placement) {
  using State = GroupPlacement::State;
  if (std::exchange(placement->state, State::kRemoved) == State::kRemoved) return;
  removed_elsewhere_.push_back(id);
  if (removed_elsewhere_.size() <= kGroupsRemembered) return;
  const PlacementGroupId oldest = removed_elsewhere_.front();
  removed_elsewhere_.pop_front();
  // A detached group lives again when another node has placed it.
  const auto it = view_.groups.find(oldest);
  if (oldest != id && it != view_.groups.end() && it->second.state == State::kRemoved)
    view_.groups.erase(it);
}

// Of a group that another raylet coordinates.
absl::Status Raylet::OnRemoteGroupState(const Frame& frame) {
  SHEAF_ASSIGN_OR_RETURN(const auto state, ParseFrame<proto::GroupState>(frame));
  SHEAF_ASSIGN_OR_RETURN(const auto id, PlacementGroupId::FromBinary(state.id()));
  if (groups_.Find(id) != nullptr) return absl::OkStatus();
  GroupPlacement& placement = view_.groups[id];
  placement.bundle_nodes.assign(state.bundle_nodes().begin(), state.bundle_nodes().end());
  switch (state.state()) {
    case proto::GroupState::CREATED:
      placement.state = GroupPlacement::State::kCreated;
      break;
    case proto::GroupState::REMOVED:
      ForgetLater(id, &placement);
      break;
    default:
      placement.state = GroupPlacement::State::kPending;
      break;
  }
  TellWatchers(id, state);
  queue_.OnGroupChanged(id, Now());
  return absl::OkStatus();
}

// The coordinator of these groups is gone: what was only prepared goes back, tasks end.
void Raylet::OnCoordinatorDead(NodeNumber node) {
  std::vector<BundleId> orphans;
  for (const auto& [id, bundle] : ledger_.bundles()) {
    if (bundle.coordinator.node == node) orphans.push_back(id);
  }
  absl::btree_set<PlacementGroupId> groups;
  for (const BundleId& bundle : orphans) {
    ledger_.ReturnBundle(bundle);
    groups.insert(bundle.group);
  }
  for (const PlacementGroupId id : groups) {
    ForgetLater(id, &view_.groups[id]);
    TellWatchers(id, Gone(id, "the node that placed it is dead"));
    queue_.OnGroupChanged(id, Now());
  }
  if (!orphans.empty()) queue_.OnRoom(Now());
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
  // Another node placed it, and is dead: what was removed there lives again here.
  if (const auto it = view_.groups.find(*id);
      it != view_.groups.end() && it->second.state == GroupPlacement::State::kRemoved) {
    view_.groups.erase(it);
  }
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
