// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "raylet/jobs/placement_group_coordinator.h"

#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/parse_frame.h"
#include "base/status_macros.h"

namespace sheaf {
namespace {

constexpr size_t kGroupsRemembered = 1000;  // Of other raylets, after their end.

proto::GroupState Gone(PlacementGroupId id, const std::string& message) {
  proto::GroupState state;
  state.set_id(id.Binary());
  state.set_state(proto::GroupState::REMOVED);
  state.set_message(message);
  return state;
}

}  // namespace

PlacementGroupCoordinator::PlacementGroupCoordinator(const Deps& deps)
    : deps_(deps),
      groups_(deps.ledger, deps.view),
      placers_({deps.view.local, deps.clock, deps.gcs, deps.deaths},
               [this](PlacementGroupId id, NodeNumber node) { OnPlacer(id, node); }) {}

absl::Status PlacementGroupCoordinator::OnRequest(ProcessId from, const Frame& frame) {
  SHEAF_ASSIGN_OR_RETURN(const auto request, ParseFrame<proto::GroupRequest>(frame));
  SHEAF_ASSIGN_OR_RETURN(const auto id, PlacementGroupId::FromBinary(request.id()));
  switch (request.action()) {
    case proto::GroupRequest::CREATE:
      return Create(from, id, request);
    case proto::GroupRequest::REMOVE:
      Remove(from, id, request);
      return absl::OkStatus();
    case proto::GroupRequest::WATCH:
      Watch(from, id);
      return absl::OkStatus();
    default:
      return absl::InvalidArgumentError("an unknown action on a placement group");
  }
}

void PlacementGroupCoordinator::Remove(ProcessId from, PlacementGroupId id,
                                       const proto::GroupRequest& request) {
  if (IsElsewhere(id)) {
    if (!placers_.IsMoved(id) && placers_.Of(id) != 0) {
      SendMessage(To(RayletOf(placers_.Of(id))), FrameKind::kGroupRequest, request);
    } else {  // Only the GCS knows all who have something of it.
      RemoveFromGcs(id);
      placers_.Ask(id);
    }
    return;
  }
  if (IsRegistering(id)) {
    groups_.OnNeverMade(id, "");
    RemoveFromGcs(id);
    return;
  }
  if (registered_.contains(id)) RemoveFromGcs(id);
  if (!groups_.OnRemove(id, Now())) SendMessage(To(from), FrameKind::kGroupState, Gone(id, ""));
}

// A group of this node stands in the view from its registration on, and in the ledger only when the
// GCS has answered that.
bool PlacementGroupCoordinator::IsRegistering(PlacementGroupId id) const {
  const auto known = deps_.view.groups.find(id);
  return id.maker().node == deps_.view.local && groups_.Find(id) == nullptr &&
         known != deps_.view.groups.end() && known->second.state == GroupPlacement::State::kPending;
}

void PlacementGroupCoordinator::Watch(ProcessId from, PlacementGroupId id) {
  if (IsElsewhere(id)) {
    watchers_[id].insert(from);
    if (from.is_raylet()) {  // The GCS has named this node to it, and the order is on its way.
      placers_.Ask(id);
    } else {
      AskAbout(id);
    }
    return;
  }
  proto::GroupState state = Gone(id, "no such placement group");
  if (groups_.Find(id) != nullptr) {
    state = states_[id];
  } else if (IsRegistering(id)) {
    state.set_state(proto::GroupState::PENDING);
    state.set_message("is on its way to the GCS");
  }
  if (state.state() != proto::GroupState::REMOVED) watchers_[id].insert(from);
  SendMessage(To(from), FrameKind::kGroupState, state);
}

absl::Status PlacementGroupCoordinator::Create(ProcessId from, PlacementGroupId id,
                                               const proto::GroupRequest& request) {
  absl::StatusOr<GroupSpec> spec = ParseGroupSpec(request);
  if (spec.ok() && id.maker() != from) {
    spec = absl::InvalidArgumentError("the id of a placement group names its creator");
  }
  if (!spec.ok()) {  // What the user asked for can be wrong without the process being so.
    SendMessage(To(from), FrameKind::kGroupState, Gone(id, std::string(spec.status().message())));
    return absl::OkStatus();
  }
  watchers_[id].insert(from);
  if (groups_.Find(id) != nullptr || (!spec->detached && spec->name.empty())) {
    groups_.OnCreate(*std::move(spec), CreatorOf(from), Now());
    return absl::OkStatus();
  }
  proto::GcsRequest registration;
  proto::RegisterGroup& group = *registration.mutable_register_group();
  group.set_group_id(id.Binary());
  group.set_name(spec->name);
  if (const NodeJob* job = deps_.jobs.Find(deps_.processes.at(from).job); job != nullptr) {
    group.set_job(job->number);
    group.set_name_space(job->start.name_space());
  }
  *group.mutable_bundles() = request.bundles();
  *group.mutable_selectors() = request.selectors();
  group.set_placement(request.placement());
  group.set_detached(spec->detached);
  deps_.view.groups.try_emplace(id);
  deps_.gcs.Command(std::move(registration),
                    [this, creator = CreatorOf(from), spec = *std::move(spec)](
                        const proto::GcsReply& reply) { OnRegistered(creator, spec, reply); });
  return absl::OkStatus();
}

// Groups end with their job, not with the worker whose call made them: its driver counts as their
// creator; of who works on without it, the actor that called it, as far as this node knows.
ProcessId PlacementGroupCoordinator::CreatorOf(ProcessId maker) const {
  const JobNumber number = deps_.processes.at(maker).job;
  const NodeJob* job = deps_.jobs.Find(number);
  if (job == nullptr) return maker;
  if (!deps_.jobs.OutlivesDriver(maker, number)) return job->ended ? maker : job->driver;
  ProcessId creator = maker;
  for (auto process = deps_.processes.find(maker); process != deps_.processes.end();
       process = deps_.processes.find(creator)) {
    const Lease* lease = deps_.queue.Find(process->second.lease);
    if (lease == nullptr || lease->spec->actor || lease->demand.owner.is_raylet() ||
        !deps_.deaths.IsReachable(lease->demand.owner)) {
      break;
    }
    creator = lease->demand.owner;
  }
  return creator;
}

void PlacementGroupCoordinator::OnRegistered(ProcessId creator, const GroupSpec& spec,
                                             const proto::GcsReply& reply) {
  const auto known = deps_.view.groups.find(spec.id);
  const bool removed =
      known != deps_.view.groups.end() && known->second.state == GroupPlacement::State::kRemoved;
  if (reply.error() != 0) return groups_.OnNeverMade(spec.id, reply.message());
  const NodeJob* job = deps_.jobs.Find(deps_.jobs.OfDriver(creator));
  const bool is_over = job == nullptr
                           ? creator.node == Self().node && !deps_.processes.contains(creator)
                           : job->ended;
  const bool orphaned = !spec.detached && (is_over || !deps_.deaths.IsReachable(creator));
  if (removed || orphaned) {
    groups_.OnNeverMade(spec.id, "its creator is gone");
    // What was said of its end before may have come ahead of the registration.
    return RemoveFromGcs(spec.id);
  }
  registered_[spec.id] = reply.group().placement_number();
  if (!spec.detached) attached_[spec.id] = reply.group();
  groups_.OnCreate(spec, spec.detached ? Self() : creator, Now());
}

void PlacementGroupCoordinator::RemoveFromGcs(PlacementGroupId id) {
  proto::GcsRequest removal;
  removal.mutable_remove_group()->set_group_id(id.Binary());
  deps_.gcs.Insist(std::move(removal));
}

void PlacementGroupCoordinator::Apply(const GroupAction& action) {
  switch (action.kind) {
    case GroupAction::Kind::kPrepare:
      return SendBundles(action, FrameKind::kPrepareBundles);
    case GroupAction::Kind::kCommit:
      return SendBundles(action, FrameKind::kCommitBundles);
    case GroupAction::Kind::kReturn:
      return SendBundles(action, FrameKind::kReturnBundles);
    case GroupAction::Kind::kState:
      return OnStateChanged(action);
  }
}

void PlacementGroupCoordinator::OnStateChanged(const GroupAction& action) {
  proto::GroupState state;
  state.set_id(action.group.Binary());
  state.set_state(action.state);
  for (const NodeNumber node : action.bundle_nodes) state.add_bundle_nodes(node);
  state.set_message(action.message);
  const bool removed = action.state == proto::GroupState::REMOVED;
  ReportToGcs(action.group, state);
  if (removed) {
    states_.erase(action.group);
    registered_.erase(action.group);
    attached_.erase(action.group);
    if (placers_.IsMoved(action.group)) return LosePlacer(action.group, action.message);
  }
  for (const NodeNumber node : action.bundle_nodes) {  // They get tasks for it.
    if (node != deps_.view.local) watchers_[action.group].insert(RayletOf(node));
  }
  TellWatchers(action.group, state);
  if (!removed) states_[action.group] = state;
  deps_.queue.OnGroupChanged(action.group, Now());
  if (removed) deps_.queue.OnRoom(Now());
  deps_.queue.SetGroupWaiting(groups_.WaitingHere(), Now());
}

void PlacementGroupCoordinator::TellWatchers(PlacementGroupId id, const proto::GroupState& state) {
  const auto watchers = watchers_.find(id);
  if (watchers == watchers_.end()) return;
  for (const ProcessId watcher : watchers->second) {
    if (deps_.deaths.IsReachable(watcher)) SendMessage(To(watcher), FrameKind::kGroupState, state);
  }
  if (state.state() == proto::GroupState::REMOVED) watchers_.erase(watchers);
}

bool PlacementGroupCoordinator::IsElsewhere(PlacementGroupId id) const {
  return groups_.Find(id) == nullptr &&
         (id.maker().node != deps_.view.local || placers_.IsMoved(id));
}

bool PlacementGroupCoordinator::IsUnknown(PlacementGroupId id) const {
  return !deps_.view.groups.contains(id) && !IsElsewhere(id) && groups_.Find(id) == nullptr;
}

void PlacementGroupCoordinator::AskAbout(PlacementGroupId id) {
  const NodeNumber node = placers_.Of(id);
  if (node == 0) return placers_.Ask(id);
  proto::GroupRequest request;
  request.set_action(proto::GroupRequest::WATCH);
  request.set_id(id.Binary());
  SendMessage(To(RayletOf(node)), FrameKind::kGroupRequest, request);
}

// Other raylets that asked here ask the GCS themselves: none passes on what it only follows.
void PlacementGroupCoordinator::OnPlacer(PlacementGroupId id, NodeNumber node) {
  if (groups_.Find(id) != nullptr) return placers_.Forget(id);
  if (node == 0) {
    const NodeNumber maker = id.maker().node;
    return End(id, deps_.deaths.IsNodeDead(maker)
                       ? absl::StrCat("it is gone, as is node ", maker, ", where it was made")
                       : "it is gone");
  }
  const proto::GroupState elsewhere = Gone(id, absl::StrCat("node ", node, " places it"));
  absl::btree_set<ProcessId>& watchers = watchers_[id];
  for (auto it = watchers.begin(); it != watchers.end();) {
    if (!it->is_raylet()) {
      ++it;
      continue;
    }
    if (deps_.deaths.IsReachable(*it)) SendMessage(To(*it), FrameKind::kGroupState, elsewhere);
    it = watchers.erase(it);
  }
  if (watchers.empty()) watchers_.erase(id);
  AskAbout(id);
}

// The node that placed a group is dead, or does so no more. Until the GCS has said whether another
// does, the group waits.
void PlacementGroupCoordinator::LosePlacer(PlacementGroupId id, const std::string& message) {
  deps_.view.groups[id] = {};
  proto::GroupState state;
  state.set_id(id.Binary());
  state.set_state(proto::GroupState::PENDING);
  state.set_message(message);
  TellWatchers(id, state);
  placers_.Ask(id);
  deps_.queue.OnGroupChanged(id, Now());
  deps_.queue.OnRoom(Now());
  deps_.queue.SetGroupWaiting(groups_.WaitingHere(), Now());
}

// A group of another raylet is no more.
void PlacementGroupCoordinator::End(PlacementGroupId id, const std::string& message) {
  ForgetLater(id, &deps_.view.groups[id]);
  TellWatchers(id, Gone(id, message));
  deps_.queue.OnGroupChanged(id, Now());
}

void PlacementGroupCoordinator::FollowGroupOf(const proto::LeaseSpec& spec) {
  if (spec.strategy().kind() != proto::Strategy::PLACEMENT_GROUP) return;
  const auto group = PlacementGroupId::FromBinary(spec.strategy().group_id());
  if (group.ok() && IsElsewhere(*group) && !deps_.view.groups.contains(*group)) AskAbout(*group);
}

void PlacementGroupCoordinator::TellPlace(PlacementGroupId id) {
  const auto state = states_.find(id);
  if (state == states_.end() || registered_.contains(id)) return;
  proto::GcsRequest request;
  proto::GroupReport& report = *request.mutable_group_report();
  report.set_group_id(id.Binary());
  report.set_state(state->second.state() == proto::GroupState::CREATED ? proto::GroupInfo::CREATED
                                                                       : proto::GroupInfo::PENDING);
  *report.mutable_bundle_nodes() = state->second.bundle_nodes();
  deps_.gcs.Command(std::move(request), nullptr);
}

// A group of another raylet is removed; those that were last are remembered.
void PlacementGroupCoordinator::ForgetLater(PlacementGroupId id, GroupPlacement* placement) {
  using State = GroupPlacement::State;
  if (std::exchange(placement->state, State::kRemoved) == State::kRemoved) return;
  removed_elsewhere_.push_back(id);
  if (removed_elsewhere_.size() <= kGroupsRemembered) return;
  const PlacementGroupId oldest = removed_elsewhere_.front();
  removed_elsewhere_.pop_front();
  // A detached group lives again when another node has placed it.
  const auto it = deps_.view.groups.find(oldest);
  if (oldest != id && it != deps_.view.groups.end() && it->second.state == State::kRemoved)
    deps_.view.groups.erase(it);
}

// Of a group that another raylet coordinates.
absl::Status PlacementGroupCoordinator::OnState(const Frame& frame) {
  SHEAF_ASSIGN_OR_RETURN(const auto state, ParseFrame<proto::GroupState>(frame));
  SHEAF_ASSIGN_OR_RETURN(const auto id, PlacementGroupId::FromBinary(state.id()));
  if (groups_.Find(id) != nullptr) return absl::OkStatus();
  if (state.state() == proto::GroupState::REMOVED) {
    // Who came after a dead node may have lost the group to another: the GCS has the last word.
    if (placers_.IsMoved(id) || deps_.deaths.IsNodeDead(id.maker().node)) {
      LosePlacer(id, "its bundles are placed anew");
    } else {
      End(id, state.message());
    }
    return absl::OkStatus();
  }
  GroupPlacement& placement = deps_.view.groups[id];
  placement.bundle_nodes.assign(state.bundle_nodes().begin(), state.bundle_nodes().end());
  placement.state = state.state() == proto::GroupState::CREATED ? GroupPlacement::State::kCreated
                                                                : GroupPlacement::State::kPending;
  TellWatchers(id, state);
  deps_.queue.OnGroupChanged(id, Now());
  return absl::OkStatus();
}

// Of the groups that this raylet coordinates the bundles there are placed anew. The coordinator of
// others is gone: their bundles here go back, and the GCS is asked what becomes of them.
void PlacementGroupCoordinator::OnNodeDead(NodeNumber node) {
  groups_.OnNodeDead(node, Now());
  absl::btree_set<PlacementGroupId> lost;
  std::vector<BundleId> orphans;
  for (const auto& [id, bundle] : deps_.ledger.bundles()) {
    if (bundle.coordinator.node == node) orphans.push_back(id);
  }
  for (const BundleId& bundle : orphans) {
    deps_.ledger.ReturnBundle(bundle);
    lost.insert(bundle.group);
  }
  const auto is_lost = [&](PlacementGroupId id) {
    return placers_.IsBy(id, node) && groups_.Find(id) == nullptr;
  };
  for (const auto& [id, placement] : deps_.view.groups) {
    if (placement.state != GroupPlacement::State::kRemoved && is_lost(id)) lost.insert(id);
  }
  for (const auto& [id, watchers] : watchers_) {
    if (is_lost(id)) lost.insert(id);
  }
  for (const PlacementGroupId id : lost) LosePlacer(id, "the node that placed it is dead");
}

void PlacementGroupCoordinator::ReportToGcs(PlacementGroupId id, const proto::GroupState& state) {
  const auto registered = registered_.find(id);
  if (registered == registered_.end()) return;
  proto::GcsRequest request;
  proto::GroupReport& report = *request.mutable_group_report();
  report.set_group_id(id.Binary());
  report.set_placement_number(registered->second);
  report.set_detached(groups_.IsDetached(id));  // One that the GCS does not know was removed.
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
  deps_.gcs.Command(std::move(request), nullptr);
}

void PlacementGroupCoordinator::OnPlace(const proto::PlaceGroup& message) {
  const auto id = PlacementGroupId::FromBinary(message.group().group_id());
  if (!id.ok()) return;
  registered_[*id] = message.group().placement_number();
  placers_.Forget(*id);
  if (const auto known = states_.find(*id); known != states_.end())
    return ReportToGcs(*id, known->second);
  proto::GroupRequest request;
  request.set_id(message.group().group_id());
  *request.mutable_bundles() = message.group().bundles();
  *request.mutable_selectors() = message.group().selectors();
  request.set_placement(message.group().placement());
  request.set_name(message.group().name());
  request.set_detached(true);
  absl::StatusOr<GroupSpec> spec = ParseGroupSpec(request);
  // Another node placed it, and is dead: what was removed there lives again here.
  if (const auto it = deps_.view.groups.find(*id);
      it != deps_.view.groups.end() && it->second.state == GroupPlacement::State::kRemoved) {
    deps_.view.groups.erase(it);
  }
  if (spec.ok()) groups_.OnCreate(*std::move(spec), Self(), Now());
}

void PlacementGroupCoordinator::OnDrop(const proto::DropGroup& message) {
  const auto id = PlacementGroupId::FromBinary(message.group_id());
  if (!id.ok()) return;
  const auto it = registered_.find(*id);
  if (it != registered_.end() && it->second > message.placement_number()) return;
  // A detached one is placed anew, if it is not removed.
  if (groups_.IsDetached(*id)) placers_.Ask(*id);
  if (groups_.OnRemove(*id, Now())) return;
  registered_[*id] = message.placement_number();
  ReportToGcs(*id, Gone(*id, ""));
  registered_.erase(*id);
}

void PlacementGroupCoordinator::OnProcessGone(ProcessId process) {
  groups_.OnOwnerGone(process, Now());
  for (auto it = watchers_.begin(); it != watchers_.end();) {
    it->second.erase(process);
    it = it->second.empty() ? watchers_.erase(it) : std::next(it);
  }
}

bool PlacementGroupCoordinator::Settle() {
  if (std::exchange(room_came_, false) && groups_.pending() > 0) groups_.OnRoom(Now());
  const std::vector<GroupAction> actions = groups_.TakeActions();
  for (const GroupAction& action : actions) Apply(action);
  return !actions.empty();
}

bool PlacementGroupCoordinator::Sweep(PlacementGroupId id) {
  const PlacementGroupLedger::Group* group = groups_.Find(id);
  if (group == nullptr) return states_.erase(id) > 0;
  if (group->spec.detached || deps_.deaths.IsReachable(group->creator)) return false;
  groups_.OnOwnerGone(group->creator, Now());
  return true;
}

void PlacementGroupCoordinator::FillReport(proto::NodeReport* report) const {
  for (const auto& [id, number] : registered_) {
    const auto state = states_.find(id);
    if (state == states_.end()) continue;
    proto::GroupReport& group = *report->add_groups();
    group.set_group_id(id.Binary());
    group.set_placement_number(number);
    group.set_detached(groups_.IsDetached(id));  // As in ReportToGcs.
    const bool created = state->second.state() == proto::GroupState::CREATED;
    group.set_state(created ? proto::GroupInfo::CREATED : proto::GroupInfo::PENDING);
    *group.mutable_bundle_nodes() = state->second.bundle_nodes();
    if (const auto attached = attached_.find(id); attached != attached_.end())
      *report->add_attached_groups() = attached->second;
  }
}

}  // namespace sheaf
