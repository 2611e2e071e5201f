// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "raylet/scheduling/lease_revoker.h"

#include <catch2/catch.hpp>

#include "raylet/scheduling/lease_parts_for_test.h"

namespace sheaf::lease_queue_test {
namespace lease_revoker_test {

SCENARIO("a lease is asked back of who can best do without it") {
  LeaseParts node("CPU:4");
  LeaseRevoker& revoker = node.parts.revoker;
  auto& a = node.Add(kA, 1, "CPU:1", 2);
  auto& b = node.Add(kB, 1, "CPU:1", 2);
  const LeaseNumber first_of_a = node.Grant(a).number;
  node.Grant(a);
  const LeaseNumber first_of_b = node.Grant(b).number;
  node.Grant(b);
  auto& waits = node.Add(kC, 1, "CPU:1");
  waits.cls->local = true;
  node.parts.demands.Enqueue(waits, node.now);
  const auto ask = [&] {
    revoker.AskForWaiting(node.node(), node.now);
    return node.TakeRevoked();
  };
  WHEN("all have work, and as many leases") {
    CHECK(ask() == std::vector{first_of_a});
    CHECK(node.node().coming == Parsed("CPU:1"));
    THEN("one is enough, and another is asked only when its owner keeps it") {
      CHECK(ask().empty());
      node.now += 100 * kMillisecond;
      CHECK(ask() == std::vector{first_of_b});
    }
  }
  WHEN("one has no work left") {
    b.backlog = 0;
    node.now += 10 * kMillisecond;
    CHECK(ask() == std::vector{first_of_b});
  }
  WHEN("one wants less than it has") {
    a.backlog = 0;
    b.wanted = 1;
    CHECK(ask() == std::vector{first_of_b});
  }
  WHEN("who waits has something, too") {
    GrantedLease& returned = *node.parts.demands.FindLease(first_of_a);
    node.ledger.Release(returned.allocation);
    returned.SetYielding(false);
    node.parts.demands.EraseLease(returned);
    node.Grant(waits);
    waits.wanted = 2;
    node.parts.demands.Requeue(waits);
    node.now += kSecond;
    CHECK(ask().empty());  // Fair as it is.
  }
  WHEN("nothing was found and nothing has changed") {
    for (auto* demand : {&a, &b}) demand->gone = true;
    CHECK(ask().empty());
    a.gone = false;
    CHECK(ask().empty());  // Not looked at again,
    ++node.node().version;
    CHECK(ask() == std::vector{first_of_a});  // until something has.
  }
}

SCENARIO("several leases are asked back for one while nobody else would get them") {
  LeaseParts node("CPU:2");
  auto& a = node.Add(kA, 1, "CPU:1", 2);
  node.Grant(a);
  node.Grant(a);
  auto& large = node.Add(kB, 1, "CPU:2");
  large.cls->local = true;
  node.parts.demands.Enqueue(large, node.now);
  node.now += kSecond;
  const auto ask = [&] {
    ++node.node().version;
    node.parts.revoker.AskForWaiting(node.node(), node.now);
    return node.TakeRevoked().size();
  };
  WHEN("their owner has work for them") {
    CHECK(ask() == 0);
    CHECK(a.revoked == 0);
    THEN("they are asked for once room is kept") {
      node.node().reserving = large.cls;
      CHECK(ask() == 2);
      CHECK(a.revoked == 2);
    }
  }
  WHEN("their owner has no work left") {
    a.backlog = 0;
    CHECK(ask() == 2);
    CHECK(a.revoked == 2);
  }
  WHEN("others wait for less, too") {
    a.backlog = 0;
    auto& small = node.Add(kC, 1, "CPU:0.5");
    small.cls->local = true;
    node.parts.demands.Enqueue(small, node.now);
    THEN("one of the leases is for those") { CHECK(ask() == 1); }
  }
}

SCENARIO("CPUs that were lent and are used again are asked back") {
  LeaseParts node("CPU:1");
  GrantedLease& lender = node.Grant(node.Add(kA, 1, "CPU:1"));
  node.ledger.Lend(lender.allocation);
  GrantedLease& borrower = node.Grant(node.Add(kB, 1, "CPU:1"));
  lender.blocked_since = node.now;
  const auto ask = [&] {
    node.parts.revoker.AskForDeficit(node.node(), node.now);
    return node.TakeRevoked();
  };
  CHECK(ask().empty());
  node.ledger.Reclaim(lender.allocation);
  CHECK(ask().empty());  // It may end by itself.
  CHECK(node.node().next == node.now + 10 * kMillisecond);
  node.now += 10 * kMillisecond;
  CHECK(ask() == std::vector{borrower.number});
  CHECK(ask().empty());
}

TEST_CASE("a node that drains asks for all leases of tasks, once") {
  LeaseParts node("CPU:4");
  auto& task = node.Add(kA, 1, "CPU:1", 2);
  const LeaseNumber number = node.Grant(task).number;
  node.Grant(node.Add(kB, 1, "CPU:1", 1, 0, /*actor=*/true));
  node.parts.revoker.AskForAll();
  CHECK(node.TakeRevoked() == std::vector{number});
  node.parts.revoker.AskForAll();
  CHECK(node.TakeRevoked().empty());
}

TEST_CASE("a lease ends once, and counts as coming") {
  LeaseParts node("CPU:4");
  GrantedLease& lease = node.Grant(node.Add(kA, 1, "CPU:1"));
  node.parts.revoker.End(lease, ErrorKind::kOwnerDied, "its owner is gone");
  node.parts.revoker.End(lease, ErrorKind::kGroupRemoved, "again");
  const auto said = node.parts.actions.Take();
  REQUIRE(said.size() == 1);
  CHECK(said[0].kind == Kind::kEnd);
  CHECK(said[0].error == ErrorKind::kOwnerDied);
  CHECK(node.node().coming == Parsed("CPU:1"));
}

}  // namespace lease_revoker_test
}  // namespace sheaf::lease_queue_test
