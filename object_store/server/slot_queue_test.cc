// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "object_store/server/slot_queue.h"

#include <catch2/catch.hpp>

#include "object_store/server/store_parts_for_test.h"

namespace sheaf::store_parts_test {
namespace slot_queue_test {

constexpr SlotRequest kOnePage{.request = 5, .pages = 1, .unused = 0, .wait_ns = kSecond};

SCENARIO("processes get pages of slots while there are any") {
  Parts parts;
  const auto granted = [&] { return parts.transport.Take<SlotGrant>(kStoreSlotGrant); };
  const auto refused = [&] { return parts.transport.Take<StoreRefusal>(kStoreRefused); };
  WHEN("there are") {
    parts.slots.OnRequest(kA, kOnePage);
    const auto answers = granted();
    REQUIRE(answers.size() == 1);
    CHECK(answers[0].second.request == 5);
    CHECK(answers[0].second.pages == 1);
  }
  WHEN("a request makes no sense") {
    parts.slots.OnRequest(kA, {.request = 5, .pages = 0, .unused = 0, .wait_ns = 0});
    REQUIRE(refused().size() == 1);
    CHECK(granted().empty());
  }
  WHEN("all are taken") {
    while (parts.table.GrantPages(kB, 1000)) {
    }
    parts.slots.OnRequest(kA, kOnePage);
    CHECK(parts.slots.size() == 1);
    CHECK(parts.transport.Take<StoreRecall>(kStoreRecall).size() == 1);  // Of the other.
    THEN("one that comes back is the next one's") {
      CHECK(parts.table.ReturnPage(kB, 3));
      parts.slots.Serve();
      REQUIRE(granted().size() == 1);
      CHECK(parts.slots.empty());
    }
    THEN("a wait ends") {
      parts.clock.Advance(kSecond);
      parts.slots.Serve();
      const auto answers = refused();
      REQUIRE(answers.size() == 1);
      CHECK(answers[0].second.reason == StoreRefusalReason::kTableFull);
      CHECK(parts.refusals.refusals() == 1);
    }
    THEN("the dead wait no more") {
      parts.slots.OnProcessDied(kA);
      CHECK(parts.slots.empty());
    }
    THEN("copies and restored objects find slots still") {
      CHECK(parts.slots.TakeOwnSlot() != kNoSlot);
    }
  }
}

}  // namespace slot_queue_test
}  // namespace sheaf::store_parts_test
