// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "raylet/scheduling/pending_reason.h"

#include <catch2/catch.hpp>

namespace sheaf {
namespace pending_reason_test {

constexpr ProcessId kA{1, 5};
constexpr ProcessId kB{1, 6};
const PlacementGroupId kGroup = PlacementGroupId::Make({1, 5}, 7);

Resources Parsed(const std::string& text) { return ParseResources(text).value(); }

proto::LeaseDemand Wants(uint64_t key, const std::string& name, const std::string& resources,
                         uint32_t wanted) {
  proto::LeaseDemand demand;
  demand.set_key(key);
  demand.set_wanted(wanted);
  demand.set_backlog(9);
  demand.mutable_spec()->set_name(name);
  Parsed(resources).ToMap(*demand.mutable_spec()->mutable_resources()->mutable_amounts());
  return demand;
}

struct Node {
  explicit Node(const std::string& total, LeaseQueueOptions options = {})
      : ledger(Parsed(total), {}),
        queue(options, ledger, WithLocal(view, Parsed(total)), random),
        groups(ledger, view) {}
  static ClusterView& WithLocal(ClusterView& view, const Resources& total) {
    view.local = 1;
    view.nodes[1].total = view.nodes[1].available = total;
    return view;
  }
  static std::string NameOf(const Lease& lease) { return lease.spec->name; }
  std::string Why(ProcessId owner, uint64_t key) const {
    const auto pending = queue.FindPending(owner, key);
    return pending.has_value() ? WhyPending(*pending, queue, NameOf) : "";
  }
  std::string WhyGroup() const { return sheaf::WhyGroup(groups, queue, kGroup, NameOf); }
  SeededRandom random{1};
  ResourceLedger ledger;
  ClusterView view;
  LeaseQueue queue;
  PlacementGroupLedger groups;
};

SCENARIO("a demand that waits for CPUs names who holds them") {
  Node node("CPU:2");
  node.queue.OnDemand(kA, Wants(1, "f", "CPU:1", 2), kSecond);
  node.queue.OnDemand(kB, Wants(1, "g", "CPU:1", 1), kSecond);
  CHECK(
      node.Why(kB, 1) ==
      "waits for 1 CPU: 2 of 2 CPU are held by 2 leases of f (owner 1.5, which was asked for 1 of "
      "them)");
  CHECK(node.Why(kA, 1).empty());
  THEN("by what runs there now") {
    CHECK_THAT(WhyPending(*node.queue.FindPending(kB, 1), node.queue,
                          [](const Lease& lease) { return lease.number == 1 ? "sq" : "slow"; }),
               Catch::Contains("1 lease of slow") && Catch::Contains("1 lease of sq"));
  }
  WHEN("a larger request has room kept free") {
    node.queue.OnDemand({1, 7}, Wants(1, "h", "CPU:2", 1), kSecond);
    const Nanos later = kSecond + node.queue.options().reserve_after;
    node.queue.OnTick(later);
    THEN("one of the two says so, the other whom it waits for") {
      const bool small_first = node.queue.FindPending(kB, 1)->reserving;
      CHECK(node.Why(small_first ? ProcessId{1, 7} : kB, 1).find("larger request") !=
            std::string::npos);
      CHECK(
          node.Why(small_first ? kB : ProcessId{1, 7}, 1).find("room is being kept free for it") !=
          std::string::npos);
    }
  }
}

SCENARIO("a cap on blocked workers is named") {
  LeaseQueueOptions options;
  options.lenders_max = 1;
  Node node("CPU:2", options);
  node.queue.OnDemand(kA, Wants(1, "f", "CPU:1", 2), kSecond);
  node.queue.OnBlocked(1, kSecond);
  node.queue.OnBlocked(2, kSecond);
  node.queue.OnTick(2 * kSecond);
  node.queue.OnDemand(kB, Wants(1, "g", "CPU:2", 1), 2 * kSecond);
  CHECK(node.Why(kB, 1) ==
        "waits for 2 CPU: 1 of 2 CPU is held by 1 lease of f (owner 1.5); 1 CPU of blocked workers "
        "are lent; 2 blocked workers, cap of 1 that lend their CPUs reached");
}

SCENARIO("what nobody has is named, with the remedy") {
  Node node("CPU:2");
  node.queue.OnDemand(kA, Wants(1, "f", "slot:1", 1), kSecond);
  CHECK(node.Why(kA, 1) ==
        "no node has the resource 'slot'; add a node with it or lower the request");
}

SCENARIO("placement groups, and what waits for them") {
  Node node("CPU:2");
  proto::LeaseDemand demand = Wants(1, "f", "CPU:1", 3);
  proto::Strategy* strategy = demand.mutable_spec()->mutable_strategy();
  strategy->set_kind(proto::Strategy::PLACEMENT_GROUP);
  strategy->set_group_id(kGroup.Binary());
  strategy->set_bundle(-1);
  node.queue.OnDemand(kA, demand, kSecond);
  const std::string name = kGroup.ToHex();
  CHECK(node.Why(kA, 1) ==
        "waits for placement group " + name + ", of which this node has not heard");
  CHECK(node.WhyGroup() == "was removed, or was never made");

  node.queue.OnDemand(kB, Wants(1, "g", "CPU:1", 1), kSecond);
  GroupSpec spec;
  spec.id = kGroup;
  spec.bundles = {Parsed("CPU:1"), Parsed("CPU:1")};
  node.groups.OnCreate(spec, kA, kSecond);
  CHECK(node.Why(kA, 1) == "waits for placement group " + name + ", which is not placed yet");
  CHECK(node.WhyGroup() ==
        "waits for room for 2 of 2 bundles (2 CPU): on node 1 1 of 2 CPU is held by 1 lease of g "
        "(owner 1.6)");
  node.queue.OnDemand(kB, Wants(1, "g", "CPU:1", 0), kSecond);
  node.queue.OnReturn(1, kSecond);
  node.groups.OnRoom(kSecond);
  node.queue.OnGroupChanged(kGroup, kSecond);
  CHECK(node.WhyGroup() == "is placed on node 1");
  CHECK(node.Why(kA, 1) ==
        "waits for 1 CPU in its placement group: 2 of 2 CPU are held by 2 leases of f (owner 1.5)");
  node.queue.OnDemand(kB, Wants(1, "g", "CPU:1", 1), kSecond);
  CHECK(node.Why(kB, 1) == "waits for 1 CPU: 2 of 2 CPU are held by placement groups (2 CPU)");
}

SCENARIO("a lease without a worker says what starts") {
  Lease lease;
  lease.spec = std::make_shared<const LeaseSpec>();
  CHECK(WhyNoWorker(lease, 0) == "has its resources; waits for a worker of its job");
  auto spec = std::make_shared<LeaseSpec>();
  spec->environment = "x";
  lease.spec = spec;
  CHECK(WhyNoWorker(lease, 4) == "has its resources; 4 workers of this environment are starting");
}

}  // namespace pending_reason_test
}  // namespace sheaf
