// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "object_store/arena/shelf.h"

#include <catch2/catch.hpp>

#include "object_store/server/store_parts_for_test.h"

namespace sheaf::store_parts_test {
namespace shelf_test {

TEST_CASE("small objects lie side by side, each on a cache line of its own") {
  Parts parts;
  CHECK_FALSE(parts.shelf.Take(100));
  const auto room = parts.allocator.Allocate({.bytes = kG});
  const Shelf::Place first = parts.shelf.TakeFrom(room->range, 100);
  const auto second = parts.shelf.Take(100);
  REQUIRE(second);
  CHECK(second->extent == first.extent);
  CHECK(second->range.offset == first.range.offset + 2 * kPayloadAlignment);
  CHECK_FALSE(parts.shelf.Take(kG));
}

SCENARIO("a shelf ends with the last object that lies on it") {
  Parts parts;
  const uint64_t free_before = parts.allocator.free_bytes();
  const auto room = [&] { return parts.allocator.Allocate({.bytes = kG})->range; };
  const Shelf::Place first = parts.shelf.TakeFrom(room(), 100);
  const Shelf::Place second = *parts.shelf.Take(100);
  WHEN("it is the shelf still") {
    parts.shelf.Drop(first.extent);
    CHECK(parts.allocator.free_bytes() == free_before - kG);
    parts.shelf.Drop(second.extent);
    CHECK(parts.allocator.free_bytes() == free_before);
    CHECK_FALSE(parts.shelf.Take(100));
  }
  WHEN("another has taken its place") {
    const Shelf::Place third = parts.shelf.TakeFrom(room(), kG);
    CHECK(third.extent != first.extent);
    parts.shelf.Drop(first.extent);
    parts.shelf.Drop(second.extent);
    CHECK(parts.allocator.free_bytes() == free_before - kG);
    parts.shelf.Drop(third.extent);
    CHECK(parts.allocator.free_bytes() == free_before);
  }
  WHEN("two have brought room for one") {
    const uint64_t free_now = parts.allocator.free_bytes();
    CHECK(parts.shelf.TakeFrom(room(), 100).extent == first.extent);
    CHECK(parts.allocator.free_bytes() == free_now);
  }
}

TEST_CASE("an extent that its process keeps warm stays when it is empty") {
  Parts parts;
  Extent* extent = parts.Grant(kA, kG, parts.GrantSlot(kA));
  parts.table.AddObject(*extent);
  parts.shelf.Drop(extent, /*keep_empty=*/true);
  CHECK(parts.table.granted_bytes() == kG);
}

}  // namespace shelf_test
}  // namespace sheaf::store_parts_test
