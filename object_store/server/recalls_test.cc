// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "object_store/server/recalls.h"

#include <catch2/catch.hpp>

#include "object_store/server/store_parts_for_test.h"

namespace sheaf::store_parts_test {
namespace recalls_test {

SCENARIO("idle extents are taken until there is enough") {
  Parts parts;
  std::vector<uint32_t> slots;
  for (uint64_t i = 1; i <= 3; ++i) {
    const auto record = parts.Seal(kA, Id(kA, i));
    slots.push_back(record->slot);
    parts.index.Free(record);
  }
  parts.Fill();
  parts.freed.Scan(/*keep_extents=*/true);
  REQUIRE(parts.allocator.LongestRun(false) == 0);
  WHEN("one is enough") {
    parts.recalls.TakeIdle(kG, /*populated=*/true);
    CHECK(parts.allocator.free_bytes() == kG);
  }
  WHEN("their process has begun to use one of them again") {
    parts.table.SetState(slots[1], SlotState::kCreated);
    parts.recalls.TakeIdle(3 * kG, /*populated=*/true);
    CHECK(parts.allocator.free_bytes() == 2 * kG);
    CHECK(parts.table.Word(slots[1]).state == SlotState::kCreated);
  }
  WHEN("nobody needs them for long") {
    parts.recalls.Tick(parts.clock.Now());
    CHECK(parts.allocator.free_bytes() == 0);
    parts.clock.Advance(2 * kSecond);
    parts.recalls.Tick(parts.clock.Now());
    CHECK(parts.allocator.free_bytes() == 3 * kG);
  }
}

SCENARIO("processes are asked for what they share among objects, now and then") {
  Parts parts;
  parts.Grant(kA, kG);
  const auto asked = [&] { return parts.transport.Take<StoreRecall>(kStoreRecall); };
  parts.recalls.AskForEmpty(parts.clock.Now());
  parts.recalls.AskForEmpty(parts.clock.Now());
  const auto empty = asked();
  REQUIRE(empty.size() == 1);
  CHECK(empty[0].first == kA);
  CHECK(empty[0].second.with_objects == 0);
  CHECK(empty[0].second.keep_pages == 1);
  parts.recalls.AskForShared(parts.clock.Now());
  parts.recalls.AskForShared(parts.clock.Now());
  const auto shared = asked();
  REQUIRE(shared.size() == 1);
  CHECK(shared[0].second.with_objects == 1);
  WHEN("time has passed") {
    parts.clock.Advance(100 * kMillisecond);
    parts.recalls.AskForEmpty(parts.clock.Now());
    parts.recalls.AskForShared(parts.clock.Now());
    CHECK(asked().size() == 2);
  }
  WHEN("another has its number") {
    parts.recalls.OnProcessDied(kA);
    parts.recalls.AskForEmpty(parts.clock.Now());
    CHECK(asked().size() == 1);
  }
}

TEST_CASE("slots are asked for of those who have pages without objects") {
  Parts parts;
  parts.Seal(kA, Id(kA, 1));
  parts.GrantSlot(kB);
  parts.recalls.AskForSlots(parts.clock.Now());
  const auto asked = parts.transport.Take<StoreRecall>(kStoreRecall);
  REQUIRE(asked.size() == 1);
  CHECK(asked[0].first == kB);
  CHECK(asked[0].second.keep_pages == 0);
}

}  // namespace recalls_test
}  // namespace sheaf::store_parts_test
