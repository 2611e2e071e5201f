// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// A lease queue with its ledger, and demands for it. For tests only.
#pragma once

#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <string>
#include <vector>

#include "raylet/scheduling/lease_queue.h"

namespace sheaf::lease_queue_test {

using Kind = LeaseAction::Kind;
inline constexpr ProcessId kA{1, 5};
inline constexpr ProcessId kB{1, 6};
inline constexpr ProcessId kC{1, 7};
inline const PlacementGroupId kGroup = PlacementGroupId::Make({1, 1}, 7);

inline Resources Parsed(const std::string& text) { return ParseResources(text).value(); }

inline proto::LeaseDemand Wants(uint64_t key, const std::string& resources, uint32_t wanted,
                                uint64_t backlog = 1'000'000) {
  proto::LeaseDemand demand;
  demand.set_key(key);
  demand.set_wanted(wanted);
  demand.set_backlog(backlog);
  demand.mutable_spec()->set_name("f");
  Parsed(resources).ToMap(*demand.mutable_spec()->mutable_resources()->mutable_amounts());
  return demand;
}

inline proto::LeaseDemand ActorDemand(uint64_t key, const std::string& resources) {
  proto::LeaseDemand demand = Wants(key, resources, 1);
  demand.mutable_spec()->set_actor(true);
  demand.mutable_spec()->mutable_running();
  return demand;
}

inline proto::LeaseDemand InGroup(proto::LeaseDemand demand, int bundle = kAnyBundle) {
  proto::Strategy* strategy = demand.mutable_spec()->mutable_strategy();
  strategy->set_kind(proto::Strategy::PLACEMENT_GROUP);
  strategy->set_group_id(kGroup.Binary());
  strategy->set_bundle(bundle);
  return demand;
}

// A raylet's queue with its ledger, and what it said last.
struct Node {
  explicit Node(const std::string& total, LeaseQueueOptions options = {})
      : ledger(Parsed(total), {}), queue(options, ledger, WithLocal(view, Parsed(total)), random) {}

  static ClusterView& WithLocal(ClusterView& view, const Resources& total) {
    view.local = 1;
    view.nodes[1].total = view.nodes[1].available = total;
    return view;
  }
  void AddNode(NodeNumber number, const std::string& total) {
    view.nodes[number].total = view.nodes[number].available = Parsed(total);
    queue.OnClusterChanged(now);
  }
  // Until something is to be done.
  void PassTime() {
    REQUIRE(queue.NextTick() != kForever);
    now = queue.NextTick();
    queue.OnTick(now);
  }
  // The actions since the last call, of one kind, as "owner.key:lease" or what that kind carries.
  std::vector<LeaseAction> Take() {
    std::vector<LeaseAction> actions = queue.TakeActions();
    for (const LeaseAction& action : actions) {
      if (action.kind == Kind::kGrant) held[action.demand.owner].push_back(action.lease);
    }
    return actions;
  }
  size_t Count(Kind kind) {
    const auto actions = Take();
    return std::count_if(actions.begin(), actions.end(),
                         [&](const LeaseAction& action) { return action.kind == kind; });
  }
  void ReturnOne(ProcessId owner) {
    REQUIRE_FALSE(held[owner].empty());
    const LeaseNumber lease = held[owner].front();
    held[owner].erase(held[owner].begin());
    REQUIRE(queue.OnReturn(lease, now));
  }

  SeededRandom random{1};
  ResourceLedger ledger;
  ClusterView view;
  LeaseQueue queue;
  Nanos now = kSecond;
  std::map<ProcessId, std::vector<LeaseNumber>> held;
};

}  // namespace sheaf::lease_queue_test
