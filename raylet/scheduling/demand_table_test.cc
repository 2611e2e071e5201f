// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "raylet/scheduling/demand_table.h"

#include <catch2/catch.hpp>

#include "raylet/scheduling/lease_parts_for_test.h"

namespace sheaf::lease_queue_test {
namespace demand_table_test {

SCENARIO("demands for equal resources in the same place are one class") {
  LeaseParts node("CPU:4");
  auto& a = node.Add(kA, 1, "CPU:1");
  auto& b = node.Add(kB, 1, "CPU:1");
  auto& larger = node.Add(kB, 2, "CPU:2");
  CHECK(a.cls == b.cls);
  CHECK(a.cls != larger.cls);
  CHECK(a.cls->demands == 2);
  CHECK(node.node().classes == 2);
  CHECK(node.parts.demands.Find({kB, 2, 0}) == &larger);
  CHECK(node.parts.demands.Find({kB, 3, 0}) == nullptr);
  WHEN("they go") {
    node.parts.demands.Drop(b);
    CHECK(node.node().classes == 2);
    node.parts.demands.Drop(a);
    CHECK(node.node().classes == 1);
    CHECK(node.parts.demands.OwnedBy(kA) == nullptr);
    CHECK(node.parts.demands.OwnedBy(kB)->size() == 1);
  }
}

SCENARIO("who holds nothing waits in front of who holds something") {
  LeaseParts node("CPU:4");
  DemandTable& demands = node.parts.demands;
  auto& a = node.Add(kA, 1, "CPU:1", 3);
  auto& b = node.Add(kB, 1, "CPU:1", 3);
  auto& c = node.Add(kC, 1, "CPU:1", 3);
  GrantedLease& lease = node.Grant(a);
  const auto order = [&] {
    std::vector<ProcessId> owners;
    a.cls->ForEachWaiting([&](const Demand& demand) { owners.push_back(demand.id.owner); });
    return owners;
  };
  for (Demand* demand : {&a, &b, &c}) CHECK(demands.Enqueue(*demand, node.now));
  CHECK_FALSE(demands.Enqueue(a, node.now));
  CHECK(order() == std::vector{kB, kC, kA});
  WHEN("one was served and waits on") {
    demands.Requeue(b);
    CHECK(order() == std::vector{kC, kB, kA});
  }
  WHEN("the one with something has nothing any more") {
    demands.EraseLease(lease);
    CHECK(order() == std::vector{kB, kC, kA});
    CHECK(a.cls->waiting.empty());
    CHECK(node.node().holders.empty());
  }
  WHEN("nobody waits") {
    node.node().reserving = a.cls;
    for (Demand* demand : {&a, &b, &c}) demands.Dequeue(*demand);
    CHECK_FALSE(a.cls->waits());
    CHECK(node.node().reserving == nullptr);
  }
}

TEST_CASE("a placement group is a capacity for as long as somebody asks for it") {
  LeaseParts node("CPU:4");
  DemandTable& demands = node.parts.demands;
  LeaseSpec spec;
  spec.resources = spec.running = Parsed("CPU:1");
  spec.strategy.kind = StrategyKind::kPlacementGroup;
  spec.strategy.group = kGroup;
  Demand& demand = demands.Add({kA, 1, 0}, spec, 0);
  Capacity* group = demands.Find(kGroup);
  REQUIRE(group != nullptr);
  CHECK(demand.cls->capacity == group);
  CHECK(demands.Capacities() == std::vector<const Capacity*>{&node.node(), group});
  demands.DropIfUnused(*group);
  CHECK(demands.Find(kGroup) == group);
  demands.Drop(demand);
  demands.DropIfUnused(*group);
  demands.DropIfUnused(node.node());
  CHECK(demands.Find(kGroup) == nullptr);
  CHECK(demands.Find(PlacementGroupId{}) == &node.node());
}

TEST_CASE("the sums of a capacity follow its leases") {
  LeaseParts node("CPU:4");
  GrantedLease& lease = node.Grant(node.Add(kA, 1, "CPU:2"));
  CHECK(node.node().yielding == Parsed("CPU:2"));
  lease.SetYielding(true);  // A repeat.
  CHECK(node.node().yielding == Parsed("CPU:2"));
  lease.SetYielding(false);
  lease.SetComing(true);
  lease.SetLends(true);
  CHECK(node.node().yielding.empty());
  CHECK(node.node().coming == Parsed("CPU:2"));
  CHECK(node.node().lent_waiting == 2 * kUnit);
  CHECK(lease.granted_to->lending == 1);
  lease.SetComing(false);
  lease.SetLends(false);
  CHECK(node.node().coming.empty());
  CHECK(node.node().lent_waiting == 0);
}

}  // namespace demand_table_test
}  // namespace sheaf::lease_queue_test
