// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Placement groups by id and by name. Removed ones are forgotten.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "proto/gcs.pb.h"

namespace sheaf {

struct GroupEntry {
  proto::GroupInfo info;  // Of detached ones on disk, but for words.
  // When its raylet is told (again) to place it. kForever: not before something happens.
  Nanos next_order = 0;
  bool unaccounted = false;  // From disk, and no raylet has reported it to this GCS yet.
};

class PlacementGroupTable {
 public:
  GroupEntry* Find(const PlacementGroupId& id);
  const GroupEntry* Find(const PlacementGroupId& id) const;
  const GroupEntry* FindByName(std::string_view name_space, std::string_view name) const;
  GroupEntry& Put(const PlacementGroupId& id, proto::GroupInfo info);
  void Erase(const PlacementGroupId& id);
  // A bundle, or the raylet that places it.
  std::vector<PlacementGroupId> DetachedOn(NodeNumber node) const;
  std::vector<PlacementGroupId> AttachedOf(ProcessId maker) const;  // Not detached.
  std::vector<PlacementGroupId> AttachedOfNode(NodeNumber node) const;
  // Where the bundles of a group are that is neither named nor detached, as the raylet that placed
  // it said when a detached actor was to start in it. nullptr: not known.
  void PutPlace(const PlacementGroupId& id, std::vector<NodeNumber> bundle_nodes);
  const std::vector<NodeNumber>* FindPlace(const PlacementGroupId& id) const;
  void ErasePlace(const PlacementGroupId& id) { places_.erase(id); }
  void ErasePlacesOf(ProcessId maker);
  void ErasePlacesOfNode(NodeNumber node);  // Of makers there, and of groups with a bundle there.
  std::map<PlacementGroupId, GroupEntry>& all() { return groups_; }
  const std::map<PlacementGroupId, GroupEntry>& all() const { return groups_; }

 private:
  std::map<PlacementGroupId, GroupEntry> groups_;
  std::map<std::pair<std::string, std::string>, PlacementGroupId> by_name_;
  std::map<PlacementGroupId, std::vector<NodeNumber>> places_;
};

}  // namespace sheaf
