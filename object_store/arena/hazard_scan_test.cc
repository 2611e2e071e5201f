// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "object_store/arena/hazard_scan.h"

#include <catch2/catch.hpp>

#include "object_store/server/store_parts_for_test.h"

namespace sheaf::store_parts_test {
namespace hazard_scan_test {

SCENARIO("an object is viewed while a list names its slot and generation") {
  Parts parts;
  const auto record = parts.Seal(kA, Id(kA, 1));
  const auto other = parts.Seal(kA, Id(kA, 2));
  parts.View(kB, *record);
  parts.hazards.Run();
  CHECK(parts.hazards.Viewed(record->slot));
  CHECK_FALSE(parts.hazards.Viewed(other->slot));
  CHECK(parts.hazards.pinned_bytes() == kG);
  WHEN("two look at it") {
    parts.View(kA, *record);
    parts.hazards.Run();
    THEN("its bytes count once") { CHECK(parts.hazards.pinned_bytes() == kG); }
  }
  WHEN("the view ends") {
    parts.EndView(kB);
    CHECK(parts.hazards.Viewed(record->slot));  // Until the next scan.
    parts.hazards.Run();
    CHECK_FALSE(parts.hazards.Viewed(record->slot));
    CHECK(parts.hazards.pinned_bytes() == 0);
  }
  WHEN("its process is dead, and its mappings are not gone") {
    CHECK(parts.processes.MarkDead(kB));
    parts.hazards.Run();
    CHECK(parts.hazards.Viewed(record->slot));
    parts.processes.Remove(kB);
    parts.hazards.Run();
    CHECK_FALSE(parts.hazards.Viewed(record->slot));
  }
  WHEN("a list names an earlier object of the slot, or no slot at all") {
    HazardList& list = parts.HazardsOf(kB);
    list.used.store(UINT64_MAX);
    list.entries[0].store(EncodeHazard(record->slot, record->generation + 1));
    list.entries[1].store(EncodeHazard(kNoSlot - 1, 1));
    parts.hazards.Run();
    CHECK_FALSE(parts.hazards.Viewed(record->slot));
  }
}

TEST_CASE("what is viewed was of use now") {
  Parts parts;
  const auto older = parts.Seal(kA, Id(kA, 1));
  parts.Seal(kA, Id(kA, 2));
  parts.View(kB, *older);
  parts.hazards.Run();
  std::vector<ObjectId> order;
  parts.table.ForEachLeastUsed([&](const std::shared_ptr<ObjectRecord>& record) {
    order.push_back(record->info.id);
    return true;
  });
  CHECK(order == std::vector{Id(kA, 2), Id(kA, 1)});
}

}  // namespace hazard_scan_test
}  // namespace sheaf::store_parts_test
