// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "object_store/server/restorer.h"

#include <catch2/catch.hpp>

#include "object_store/server/store_parts_for_test.h"

namespace sheaf::store_parts_test {
namespace restorer_test {

SCENARIO("an object comes back from disk") {
  Parts parts;
  const auto record = parts.SealOnDisk(kA, Id(kA, 1));
  const std::string bytes(kG, '\1');
  std::vector<LookupOutcome> outcomes;
  record->hooks.push_back([&](LookupOutcome outcome) { outcomes.push_back(outcome); });
  WHEN("there is room") {
    parts.restorer.Start(record);
    CHECK(record->place == ObjectPlace::kRestoring);
    parts.disk.RunAll();
    CHECK(outcomes == std::vector{LookupOutcome::kFound});
    CHECK(record->place == ObjectPlace::kMemory);
    CHECK(parts.table.Word(record->slot) == SlotWord{record->generation, SlotState::kSealed});
    CHECK(std::memcmp(parts.arena.data() + record->bytes.offset, bytes.data(), kG) == 0);
    CHECK(parts.restorer.counts().restores == 1);
  }
  WHEN("there is none for too long") {
    parts.Fill();
    parts.restorer.Start(record);
    CHECK(parts.room.size() == 1);
    parts.clock.Advance(10 * kSecond);
    parts.room.Expire(parts.clock.Now(), SpillProgress(kSecond, 1));
    CHECK(outcomes == std::vector{LookupOutcome::kFull});
    CHECK(record->place == ObjectPlace::kDisk);
  }
  WHEN("its file is gone") {
    parts.spill.files.clear();
    parts.restorer.Start(record);
    parts.disk.RunAll();
    CHECK(outcomes == std::vector{LookupOutcome::kDataLoss});
    CHECK(parts.observer.lost == std::vector{Id(kA, 1)});
    CHECK(parts.restorer.counts().lost == 1);
    CHECK(parts.allocator.free_bytes() == parts.capacity());
  }
  WHEN("it is freed while it waits for room") {
    parts.Fill();
    parts.restorer.Start(record);
    parts.index.Free(record);
    CHECK(parts.room.empty());
    CHECK(outcomes == std::vector{LookupOutcome::kNotFound});
  }
  WHEN("it is freed while it is read") {
    parts.restorer.Start(record);
    parts.index.Free(record);
    parts.disk.RunAll();
    CHECK(outcomes == std::vector{LookupOutcome::kNotFound});
    CHECK(parts.allocator.free_bytes() == parts.capacity());
    CHECK(parts.restorer.counts().restores == 0);
  }
}

TEST_CASE("small ones come back side by side") {
  Parts parts;
  const auto first = parts.SealOnDisk(kA, Id(kA, 1), 1000);
  const auto second = parts.SealOnDisk(kA, Id(kA, 2), 1000);
  parts.restorer.Start(first);
  parts.restorer.Start(second);
  parts.disk.RunAll();
  CHECK(first->extent == second->extent);
  CHECK(parts.allocator.free_bytes() == parts.capacity() - kG);
}

}  // namespace restorer_test
}  // namespace sheaf::store_parts_test
