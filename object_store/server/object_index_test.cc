// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "object_store/server/object_index.h"

#include <catch2/catch.hpp>

#include "object_store/server/store_parts_for_test.h"

namespace sheaf::store_parts_test {
namespace object_index_test {

SCENARIO("what a slot says is believed only where it can be true") {
  Parts parts;
  const uint32_t slot = parts.GrantSlot(kA);
  Extent* own = parts.Grant(kA, kG);
  Extent* foreign = parts.Grant(kB, kG);
  const uint64_t at = own->range.offset;
  WHEN("it lies in an extent of its writer") {
    parts.WriteSealed(slot, Id(kA, 1), at, 100);
    CHECK(parts.index.Find(Id(kA, 1)) != nullptr);
    CHECK(parts.observer.sealed == std::vector{Id(kA, 1)});
    THEN("it is learned once") {
      parts.index.Learn(slot);
      CHECK(parts.observer.sealed.size() == 1);
    }
  }
  WHEN("it lies elsewhere") {
    const uint64_t offset =
        GENERATE_COPY(at + kG - 64, at + 1, foreign->range.offset, uint64_t{0}, UINT64_MAX - 63);
    Slot& shared = parts.table.at(slot);
    shared.id = Id(kA, 1);
    shared.data_offset = offset;
    shared.data_bytes = 100;
    parts.table.SetState(slot, SlotState::kSealed);
    parts.index.Learn(slot);
    CHECK(parts.observer.violations == std::vector{kA});
    CHECK(parts.table.Find(Id(kA, 1)) == nullptr);
  }
  WHEN("it is larger than anything") {
    parts.WriteSealed(slot, Id(kA, 1), at, 100);
    parts.table.at(slot).data_bytes = UINT64_MAX;
    parts.index.Learn(slot);
    CHECK(parts.observer.violations == std::vector{kA});
  }
  WHEN("the slot is nobody's") {
    parts.index.Learn(kNoSlot);
    parts.index.Learn(slot + 10 * kSlotsPerPage);
    CHECK(parts.observer.violations.empty());
  }
}

SCENARIO("of two copies the one of the later attempt stays") {
  Parts parts;
  const uint32_t slot = parts.GrantSlot(kA);
  const uint64_t at = parts.Grant(kA, kG)->range.offset;
  parts.WriteSealed(slot, Id(kA, 1), at, 100, /*attempt=*/3);
  parts.index.Learn(slot);
  const uint32_t attempt = GENERATE(2u, 3u, 4u);
  parts.WriteSealed(slot + 1, Id(kA, 1), at + 4096, 100, attempt);
  parts.index.Learn(slot + 1);
  CHECK(parts.table.Find(Id(kA, 1))->info.attempt == std::max(3u, attempt));
  CHECK(parts.observer.gone.size() == (attempt == 4 ? 1 : 0));
  parts.freed.Scan(true);
  CHECK(parts.table.Word(attempt == 4 ? slot : slot + 1).state == SlotState::kFree);
}

TEST_CASE("all slots are looked at once a turn, and not more often than the period says") {
  Parts parts;
  parts.index.LearnAll();
  const uint32_t slot = parts.GrantSlot(kA);
  parts.WriteSealed(slot, Id(kA, 1), parts.Grant(kA, kG)->range.offset, 100);
  CHECK(parts.index.Find(Id(kA, 1)) == nullptr);
  parts.index.EndTurn();
  CHECK(parts.index.Find(Id(kA, 1)) == nullptr);
  SECTION("later") {
    parts.clock.Advance(5 * kMillisecond);
    CHECK(parts.index.Find(Id(kA, 1)) != nullptr);
  }
  SECTION("by who knows the slot") {
    CHECK(parts.index.Find(Id(kA, 1), {kNode, slot, 0, 0}) != nullptr);
  }
  SECTION("by who must know all") {
    parts.index.LearnAllNow();
    CHECK(parts.table.Find(Id(kA, 1)) != nullptr);
  }
}

SCENARIO("who asks is told where it is, that it is nowhere, or when it is back") {
  Parts parts;
  std::vector<LocatedObject> answers;
  WHEN("it is nowhere") {
    CHECK_FALSE(parts.index.Answer(kB, Id(kA, 1), nullptr, &answers));
    REQUIRE(answers.size() == 1);
    CHECK(answers[0].outcome == LookupOutcome::kNotFound);
  }
  WHEN("it is in memory") {
    const auto record = parts.Seal(kA, Id(kA, 1));
    CHECK_FALSE(parts.index.Answer(kB, Id(kA, 1), record, &answers));
    REQUIRE(answers.size() == 1);
    CHECK(answers[0].location == parts.index.LocationOf(*record));
    THEN("a damaged header is written anew, and its writer is named") {
      parts.table.at(record->slot).data_bytes = 1;
      parts.index.Answer(kB, Id(kA, 1), record, &answers);
      CHECK(parts.table.at(record->slot).data_bytes == kG);
      CHECK(parts.observer.violations == std::vector{kA});
    }
  }
  WHEN("it is on disk") {
    const auto record = parts.SealOnDisk(kA, Id(kA, 1));
    CHECK(parts.index.Answer(kB, Id(kA, 1), record, &answers));
    CHECK(parts.index.Answer(kB, Id(kA, 1), record, &answers));
    CHECK(answers.empty());
    parts.index.Settle(*record, LookupOutcome::kFull);
    const auto told = parts.transport.Take<LocatedObject>(kStoreLocated);
    REQUIRE(told.size() == 1);  // Who asks twice is told once.
    CHECK(told[0].second.outcome == LookupOutcome::kFull);
    THEN("the dead are told nothing") {
      parts.index.Answer(kB, Id(kA, 1), record, &answers);
      parts.processes.MarkDead(kB);
      parts.index.Settle(*record, LookupOutcome::kFull);
      CHECK(parts.transport.Take<LocatedObject>(kStoreLocated).empty());
    }
  }
}

SCENARIO("an object is freed by its owner or its writer") {
  Parts parts;
  const ObjectId id = Id(kB, 1);  // Of B, written by A.
  parts.Seal(kA, id);
  const ProcessId other{kNode, 3};
  const ObjectName name{id, {}};
  parts.index.OnFree(other, std::span(&name, 1));
  CHECK(parts.observer.violations == std::vector{other});
  CHECK(parts.observer.gone.empty());
  WHEN("an earlier attempt is meant") {
    parts.table.Find(id)->info.attempt = 2;
    const ObjectName earlier{id, {.node = kNode, .slot = kNoSlot, .generation = 0, .attempt = 1}};
    parts.index.OnFree(kB, std::span(&earlier, 1));
    CHECK(parts.observer.gone.empty());
  }
  WHEN("one of them says so") {
    const std::vector<ProcessId> may = {kA, kB, RayletOf(kNode)};
    parts.index.OnFree(may[GENERATE(0, 1, 2)], std::span(&name, 1));
    CHECK(parts.observer.gone == std::vector{id});
  }
}

}  // namespace object_index_test
}  // namespace sheaf::store_parts_test
