// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "gcs/placement_groups/placement_group_table.h"

#include <algorithm>

namespace sheaf {

GroupEntry* PlacementGroupTable::Find(const PlacementGroupId& id) {
  const auto found = groups_.find(id);
  return found == groups_.end() ? nullptr : &found->second;
}

const GroupEntry* PlacementGroupTable::Find(const PlacementGroupId& id) const {
  return const_cast<PlacementGroupTable*>(this)->Find(id);
}

const GroupEntry* PlacementGroupTable::FindByName(std::string_view name_space,
                                                  std::string_view name) const {
  if (name.empty()) return nullptr;
  const auto found = by_name_.find({std::string(name_space), std::string(name)});
  return found == by_name_.end() ? nullptr : Find(found->second);
}

GroupEntry& PlacementGroupTable::Put(const PlacementGroupId& id, proto::GroupInfo info) {
  GroupEntry& entry = groups_[id];
  entry.info = std::move(info);
  if (!entry.info.name().empty()) by_name_[{entry.info.name_space(), entry.info.name()}] = id;
  return entry;
}

void PlacementGroupTable::Erase(const PlacementGroupId& id) {
  const auto found = groups_.find(id);
  if (found == groups_.end()) return;
  const auto named = by_name_.find({found->second.info.name_space(), found->second.info.name()});
  if (named != by_name_.end() && named->second == id) by_name_.erase(named);
  groups_.erase(found);
}

std::vector<PlacementGroupId> PlacementGroupTable::DetachedOn(NodeNumber node) const {
  std::vector<PlacementGroupId> ids;
  for (const auto& [id, entry] : groups_) {
    const auto& nodes = entry.info.bundle_nodes();
    if (entry.info.detached() && (entry.info.raylet() == node ||
                                  std::find(nodes.begin(), nodes.end(), node) != nodes.end())) {
      ids.push_back(id);
    }
  }
  return ids;
}

std::vector<PlacementGroupId> PlacementGroupTable::AttachedOf(ProcessId maker) const {
  std::vector<PlacementGroupId> ids;
  // The ids of one maker stand together: they begin with it.
  for (auto at = groups_.lower_bound(PlacementGroupId{maker.packed(), 0});
       at != groups_.end() && at->first.maker_bits == maker.packed(); ++at) {
    if (!at->second.info.detached()) ids.push_back(at->first);
  }
  return ids;
}

std::vector<PlacementGroupId> PlacementGroupTable::AttachedOfNode(NodeNumber node) const {
  std::vector<PlacementGroupId> ids;
  for (auto at = groups_.lower_bound(PlacementGroupId{ProcessId{node, 0}.packed(), 0});
       at != groups_.end() && at->first.maker().node == node; ++at) {
    if (!at->second.info.detached()) ids.push_back(at->first);
  }
  return ids;
}

void PlacementGroupTable::PutPlace(const PlacementGroupId& id,
                                   std::vector<NodeNumber> bundle_nodes) {
  places_[id] = std::move(bundle_nodes);
}

const std::vector<NodeNumber>* PlacementGroupTable::FindPlace(const PlacementGroupId& id) const {
  const auto found = places_.find(id);
  return found == places_.end() ? nullptr : &found->second;
}

void PlacementGroupTable::ErasePlacesOf(ProcessId maker) {
  auto at = places_.lower_bound(PlacementGroupId{maker.packed(), 0});
  while (at != places_.end() && at->first.maker_bits == maker.packed()) at = places_.erase(at);
}

void PlacementGroupTable::ErasePlacesOfNode(NodeNumber node) {
  std::erase_if(places_, [node](const auto& place) {
    const auto& [id, nodes] = place;
    return id.maker().node == node || std::find(nodes.begin(), nodes.end(), node) != nodes.end();
  });
}

}  // namespace sheaf
