// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "raylet/scheduling/reservations.h"

#include <catch2/catch.hpp>

#include "raylet/scheduling/lease_parts_for_test.h"

namespace sheaf::lease_queue_test {
namespace reservations_test {

SCENARIO("room is kept for who was overtaken too often, or waits for too long") {
  LeaseParts node("CPU:4", {}, {.overtakes_max = 3});
  Reservations& reservations = node.parts.reservations;
  auto& small = node.Add(kA, 1, "CPU:1", 9);
  auto& large = node.Add(kB, 1, "CPU:4");
  for (int i = 0; i < 3; ++i) node.Grant(small);
  node.parts.demands.Enqueue(large, node.now);
  node.parts.demands.Enqueue(small, node.now);
  large.cls->local = small.cls->local = true;
  reservations.Update(node.node(), node.now);
  CHECK(node.node().reserving == nullptr);
  CHECK(node.node().next == node.now + 200 * kMillisecond);
  const auto begin = [&] {
    large.cls->overtaken = 3;
    reservations.Update(node.node(), node.now);
    REQUIRE(node.node().reserving == large.cls);
  };
  WHEN("it waits on") {
    node.now += 200 * kMillisecond;
    reservations.Update(node.node(), node.now);
    CHECK(node.node().reserving == large.cls);
  }
  WHEN("it was overtaken") {
    begin();
    THEN("others get nothing of what it needs, but what it does not need") {
      CHECK(reservations.IsWithheldFrom(*small.cls));
      CHECK_FALSE(reservations.IsWithheldFrom(*large.cls));
      CHECK_FALSE(reservations.IsWithheldFrom(*node.Add(kC, 1, "GPU:1").cls));
    }
    THEN("it is kept while tasks may end for it") {
      CHECK(reservations.Keep(node.node(), node.now));
      small.leases.front().SetYielding(false);  // Its worker waits for something.
      CHECK_FALSE(reservations.Keep(node.node(), node.now));
      CHECK(node.node().reserving == nullptr);
      CHECK(reservations.Keep(node.node(), node.now));  // There is none.
    }
    THEN("it ends after a while, and the next one comes later") {
      node.now += 30 * kSecond;
      CHECK_FALSE(reservations.Keep(node.node(), node.now));
      large.cls->overtaken = 3;
      reservations.Update(node.node(), node.now);
      CHECK(node.node().reserving == nullptr);
      large.cls->overtaken = 6;
      reservations.Update(node.node(), node.now);
      CHECK(node.node().reserving == large.cls);
    }
  }
  WHEN("an actor has what it needs") {
    LeaseParts other("CPU:4", {}, {.overtakes_max = 0});
    other.Grant(other.Add(kC, 1, "CPU:1", 1, 0, /*actor=*/true));
    auto& waits = other.Add(kB, 1, "CPU:4");
    waits.cls->local = true;
    other.parts.demands.Enqueue(waits, other.now);
    other.parts.reservations.Update(other.node(), other.now);
    CHECK(other.node().reserving == nullptr);
  }
}

}  // namespace reservations_test
}  // namespace sheaf::lease_queue_test
