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
  Nanos next_order =
      0;  // When its raylet is told (again) to place it. kForever: not before something happens.
  bool unaccounted = false;  // From disk, and no raylet has reported it to this GCS yet.
};

class GroupTable {
 public:
  GroupEntry* Find(const PlacementGroupId& id);
  const GroupEntry* Find(const PlacementGroupId& id) const;
  const GroupEntry* FindByName(std::string_view name_space, std::string_view name) const;
  GroupEntry& Put(const PlacementGroupId& id, proto::GroupInfo info);
  void Erase(const PlacementGroupId& id);
  std::vector<PlacementGroupId> DetachedOn(
      NodeNumber node) const;  // A bundle, or the raylet that places it.
  std::vector<PlacementGroupId> AttachedOf(ProcessId maker) const;  // Not detached.
  std::vector<PlacementGroupId> AttachedOfNode(NodeNumber node) const;
  std::map<PlacementGroupId, GroupEntry>& all() { return groups_; }
  const std::map<PlacementGroupId, GroupEntry>& all() const { return groups_; }

 private:
  std::map<PlacementGroupId, GroupEntry> groups_;
  std::map<std::pair<std::string, std::string>, PlacementGroupId> by_name_;
};

}  // namespace sheaf
