// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "object_store/server/spill_scheduler.h"

#include <catch2/catch.hpp>

#include "object_store/server/store_parts_for_test.h"

namespace sheaf::store_parts_test {
namespace spill_scheduler_test {

SCENARIO("what was not used for longest goes to disk, as much as is needed") {
  Parts parts;
  const auto first = parts.Seal(kA, Id(kA, 1));
  const auto second = parts.Seal(kA, Id(kA, 2));
  parts.table.Touch(*first);
  const uint64_t free_before = parts.allocator.free_bytes();
  parts.spills.Spill(kG);
  CHECK(parts.spills.writing());
  CHECK(second->writing);
  CHECK_FALSE(first->writing);
  CHECK(second->place == ObjectPlace::kMemory);
  WHEN("it is written") {
    parts.disk.RunAll();
    CHECK(second->place == ObjectPlace::kDisk);
    CHECK(parts.allocator.free_bytes() == free_before + kG);
    CHECK(parts.spills.counts().spills == 1);
    CHECK(parts.spills.counts().written_bytes == kG);
    CHECK_FALSE(parts.spills.writing());
  }
  WHEN("more is asked for meanwhile") {
    parts.spills.Spill(kG);
    CHECK_FALSE(first->writing);
    parts.spills.Spill(2 * kG);
    CHECK(first->writing);
  }
  WHEN("somebody looks at it meanwhile") {
    parts.View(kB, *second);
    parts.disk.RunAll();
    CHECK(second->place == ObjectPlace::kMemory);
    CHECK(parts.table.Word(second->slot).state == SlotState::kSealed);
    THEN("it goes without another write when the view is over") {
      parts.EndView(kB);
      parts.table.Touch(*first);
      parts.clock.Advance(kSecond);
      parts.spills.Spill(kG);
      CHECK(second->place == ObjectPlace::kDisk);
      CHECK_FALSE(parts.spills.writing());
    }
  }
  WHEN("it is freed meanwhile") {
    parts.index.Free(second);
    parts.freed.Scan(false);
    CHECK_FALSE(parts.freed.empty());  // The disk's executor reads it.
    parts.disk.RunAll();
    CHECK(parts.freed.empty());
    CHECK(parts.spill.files.empty());
  }
  WHEN("the disk is full") {
    parts.spill.full = true;
    parts.disk.RunAll();
    CHECK(second->place == ObjectPlace::kMemory);
    CHECK(parts.spills.counts().failures == 1);
    CHECK(parts.spills.Progress(parts.clock.Now()).failing());
    THEN("it is asked again after a while") {
      parts.spills.Spill(kG);
      CHECK_FALSE(parts.spills.writing());
      parts.clock.Advance(kSecond);
      parts.spills.Spill(kG);
      CHECK(parts.spills.writing());
    }
  }
}

TEST_CASE("what is in use stays in memory, and is looked at again after a while only") {
  Parts parts;
  const auto record = parts.Seal(kA, Id(kA, 1));
  parts.View(kB, *record);
  parts.spills.Spill(kG);
  CHECK_FALSE(parts.spills.writing());
  parts.EndView(kB);
  parts.spills.Spill(kG);
  CHECK_FALSE(parts.spills.writing());
  parts.clock.Advance(20 * kMillisecond);
  parts.spills.Spill(kG);
  CHECK(parts.spills.writing());
}

TEST_CASE("objects of one batch share files of about the size that is wanted") {
  Parts parts;
  for (uint64_t i = 1; i <= 10; ++i) parts.Seal(kA, Id(kA, i));
  parts.spills.Spill(10 * kG);
  parts.disk.RunAll();
  CHECK(parts.spill.files.size() == 3);  // Four, four and two.
  CHECK(parts.files.size() == 3);
}

}  // namespace spill_scheduler_test
}  // namespace sheaf::store_parts_test
