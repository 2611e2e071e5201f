// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "raylet/scheduling/placement_group_ledger.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "scheduling/lease_spec.h"

namespace sheaf {

absl::StatusOr<GroupSpec> ParseGroupSpec(const proto::GroupRequest& request) {
  GroupSpec spec;
  SHEAF_ASSIGN_OR_RETURN(spec.id, PlacementGroupId::FromBinary(request.id()));
  if (spec.id.is_nil()) return absl::InvalidArgumentError("a placement group has an id");
  if (request.bundles_size() == 0 || request.bundles_size() > kMaxBundles) {
    return absl::InvalidArgumentError(
        absl::StrCat("a placement group has 1 to ", kMaxBundles, " bundles"));
  }
  if (request.selectors_size() != 0 && request.selectors_size() != request.bundles_size())
    return absl::InvalidArgumentError("label selectors: want one per bundle, or none");
  if (!proto::GroupRequest::Placement_IsValid(request.placement())) {
    return absl::InvalidArgumentError(
        absl::StrCat("placement ", request.placement(), " is unknown here"));
  }
  for (const proto::Resources& bundle : request.bundles()) {
    SHEAF_ASSIGN_OR_RETURN(Resources resources, Resources::FromMap(bundle.amounts()));
    if (resources.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("bundle ", spec.bundles.size(), " asks for nothing"));
    }
    spec.bundles.push_back(std::move(resources));
  }
  for (const proto::LabelSelector& selector : request.selectors()) {
    SHEAF_ASSIGN_OR_RETURN(LabelSelector parsed, ParseSelector(selector));
    spec.selectors.push_back(std::move(parsed));
  }
  spec.policy = static_cast<PlacementGroupPolicy>(request.placement());
  spec.name = request.name();
  spec.detached = request.detached();
  return spec;
}

PlacementGroupLedger::PlacementGroupLedger(ResourceLedger& ledger, ClusterView& view)
    : ledger_(ledger), view_(view) {}
PlacementGroupLedger::~PlacementGroupLedger() = default;

std::vector<GroupAction> PlacementGroupLedger::TakeActions() { return std::exchange(actions_, {}); }

GroupAction PlacementGroupLedger::ActionFor(const Group& group, GroupAction::Kind kind,
                                            NodeNumber node) const {
  GroupAction action;
  action.kind = kind;
  action.group = group.spec.id;
  action.node = node;
  action.attempt = group.attempt;
  return action;
}

void PlacementGroupLedger::SayState(const Group& group, std::string message) {
  GroupAction action = ActionFor(group, GroupAction::Kind::kState, 0);
  action.state = group.state;
  if (group.state == proto::GroupState::CREATED) action.bundle_nodes = group.nodes;
  action.message = std::move(message);
  actions_.push_back(std::move(action));
}

void PlacementGroupLedger::OnCreate(GroupSpec spec, ProcessId creator, Nanos now) {
  const PlacementGroupId id = spec.id;
  if (const auto it = groups_.find(id); it != groups_.end()) {
    SayState(*it->second, "");
    return;
  }
  if (const auto it = view_.groups.find(id);
      it != view_.groups.end() && it->second.state == GroupPlacement::State::kRemoved) {
    GroupAction action;
    action.group = id;
    action.state = proto::GroupState::REMOVED;
    action.message = "it was removed before";
    actions_.push_back(std::move(action));
    return;
  }
  auto made = std::make_unique<Group>();
  Group& group = *made;
  group.spec = std::move(spec);
  group.creator = creator;
  group.nodes.resize(group.spec.bundles.size(), 0);
  group.committed.resize(group.spec.bundles.size(), false);
  group.since = now;
  group.serial = ++last_serial_;
  groups_.emplace(id, std::move(made));
  pending_.emplace(group.serial, &group);
  view_.groups[id] = {};
  const size_t actions = actions_.size();
  SyncView();
  Try(group, now);
  if (group.state == proto::GroupState::PENDING && actions_.size() == actions)
    SayState(group, absl::StrCat("waits for room: ", group.spec.bundles.size(), " bundles"));
}

// Places what is not placed yet, if there is room now.
void PlacementGroupLedger::Try(Group& group, Nanos) {
  std::vector<NodeNumber> kept = group.nodes;
  for (size_t i = 0; i < kept.size(); ++i) kept[i] = group.committed[i] ? kept[i] : 0;
  std::optional<std::vector<NodeNumber>> nodes = PlaceBundles(group.spec, view_, kept);
  if (!nodes.has_value()) {
    const bool feasible = CouldEverPlace(group.spec, view_, kept);
    if (feasible == (group.state == proto::GroupState::INFEASIBLE)) {
      group.state = feasible ? proto::GroupState::PENDING : proto::GroupState::INFEASIBLE;
      SayState(group, feasible ? "" : InfeasibleGroupWords(group.spec, view_));
    }
    return;
  }
  group.state = proto::GroupState::PENDING;
  group.nodes = *std::move(nodes);
  ++group.attempt;
  if (!PrepareHere(group)) {
    GiveUp(group);
    return;
  }
  absl::btree_map<NodeNumber, GroupAction> prepare;
  for (size_t i = 0; i < group.nodes.size(); ++i) {
    const NodeNumber node = group.nodes[i];
    if (group.committed[i] || node == view_.local) continue;
    const auto it =
        prepare.try_emplace(node, ActionFor(group, GroupAction::Kind::kPrepare, node)).first;
    it->second.bundles.emplace_back(BundleId{group.spec.id, static_cast<int32_t>(i)},
                                    group.spec.bundles[i]);
    view_.nodes[node].available -= group.spec.bundles[i];  // Until it reports anew.
  }
  for (auto& [node, action] : prepare) {
    group.preparing.push_back(node);
    actions_.push_back(std::move(action));
  }
  if (group.preparing.empty()) Commit(group);
}

// false: the ledger refused one, as a GPU may be free in parts only.
bool PlacementGroupLedger::PrepareHere(Group& group) {
  bool ok = true;
  for (size_t i = 0; ok && i < group.nodes.size(); ++i) {
    if (!group.committed[i] && group.nodes[i] == view_.local) {
      ok = ledger_
               .Prepare({group.spec.id, static_cast<int32_t>(i)}, group.spec.bundles[i],
                        RayletOf(view_.local))
               .ok();
    }
  }
  SyncView();
  return ok;
}

// All are prepared.
void PlacementGroupLedger::Commit(Group& group) {
  absl::btree_map<NodeNumber, GroupAction> commit;
  for (size_t i = 0; i < group.nodes.size(); ++i) {
    if (group.committed[i]) continue;
    group.committed[i] = true;
    const BundleId bundle{group.spec.id, static_cast<int32_t>(i)};
    if (group.nodes[i] == view_.local) {
      // It was prepared in this very event, or before and never returned.
      ledger_.Commit(bundle).IgnoreError();
    } else {
      const auto it = commit
                          .try_emplace(group.nodes[i],
                                       ActionFor(group, GroupAction::Kind::kCommit, group.nodes[i]))
                          .first;
      it->second.bundles.emplace_back(bundle, group.spec.bundles[i]);
    }
  }
  for (auto& [node, action] : commit) actions_.push_back(std::move(action));
  group.state = proto::GroupState::CREATED;
  pending_.erase(group.serial);
  view_.groups[group.spec.id] = {GroupPlacement::State::kCreated, group.nodes};
  SayState(group, "");
}

// Gives the bundles on `node` back, those already committed only if asked to.
void PlacementGroupLedger::Return(Group& group, NodeNumber node, bool committed_too) {
  GroupAction action = ActionFor(group, GroupAction::Kind::kReturn, node);
  for (size_t i = 0; i < group.nodes.size(); ++i) {
    if (group.nodes[i] != node || (group.committed[i] && !committed_too)) continue;
    const BundleId bundle{group.spec.id, static_cast<int32_t>(i)};
    if (node == view_.local) {
      ledger_.ReturnBundle(bundle);
    } else {
      action.bundles.emplace_back(bundle, group.spec.bundles[i]);
    }
    group.nodes[i] = 0;
    group.committed[i] = false;
  }
  if (!action.bundles.empty()) actions_.push_back(std::move(action));
}

// This attempt failed: what was prepared for it goes back, and it waits for the next room.
void PlacementGroupLedger::GiveUp(Group& group) {
  std::vector<NodeNumber> nodes = group.nodes;
  std::sort(nodes.begin(), nodes.end());
  nodes.erase(std::unique(nodes.begin(), nodes.end()), nodes.end());
  for (const NodeNumber node : nodes) {
    if (node != 0) Return(group, node, /*committed_too=*/false);
  }
  group.preparing.clear();
  SyncView();
}

void PlacementGroupLedger::OnPrepared(PlacementGroupId id, NodeNumber node, uint32_t attempt,
                                      bool ok, Nanos now) {
  const auto it = groups_.find(id);
  if (it == groups_.end()) {
    return;  // Removed meanwhile: kReturn is on its way.
  }
  Group& group = *it->second;
  const auto waits = std::find(group.preparing.begin(), group.preparing.end(), node);
  if (waits == group.preparing.end() || attempt != group.attempt) {
    return;  // Of an attempt that was given up: its kReturn is on its way, before the next
             // kPrepare.
  }
  if (!ok) {
    GiveUp(group);
    // What was believed of it was wrong: not again before it reports.
    if (const auto at = view_.nodes.find(node); at != view_.nodes.end()) at->second.available = {};
    OnRoom(now);
    return;
  }
  group.preparing.erase(waits);
  if (group.preparing.empty()) Commit(group);
}

void PlacementGroupLedger::Remove(Group& group, const std::string& message) {
  const PlacementGroupId id = group.spec.id;
  std::vector<NodeNumber> nodes = group.nodes;
  std::sort(nodes.begin(), nodes.end());
  nodes.erase(std::unique(nodes.begin(), nodes.end()), nodes.end());
  for (const NodeNumber node : nodes) {
    if (node != 0) Return(group, node, /*committed_too=*/true);
  }
  group.state = proto::GroupState::REMOVED;
  SayState(group, message);
  RememberRemoved(id);
  pending_.erase(group.serial);
  groups_.erase(id);
  SyncView();
}

void PlacementGroupLedger::RememberRemoved(PlacementGroupId id) {
  view_.groups[id] = {GroupPlacement::State::kRemoved, {}};
  removed_.push_back(id);
  if (removed_.size() > kRemovedGroupsRemembered) {
    view_.groups.erase(removed_.front());
    removed_.pop_front();
  }
}

void PlacementGroupLedger::OnNeverMade(PlacementGroupId id, const std::string& message) {
  const auto known = view_.groups.find(id);
  if (groups_.contains(id) ||
      (known != view_.groups.end() && known->second.state == GroupPlacement::State::kRemoved)) {
    return;
  }
  GroupAction action;
  action.group = id;
  action.state = proto::GroupState::REMOVED;
  action.message = message;
  actions_.push_back(std::move(action));
  RememberRemoved(id);
}

bool PlacementGroupLedger::OnRemove(PlacementGroupId id, Nanos now) {
  const auto it = groups_.find(id);
  if (it == groups_.end()) return false;
  Remove(*it->second, "");
  OnRoom(now);
  return true;
}

void PlacementGroupLedger::OnOwnerGone(ProcessId creator, Nanos now) {
  std::vector<Group*> lost;
  for (const auto& [id, group] : groups_) {
    if (group->creator == creator && !group->spec.detached) lost.push_back(group.get());
  }
  std::sort(lost.begin(), lost.end(),
            [](const Group* a, const Group* b) { return a->serial < b->serial; });
  for (Group* group : lost)
    Remove(*group, absl::StrCat("its creator ", creator.ToString(), " is gone"));
  if (!lost.empty()) OnRoom(now);
}

void PlacementGroupLedger::OnNodeDead(NodeNumber node, Nanos now) {
  for (const Group* found : Groups()) {
    Group& group = *groups_.at(found->spec.id);
    if (std::find(group.nodes.begin(), group.nodes.end(), node) == group.nodes.end()) continue;
    for (size_t i = 0; i < group.nodes.size(); ++i) {
      if (group.nodes[i] == node) {  // Gone with it: nothing to give back.
        group.nodes[i] = 0;
        group.committed[i] = false;
      }
    }
    if (group.state != proto::GroupState::CREATED) {
      GiveUp(group);
      continue;
    }
    group.state = proto::GroupState::PENDING;
    group.since = now;
    pending_.emplace(group.serial, &group);
    view_.groups[group.spec.id] = {};
    SayState(group, absl::StrCat("node ", node, " died; its bundles are placed anew"));
  }
  OnRoom(now);
}

void PlacementGroupLedger::OnRoom(Nanos now) {
  SyncView();
  std::vector<Group*> waiting;
  for (const auto& [serial, group] : pending_) {
    if (group->preparing.empty()) waiting.push_back(group);
  }
  std::vector<const GroupSpec*> failed;  // What has no room now; equal ones have none either.
  for (Group* group : waiting) {
    const bool fresh = std::none_of(group->committed.begin(), group->committed.end(),
                                    [](bool committed) { return committed; });
    const bool hopeless = fresh && group->state == proto::GroupState::PENDING &&
                          std::any_of(failed.begin(), failed.end(), [&](const GroupSpec* spec) {
                            return spec->policy == group->spec.policy &&
                                   spec->bundles == group->spec.bundles &&
                                   spec->selectors == group->spec.selectors;
                          });
    if (hopeless) continue;
    Try(*group, now);
    if (fresh && group->state == proto::GroupState::PENDING && group->preparing.empty())
      failed.push_back(&group->spec);
  }
}

std::optional<Resources> PlacementGroupLedger::WaitingHere() const {
  const auto here = view_.nodes.find(view_.local);
  if (here == view_.nodes.end() || !here->second.usable()) return std::nullopt;
  for (const auto& [serial, group] : pending_) {
    if (group->state != proto::GroupState::PENDING || !group->preparing.empty()) continue;
    Resources sum;
    Resources largest;
    for (size_t i = 0; i < group->spec.bundles.size(); ++i) {
      const Resources& bundle = group->spec.bundles[i];
      const bool matches =
          group->spec.selectors.empty() || group->spec.selectors[i].Matches(here->second.labels);
      if (group->nodes[i] == 0 && matches && ledger_.total().Fits(bundle)) {
        sum += bundle;
        largest = std::max(largest, bundle);
      }
    }
    const bool strict_spread = group->spec.policy == PlacementGroupPolicy::kStrictSpread;
    const Resources& wanted = !strict_spread && ledger_.total().Fits(sum) ? sum : largest;
    if (!wanted.empty()) return ledger_.CanAcquire(wanted) ? std::nullopt : std::optional(wanted);
  }
  return std::nullopt;
}

const PlacementGroupLedger::Group* PlacementGroupLedger::Find(PlacementGroupId id) const {
  const auto it = groups_.find(id);
  return it == groups_.end() ? nullptr : it->second.get();
}

std::vector<const PlacementGroupLedger::Group*> PlacementGroupLedger::Groups() const {
  std::vector<const Group*> all;
  all.reserve(groups_.size());
  for (const auto& [id, group] : groups_) all.push_back(group.get());
  std::sort(all.begin(), all.end(),
            [](const Group* a, const Group* b) { return a->serial < b->serial; });
  return all;
}

}  // namespace sheaf
