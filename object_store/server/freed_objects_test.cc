// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "object_store/server/freed_objects.h"

#include <catch2/catch.hpp>

#include "object_store/server/store_parts_for_test.h"

namespace sheaf::store_parts_test {
namespace freed_objects_test {

SCENARIO("the memory of a freed object comes free when nobody uses it") {
  Parts parts;
  const uint64_t free_before = parts.allocator.free_bytes();
  const auto record = parts.Seal(kA, Id(kA, 1));
  const uint32_t slot = record->slot;
  const auto scan = [&] { parts.freed.Scan(/*keep_extents=*/false); };
  const auto is_free = [&] { return parts.allocator.free_bytes() == free_before; };
  WHEN("somebody looks at it") {
    parts.View(kB, *record);
    parts.index.Free(record);
    CHECK(parts.freed.look_again());
    scan();
    CHECK_FALSE(is_free());
    CHECK(parts.table.Word(slot).state == SlotState::kFreeing);
    THEN("it is looked at again after a while") {
      parts.EndView(kB);
      CHECK_FALSE(parts.freed.Due(parts.clock.Now()));
      parts.clock.Advance(20 * kMillisecond);
      CHECK(parts.freed.Due(parts.clock.Now()));
      scan();
      CHECK(is_free());
      CHECK(parts.freed.empty());
      CHECK_FALSE(parts.freed.Due(kForever));
    }
  }
  WHEN("it is sent to another node, or written to disk") {
    record->pins = GENERATE(0u, 1u);
    record->writing = record->pins == 0;
    parts.index.Free(record);
    scan();
    CHECK_FALSE(is_free());
    record->pins = 0;
    record->writing = false;
    parts.freed.LookAgain();
    CHECK(parts.freed.Due(parts.clock.Now()));
    scan();
    CHECK(is_free());
  }
  WHEN("nobody needs room") {
    parts.index.Free(record);
    const uint32_t generation = parts.table.GenerationOf(slot);
    parts.freed.Scan(/*keep_extents=*/true);
    THEN("its process keeps the extent for the next one, under another generation") {
      CHECK_FALSE(is_free());
      CHECK(parts.table.Word(slot) == SlotWord{generation + 1, SlotState::kIdle});
    }
  }
}

TEST_CASE("an extent for small objects stays with its process, whoever needs room") {
  Parts parts;
  const uint32_t slot = parts.GrantSlot(kA);
  parts.WriteSealed(slot, Id(kA, 1), parts.Grant(kA, kG)->range.offset, 100);
  parts.index.Learn(slot);
  parts.index.Free(parts.table.Find(Id(kA, 1)));
  parts.freed.Scan(/*keep_extents=*/false);
  CHECK(parts.table.Word(slot).state == SlotState::kFree);
  CHECK(parts.table.granted_bytes() == kG);
}

}  // namespace freed_objects_test
}  // namespace sheaf::store_parts_test
