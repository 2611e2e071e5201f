// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "gcs/placement_groups/placement_group_service.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gcs/reply.h"

namespace sheaf {
namespace {

std::string GroupLatch(const PlacementGroupId& id) { return "group/" + id.Binary(); }
std::string GroupNameLatch(const std::string& name_space, const std::string& name) {
  return absl::StrCat("group-name/", name_space.size(), "/", name_space, "/", name);
}

// Every raylet that may hold bundles of it.
std::set<NodeNumber> Holders(const proto::GroupInfo& info) {
  std::set<NodeNumber> nodes(info.bundle_nodes().begin(), info.bundle_nodes().end());
  nodes.insert(info.raylet());
  nodes.erase(0);
  return nodes;
}

constexpr int kDropsRepeated = 8;

}  // namespace

void PlacementGroupService::Load(std::string_view key, std::string_view value) {
  const absl::StatusOr<PlacementGroupId> id = PlacementGroupId::FromBinary(key);
  proto::GroupInfo info;
  if (!id.ok() || !info.ParseFromArray(value.data(), static_cast<int>(value.size()))) return;
  GroupEntry& entry = table_.Put(*id, std::move(info));
  entry.unaccounted = true;
  entry.next_order = kForever;
}

void PlacementGroupService::Activate() {
  active_ = true;
  std::vector<Happening> lost;
  for (auto& [id, entry] : table_.all()) {
    if (!std::exchange(entry.unaccounted, false)) continue;
    for (const NodeNumber node : Holders(entry.info)) {
      if (nodes_.IsMember(node)) SendDrop(node, id, entry.info.placement_number());
    }
    lost.push_back(
        {.id = id, .placement_number = entry.info.placement_number(), .event = GroupEvent::kLost});
  }
  for (Happening& one : lost) Happen(nullptr, std::move(one));
  Tick();
}

void PlacementGroupService::Register(CallPtr call, NodeNumber node,
                                     const proto::RegisterGroup& request) {
  const absl::StatusOr<PlacementGroupId> id = PlacementGroupId::FromBinary(request.group_id());
  if (!id.ok() || id->is_nil() || request.bundles_size() == 0 ||
      request.bundles_size() > kMaxBundles || request.name().size() > kMaxNameBytes ||
      request.name_space().size() > kMaxNameBytes) {
    return context_.pipeline.Answer(
        call, ErrorReply(ErrorKind::kInvalidArgument,
                         absl::StrCat("a group needs an id of 16 bytes, 1 to ", kMaxBundles,
                                      " bundles and a name of at most ", kMaxNameBytes, " bytes")));
  }
  std::vector<std::string> latches = {GroupLatch(*id)};
  if (!request.name().empty())
    latches.push_back(GroupNameLatch(request.name_space(), request.name()));
  context_.pipeline.Run(
      std::move(call), std::move(latches), [this, id = *id, node, request]() -> Outcome {
        Outcome outcome;
        if (const GroupEntry* known = table_.Find(id)) {
          *outcome.reply.mutable_group() = known->info;
          return outcome;
        }
        if (table_.FindByName(request.name_space(), request.name()) != nullptr) {
          outcome.reply =
              ErrorReply(ErrorKind::kInvalidArgument,
                         absl::StrCat("a placement group is named '", request.name(), "' already"));
          return outcome;
        }
        proto::GroupInfo info;
        info.set_group_id(request.group_id());
        info.set_name(request.name());
        info.set_name_space(request.name_space());
        info.set_job(request.job());
        *info.mutable_bundles() = request.bundles();
        info.set_placement(request.placement());
        *info.mutable_selectors() = request.selectors();
        info.set_detached(request.detached());
        info.set_placement_number(1);
        info.set_raylet(node);
        *outcome.reply.mutable_group() = info;
        if (info.detached())
          outcome.writes = {{Table::kGroups, request.group_id(), info.SerializeAsString()}};
        outcome.apply = [this, id, info] {
          table_.Put(id, info).next_order = kForever;  // The raylet that asked is at it.
          Publish(info);
        };
        return outcome;
      });
}

void PlacementGroupService::Lookup(const CallPtr& call, const proto::LookupGroup& request) const {
  const GroupEntry* entry = nullptr;
  if (request.group_id().empty()) {
    entry = table_.FindByName(request.name_space(), request.name());
  } else if (const absl::StatusOr<PlacementGroupId> id =
                 PlacementGroupId::FromBinary(request.group_id());
             id.ok()) {
    entry = table_.Find(*id);
  }
  proto::GcsReply reply;
  if (entry == nullptr) {
    reply = ErrorReply(ErrorKind::kNotFound, absl::StrCat("no placement group ", request.name()));
  } else {
    *reply.mutable_group() = entry->info;
  }
  context_.pipeline.Answer(call, std::move(reply));
}

void PlacementGroupService::List(const CallPtr& call) const {
  proto::GcsReply reply;
  reply.mutable_groups();
  for (const auto& [id, entry] : table_.all()) *reply.mutable_groups()->add_groups() = entry.info;
  context_.pipeline.Answer(call, std::move(reply));
}

void PlacementGroupService::Remove(CallPtr call, const proto::RemoveGroup& request) {
  const absl::StatusOr<PlacementGroupId> id = PlacementGroupId::FromBinary(request.group_id());
  if (!id.ok()) {
    return context_.pipeline.Answer(
        call, ErrorReply(ErrorKind::kInvalidArgument, "a group id has 16 bytes"));
  }
  Happen(std::move(call), {.id = *id, .event = GroupEvent::kRemoved});
}

void PlacementGroupService::OnReport(CallPtr call, NodeNumber node,
                                     const proto::GroupReport& report) {
  const absl::StatusOr<PlacementGroupId> id = PlacementGroupId::FromBinary(report.group_id());
  GroupEntry* entry = id.ok() ? table_.Find(*id) : nullptr;
  const auto drop = id.ok() ? drops_.find({node, *id}) : drops_.end();
  if (drop != drops_.end() && report.state() == proto::GroupInfo::REMOVED &&
      report.placement_number() >= drop->second.placement_number)
    drops_.erase(drop);
  const bool current =
      entry != nullptr && report.placement_number() == entry->info.placement_number();
  if (id.ok() && entry == nullptr && report.placement_number() == 0 && id->maker().node == node &&
      report.bundle_nodes_size() <= kMaxBundles) {
    // The raylet may not have heard yet that a node of it is dead, and does not report the next
    // place by itself: it is asked again.
    const auto& nodes = report.bundle_nodes();
    const bool is_there =
        std::all_of(nodes.begin(), nodes.end(), [&](NodeNumber at) { return nodes_.IsMember(at); });
    if (report.state() == proto::GroupInfo::CREATED && is_there) {
      table_.PutPlace(*id, {nodes.begin(), nodes.end()});
    } else {
      table_.ErasePlace(*id);
    }
  } else if (!current || report.bundle_nodes_size() > kMaxBundles) {
    const bool is_ours = entry != nullptr || report.detached();
    if (id.ok() && is_ours && report.state() != proto::GroupInfo::REMOVED)
      SendDrop(node, *id, report.placement_number());
  } else if (report.state() == proto::GroupInfo::CREATED) {
    entry->unaccounted = false;
    return Happen(std::move(call),
                  {.id = *id,
                   .placement_number = report.placement_number(),
                   .event = GroupEvent::kPlaced,
                   .raylet = node,
                   .bundle_nodes = {report.bundle_nodes().begin(), report.bundle_nodes().end()}});
  } else if (report.state() == proto::GroupInfo::REMOVED) {
    entry->unaccounted = false;
    const GroupEvent event = entry->info.detached() ? GroupEvent::kLost : GroupEvent::kRemoved;
    return Happen(std::move(call),
                  {.id = *id, .placement_number = report.placement_number(), .event = event});
  } else {
    entry->unaccounted = false;
    entry->next_order = kForever;
    if (entry->info.words() != report.words()) {
      entry->info.set_words(report.words());
      Publish(entry->info);
    }
  }
  if (call) context_.pipeline.Answer(call, {});
}

void PlacementGroupService::OnAttached(
    NodeNumber node, const google::protobuf::RepeatedPtrField<proto::GroupInfo>& groups) {
  for (const proto::GroupInfo& info : groups) {
    const absl::StatusOr<PlacementGroupId> id = PlacementGroupId::FromBinary(info.group_id());
    if (!id.ok() || id->maker().node != node || info.detached() || table_.Find(*id) != nullptr)
      continue;
    table_.Put(*id, info).next_order = kForever;
    Publish(info);
  }
}

void PlacementGroupService::Happen(CallPtr call, Happening what) {
  const bool is_wish = call != nullptr && what.event == GroupEvent::kRemoved;
  const std::string latch = GroupLatch(what.id);
  context_.pipeline.Run(
      std::move(call), {latch}, [this, what] { return Plan(what); },
      [this, what, is_wish] {
        if (!is_wish) unrecorded_.push_back(what);  // A fact stays one; who wishes asks again.
      });
}

Outcome PlacementGroupService::Plan(const Happening& what) {
  const GroupEntry* entry = table_.Find(what.id);
  if (entry == nullptr) return {};
  if (what.placement_number != 0 && what.placement_number != entry->info.placement_number())
    return {};
  const std::optional<GroupStep> step = Next(entry->info.state(), what.event);
  if (!step) return {};
  proto::GroupInfo info = entry->info;
  info.set_state(step->next);
  info.clear_words();
  switch (step->action) {
    case GroupDecision::kRecord:
      info.set_raylet(what.raylet);
      info.mutable_bundle_nodes()->Assign(what.bundle_nodes.begin(), what.bundle_nodes.end());
      break;
    case GroupDecision::kPlace:
      info.set_placement_number(info.placement_number() + 1);
      info.clear_raylet();
      info.clear_bundle_nodes();
      break;
    case GroupDecision::kDrop:
      break;
  }
  Outcome outcome;
  if (info.detached()) {
    const bool drop = step->action == GroupDecision::kDrop;
    outcome.writes = {{Table::kGroups, what.id.Binary(),
                       drop ? std::nullopt : std::optional<std::string>(info.SerializeAsString())}};
  }
  outcome.apply = [this, id = what.id, info, action = step->action, old = entry->info] {
    if (action != GroupDecision::kRecord) {
      for (const NodeNumber node : Holders(old)) {
        if (nodes_.IsMember(node)) Drop(node, id, old.placement_number());
      }
    }
    Publish(info);
    if (action == GroupDecision::kDrop) {
      table_.Erase(id);
      return;
    }
    GroupEntry& now = table_.Put(id, info);
    now.unaccounted = false;
    now.next_order = action == GroupDecision::kPlace ? context_.clock.Now() : kForever;
    if (action == GroupDecision::kPlace && active_) Order(now);
  };
  return outcome;
}

void PlacementGroupService::OnNodeDead(NodeNumber node) {
  table_.ErasePlacesOfNode(node);
  for (const PlacementGroupId& id : table_.DetachedOn(node)) {
    const uint32_t number = table_.Find(id)->info.placement_number();
    Happen(nullptr, {.id = id, .placement_number = number, .event = GroupEvent::kLost});
  }
  for (const PlacementGroupId& id : table_.AttachedOfNode(node)) {
    Happen(nullptr, {.id = id, .event = GroupEvent::kRemoved});
  }
}

void PlacementGroupService::OnProcessGone(ProcessId process) {
  table_.ErasePlacesOf(process);
  for (const PlacementGroupId& id : table_.AttachedOf(process)) {
    Happen(nullptr, {.id = id, .event = GroupEvent::kRemoved});
  }
}

std::set<ProcessId> PlacementGroupService::MakersOn(NodeNumber node) const {
  std::set<ProcessId> makers;
  for (const PlacementGroupId& id : table_.AttachedOfNode(node)) makers.insert(id.maker());
  return makers;
}

bool PlacementGroupService::AddSnapshot(std::string_view key, proto::Snapshot* snapshot) const {
  if (!key.empty()) {
    const absl::StatusOr<PlacementGroupId> id = PlacementGroupId::FromBinary(key);
    if (!id.ok()) return false;
    if (const GroupEntry* entry = table_.Find(*id))
      *snapshot->add_items()->mutable_group() = entry->info;
    return true;
  }
  for (const auto& [id, entry] : table_.all()) *snapshot->add_items()->mutable_group() = entry.info;
  return true;
}

void PlacementGroupService::Tick() {
  for (Happening& what : std::exchange(unrecorded_, {})) Happen(nullptr, std::move(what));
  if (!active_) return;
  const Nanos now = context_.clock.Now();
  for (auto at = drops_.begin(); at != drops_.end();) {
    auto& [key, drop] = *at;
    if (drop.left == 0 || !nodes_.IsMember(key.first)) {
      at = drops_.erase(at);
      continue;
    }
    if (drop.next <= now) {
      --drop.left;
      drop.next = Deadline(now, context_.options.repeat_after);
      SendDrop(key.first, key.second, drop.placement_number);
    }
    ++at;
  }
  for (auto& [id, entry] : table_.all()) {
    if (entry.info.state() != proto::GroupInfo::CREATED && entry.next_order <= now) Order(entry);
  }
}

void PlacementGroupService::Order(GroupEntry& entry) {
  entry.next_order = Deadline(context_.clock.Now(), context_.options.repeat_after);
  if (entry.info.raylet() == 0) {
    const absl::StatusOr<PlacementGroupId> id = PlacementGroupId::FromBinary(entry.info.group_id());
    const std::optional<NodeNumber> node = nodes_.Pick(id.ok() ? id->maker().node : 0);
    if (!node) return;
    entry.info.set_raylet(*node);
  }
  proto::GcsEvent event;
  event.set_client(RayletOf(entry.info.raylet()).packed());
  *event.mutable_place_group()->mutable_group() = entry.info;
  SendMessage(context_.transport.To(RayletOf(entry.info.raylet())), FrameKind::kGcsEvent, event);
}

void PlacementGroupService::Drop(NodeNumber node, const PlacementGroupId& id,
                                 uint32_t placement_number) {
  const Nanos next = Deadline(context_.clock.Now(), context_.options.repeat_after);
  drops_[{node, id}] = {placement_number, next, kDropsRepeated};
  SendDrop(node, id, placement_number);
}

void PlacementGroupService::SendDrop(NodeNumber node, const PlacementGroupId& id,
                                     uint32_t placement_number) {
  proto::GcsEvent event;
  event.set_client(RayletOf(node).packed());
  event.mutable_drop_group()->set_group_id(id.Binary());
  event.mutable_drop_group()->set_placement_number(placement_number);
  SendMessage(context_.transport.To(RayletOf(node)), FrameKind::kGcsEvent, event);
}

void PlacementGroupService::Publish(const proto::GroupInfo& info) {
  if (!context_.publisher.HasSubscribers(proto::Subscribe::GROUPS)) return;
  proto::Change change;
  *change.mutable_group() = info;
  context_.publisher.Publish(proto::Subscribe::GROUPS, "", info.group_id(), change);
}

}  // namespace sheaf
