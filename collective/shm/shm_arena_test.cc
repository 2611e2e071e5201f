// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "collective/shm/shm_arena.h"

#include <catch2/catch.hpp>
#include <vector>

#include "base/random.h"

namespace sheaf {
namespace {

SCENARIO("an arena hands out ranges that do not overlap, and takes them back") {
  ShmArena arena(1024);
  WHEN("it is full") {
    const size_t a = *arena.Take(500);
    const size_t b = *arena.Take(1);
    const size_t c = *arena.Take(448);
    CHECK(a % ShmArena::kAlignment == 0);
    CHECK(b == a + 512);
    CHECK(c == b + 64);
    THEN("the next is refused with the remedy") {
      const absl::Status full = arena.Take(1).status();
      CHECK(absl::IsResourceExhausted(full));
      CHECK(std::string(full.message()).find("1024 of 1024 are in use") != std::string::npos);
    }
    THEN("what comes back is joined with its neighbours") {
      arena.GiveBack(a);
      arena.GiveBack(c);
      CHECK_FALSE(arena.Take(600).ok());
      arena.GiveBack(b);
      CHECK(*arena.Take(1024) == 0);
    }
  }
  WHEN("more is asked for than it has, or more than any") {
    CHECK(absl::IsResourceExhausted(arena.Take(1025).status()));
    CHECK(absl::IsResourceExhausted(arena.Take(SIZE_MAX).status()));
  }
  WHEN("ranges come and go at random") {
    SeededRandom random(7);
    std::vector<std::pair<size_t, size_t>> taken;
    for (int i = 0; i < 2000; ++i) {
      if (!taken.empty() && random.OneIn(2)) {
        const size_t index = random.Below(taken.size());
        arena.GiveBack(taken[index].first);
        taken.erase(taken.begin() + static_cast<ptrdiff_t>(index));
        continue;
      }
      const size_t size = 1 + random.Below(200);
      const absl::StatusOr<size_t> offset = arena.Take(size);
      if (!offset.ok()) continue;
      for (const auto& [other, bytes] : taken) {
        REQUIRE((*offset + size <= other || other + bytes <= *offset));
      }
      taken.emplace_back(*offset, size);
    }
    for (const auto& [offset, size] : taken) arena.GiveBack(offset);
    CHECK(arena.Take(1024).ok());
  }
}

}  // namespace
}  // namespace sheaf
