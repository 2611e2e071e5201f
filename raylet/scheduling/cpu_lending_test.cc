// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "raylet/scheduling/cpu_lending.h"

#include <catch2/catch.hpp>

#include "raylet/scheduling/lease_parts_for_test.h"

namespace sheaf::lease_queue_test {
namespace cpu_lending_test {

SCENARIO("a worker that waits lends its CPUs after a while") {
  LeaseParts node("CPU:2", {}, {.lenders_max = 1});
  CpuLending& lending = node.parts.lending;
  GrantedLease& lease = node.Grant(node.Add(kA, 1, "CPU:1"));
  lending.OnBlocked(lease, node.now, /*awaits_admission=*/false);
  CHECK(node.node().yielding.empty());
  CHECK(lending.NextDue() == node.now + 5 * kMillisecond);
  CHECK(lending.LendDue(node.now).empty());
  WHEN("it has waited") {
    CHECK(lending.LendDue(lending.NextDue()) == std::vector{&node.node()});
    CHECK(node.ledger.available().cpu() == 2 * kUnit);
    CHECK(lending.lenders() == 1);
    CHECK(lending.NextDue() == kForever);
    THEN("it has them again when it goes on") {
      CHECK(lending.OnUnblocked(lease));
      CHECK(node.ledger.available().cpu() == kUnit);
      CHECK(node.node().yielding == Parsed("CPU:1"));
      CHECK(lending.lenders() == 0);
    }
    THEN("it lends no more when it is over") {
      lending.OnEnded(lease);
      CHECK(lending.lenders() == 0);
    }
    THEN("no more than so many lend at one time") {
      GrantedLease& other = node.Grant(node.Add(kB, 1, "CPU:1"));
      lending.OnBlocked(other, node.now, false);
      CHECK(lending.LendDue(node.now + kSecond).empty());
      CHECK(lending.NextDue() == kForever);
      CHECK(lending.OnUnblocked(lease));
      CHECK(lending.LendDue(node.now + kSecond).size() == 1);
    }
  }
  WHEN("it goes on before") {
    CHECK_FALSE(lending.OnUnblocked(lease));
    CHECK(lending.LendDue(node.now + kSecond).empty());
    CHECK(lending.lenders() == 0);
  }
}

TEST_CASE("what calls lend that wait for admission is counted apart") {
  LeaseParts node("CPU:2");
  auto& demand = node.Add(kA, 1, "CPU:1");
  GrantedLease& lease = node.Grant(demand);
  node.parts.lending.OnBlocked(lease, node.now, /*awaits_admission=*/true);
  CHECK(demand.lending == 0);
  node.parts.lending.LendDue(node.now + kSecond);
  CHECK(demand.lending == 1);
  CHECK(node.node().lent_waiting == kUnit);
  node.parts.lending.OnUnblocked(lease);
  CHECK(demand.lending == 0);
  CHECK(node.node().lent_waiting == 0);
}

}  // namespace cpu_lending_test
}  // namespace sheaf::lease_queue_test
