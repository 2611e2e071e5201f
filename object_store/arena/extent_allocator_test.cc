// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "object_store/arena/extent_allocator.h"

#include <catch2/catch.hpp>

#include <map>
#include <vector>

#include "base/random.h"

namespace sheaf {
namespace extent_allocator_test {

constexpr uint64_t kG = kGranuleBytes;
constexpr uint64_t kBegin = 32 * kG;

TEST_CASE("what was freed last is given out first") {
  ExtentAllocator allocator(kBegin, 100 * kG);
  const auto a = allocator.Allocate({.bytes = 4 * kG});
  const auto gap = allocator.Allocate({.bytes = kG});
  const auto b = allocator.Allocate({.bytes = 4 * kG});
  const auto end = allocator.Allocate({.bytes = kG});
  REQUIRE((a && gap && b && end));
  CHECK(a->unpopulated.size() == 1);  // All of it is cold.
  allocator.Free(b->range, true);
  allocator.Free(a->range, true);
  const auto again = allocator.Allocate({.bytes = 3 * kG});
  CHECK(again->range.offset == a->range.offset);
  CHECK(again->unpopulated.empty());
}

TEST_CASE("a large request joins warm and cold neighbours and says which part is cold") {
  ExtentAllocator allocator(kBegin, 20 * kG);
  const auto a = allocator.Allocate({.bytes = 6 * kG});
  allocator.Free(a->range, true);
  CHECK(allocator.populated_free_bytes() == 6 * kG);
  const auto all = allocator.Allocate({.bytes = 20 * kG});
  REQUIRE(all);
  REQUIRE(all->unpopulated.size() == 1);
  CHECK(all->unpopulated[0].offset == kBegin + 6 * kG);
  CHECK(all->unpopulated[0].bytes == 14 * kG);
  CHECK(allocator.free_bytes() == 0);
  CHECK_FALSE(allocator.Allocate({.bytes = kG}));
}

TEST_CASE("without memory for more, only populated ranges are given") {
  ExtentAllocator allocator(kBegin, 20 * kG);
  CHECK_FALSE(allocator.Allocate({.bytes = kG, .populated_only = true}));
  const auto a = allocator.Allocate({.bytes = 6 * kG});
  allocator.Free(a->range, true);
  CHECK(allocator.Allocate({.bytes = 6 * kG, .populated_only = true}));
}

TEST_CASE("small requests gather at the top") {
  ExtentAllocator allocator(kBegin, 20 * kG);
  CHECK(allocator.Allocate({.bytes = kG, .from_top = true})->range.offset == kBegin + 19 * kG);
  CHECK(allocator.Allocate({.bytes = kG})->range.offset == kBegin);
}

TEST_CASE("alignment is kept where there is room for it") {
  ExtentAllocator allocator(kBegin + kG, 200 * kG);
  const auto aligned = allocator.Allocate({.bytes = 32 * kG, .alignment = kHugePageBytes});
  CHECK(aligned->range.offset % kHugePageBytes == 0);
}

TEST_CASE("the coldest memory is given back first") {
  ExtentAllocator allocator(kBegin, 20 * kG);
  const auto a = allocator.Allocate({.bytes = 2 * kG});
  const auto gap = allocator.Allocate({.bytes = kG});
  const auto b = allocator.Allocate({.bytes = 2 * kG});
  REQUIRE(gap);
  allocator.Free(a->range, true);
  allocator.Free(b->range, true);
  const auto coldest = allocator.TakeColdest(kG);
  CHECK(coldest->offset == a->range.offset + kG);
  allocator.Free(*coldest, false);
  CHECK(allocator.populated_free_bytes() == 3 * kG);
}

// Against a plain list of granules: nothing is given twice, nothing is lost, all comes back as one.
TEST_CASE("random use neither loses nor doubles a granule") {
  constexpr uint64_t kCount = 400;
  SeededRandom random(GENERATE(range(1, 30)));
  ExtentAllocator allocator(kBegin, kCount * kG);
  std::vector<char> taken(kCount, 0);
  std::vector<char> warm(kCount, 0);
  std::vector<ExtentRange> held;
  const auto first = [](const ExtentRange& r) { return (r.offset - kBegin) / kG; };
  for (int step = 0; step < 2000; ++step) {
    if (random.OneIn(2) || held.empty()) {
      const ExtentAllocator::Want want{.bytes = (1 + random.Below(random.OneIn(4) ? 100 : 8)) * kG,
                                       .populated_only = random.OneIn(4),
                                       .from_top = random.OneIn(2)};
      const auto got = allocator.Allocate(want);
      if (!got) continue;
      REQUIRE(got->range.bytes == want.bytes);
      std::vector<char> cold(kCount, 0);
      for (const ExtentRange& part : got->unpopulated) {
        for (uint64_t g = first(part); g < first(part) + part.bytes / kG; ++g) cold[g] = 1;
      }
      for (uint64_t g = first(got->range); g < first(got->range) + want.bytes / kG; ++g) {
        REQUIRE(taken[g] == 0);
        REQUIRE(warm[g] != cold[g]);
        if (want.populated_only) REQUIRE(warm[g] == 1);
        taken[g] = 1;
      }
      held.push_back(got->range);
    } else {
      std::swap(held[random.Below(held.size())], held.back());
      const ExtentRange range = held.back();
      held.pop_back();
      const bool populated = !random.OneIn(4);
      for (uint64_t g = first(range); g < first(range) + range.bytes / kG; ++g) {
        taken[g] = 0;
        warm[g] = populated;
      }
      allocator.Free(range, populated);
    }
    uint64_t free = 0;
    uint64_t free_warm = 0;
    for (uint64_t g = 0; g < kCount; ++g) {
      free += taken[g] == 0;
      free_warm += taken[g] == 0 && warm[g] == 1;
    }
    REQUIRE(allocator.free_bytes() == free * kG);
    REQUIRE(allocator.populated_free_bytes() == free_warm * kG);
  }
  for (const ExtentRange& range : held) allocator.Free(range, true);
  CHECK(allocator.LongestRun(false) == kCount * kG);
}

}  // namespace extent_allocator_test
}  // namespace sheaf
