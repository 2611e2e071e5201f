// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "object_store/arena/extent_ledger.h"

#include <catch2/catch.hpp>

#include "object_store/server/store_parts_for_test.h"

namespace sheaf::store_parts_test {
namespace extent_ledger_test {

TEST_CASE("an extent that ends is free again") {
  Parts parts;
  const uint64_t free_before = parts.allocator.free_bytes();
  Extent* extent = parts.Grant(kA, 3 * kG);
  CHECK(parts.table.granted_bytes() == 3 * kG);
  parts.extents.End(extent);
  CHECK(parts.table.granted_bytes() == 0);
  CHECK(parts.allocator.free_bytes() == free_before);
}

SCENARIO("of a split extent the store keeps the granules with objects") {
  Parts parts;
  const uint64_t free_before = parts.allocator.free_bytes();
  const uint32_t slot = parts.GrantSlot(kA);
  Extent* extent = parts.Grant(kA, 8 * kG);
  const uint64_t at = extent->range.offset;
  // Two that share the second granule, one that crosses from the fifth into the sixth.
  parts.WriteSealed(slot, Id(kA, 1), at + kG, 1000);
  parts.WriteSealed(slot + 1, Id(kA, 2), at + kG + 4096, 1000);
  parts.WriteSealed(slot + 2, Id(kA, 3), at + 5 * kG - 64, 1000);
  parts.index.LearnOf(kA);
  REQUIRE(parts.observer.sealed.size() == 3);
  WHEN("its process is dead") {
    parts.extents.Split(kA, nullptr);
    CHECK(parts.table.granted_bytes() == 0);
    CHECK(parts.allocator.free_bytes() == free_before - 3 * kG);
    const auto first = parts.table.Find(Id(kA, 1)), second = parts.table.Find(Id(kA, 2));
    const auto third = parts.table.Find(Id(kA, 3));
    CHECK(first->extent == second->extent);
    CHECK(first->extent->objects == 2);
    CHECK(first->extent->holder == ProcessId{});
    CHECK(third->extent->range.bytes == 2 * kG);
    THEN("the last object takes the rest with it") {
      for (const auto& record : {first, second, third}) parts.index.Free(record);
      parts.freed.Scan(/*keep_extents=*/false);
      CHECK(parts.allocator.free_bytes() == free_before);
    }
  }
  WHEN("another one is meant") {
    const absl::btree_set<uint64_t> others = {at + kG};
    parts.extents.Split(kA, &others);
    CHECK(parts.table.granted_bytes() == 8 * kG);
  }
}

}  // namespace extent_ledger_test
}  // namespace sheaf::store_parts_test
