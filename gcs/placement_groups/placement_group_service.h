// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Names of placement groups, and the whole life of detached ones. Durable: detached groups and
// their placement numbers. Of all others the raylet that made the reservation is the owner; the GCS
// knows them for names and listings.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gcs/command_pipeline.h"
#include "gcs/gcs_options.h"
#include "gcs/node_table.h"
#include "gcs/placement_groups/group_state.h"
#include "gcs/placement_groups/placement_group_table.h"

namespace sheaf {

class PlacementGroupService {
 public:
  static constexpr size_t kMaxNameBytes = 1024;
  static constexpr int kMaxBundles = 10'000;

  PlacementGroupService(const GcsContext& context, const NodeTable& nodes)
      : context_(context), nodes_(nodes) {}

  void Load(std::string_view key, std::string_view value);
  // As ActorService::Activate.
  void Activate();

  // The raylet of `node` has reserved the bundles, or will.
  void Register(CallPtr call, NodeNumber node, const proto::RegisterGroup& request);
  void Lookup(const CallPtr& call, const proto::LookupGroup& request) const;
  void List(const CallPtr& call) const;
  void Remove(CallPtr call, const proto::RemoveGroup& request);
  // From the raylet of `node`; `call` may be nullptr.
  void OnReport(CallPtr call, NodeNumber node, const proto::GroupReport& report);
  // After a restart, groups that only their raylet knows.
  void OnAttached(NodeNumber node,
                  const google::protobuf::RepeatedPtrField<proto::GroupInfo>& groups);
  void OnNodeDead(NodeNumber node);
  void OnProcessGone(ProcessId process);
  std::set<ProcessId> MakersOn(NodeNumber node) const;  // Of groups that are not detached.
  // False: `key` is no id.
  bool AddSnapshot(std::string_view key, proto::Snapshot* snapshot) const;
  void Tick();

  const PlacementGroupTable& table() const { return table_; }

 private:
  struct Happening {
    PlacementGroupId id;
    uint32_t placement_number = 0;  // 0: any.
    GroupEvent event;
    NodeNumber raylet = 0;
    std::vector<uint32_t> bundle_nodes = {};
  };
  void Happen(CallPtr call, Happening what);
  Outcome Plan(const Happening& what);
  void Order(GroupEntry& entry);
  // Now, and again until the node says that it is gone there.
  void Drop(NodeNumber node, const PlacementGroupId& id, uint32_t placement_number);
  void SendDrop(NodeNumber node, const PlacementGroupId& id, uint32_t placement_number);
  void Publish(const proto::GroupInfo& info);

  struct DropOrder {
    uint32_t placement_number;
    Nanos next;
    int left;  // A node that has it anew by then has no answer.
  };

  const GcsContext context_;
  const NodeTable& nodes_;
  PlacementGroupTable table_;
  bool active_ = false;
  std::vector<Happening> unrecorded_;  // Did not get to disk: again at the next Tick.
  std::map<std::pair<NodeNumber, PlacementGroupId>, DropOrder> drops_;
};

}  // namespace sheaf
