// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "base/memory/heap.h"

#include <sys/prctl.h>
#include <sys/resource.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <memory>
#include <vector>

namespace sheaf {
namespace {

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

long PageFaults() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt;
}

// Page faults of 16 MiB in blocks of 64 KiB, and 16 MiB in blocks of 1 MiB, made and dropped.
long FaultsOfARound() {
  const long before = PageFaults();
  for (const size_t bytes : {size_t{64} << 10, size_t{1} << 20}) {
    std::vector<std::unique_ptr<char[]>> blocks;
    while (blocks.size() * bytes < (16 << 20)) {
      blocks.push_back(std::make_unique_for_overwrite<char[]>(bytes));
      std::memset(blocks.back().get(), 1, bytes);
    }
  }
  return PageFaults() - before;
}

SCENARIO("memory that was freed is there again without a page fault, until its process idles") {
  REQUIRE(prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0) == 0);  // Faults are counted in small pages.
  KeepFreedMemory(32 << 20);
  FaultsOfARound();
  CHECK(FaultsOfARound() < 1000);  // Of 8,192 pages.
  IdleHeap heap;
  CHECK_FALSE(heap.Tick(0, /*work=*/1, /*busy=*/false));
  CHECK_FALSE(heap.Tick(IdleHeap::kIdle - 1, 1, false));
  WHEN("it has idled for long") {
    CHECK(heap.Tick(IdleHeap::kIdle, 1, false));
    CHECK(FaultsOfARound() > 3000);
    THEN("it is given back once") { CHECK_FALSE(heap.Tick(2 * IdleHeap::kIdle, 1, false)); }
  }
  WHEN("something was done, or is being done") {
    CHECK_FALSE(heap.Tick(IdleHeap::kIdle, 2, false));
    CHECK_FALSE(heap.Tick(2 * IdleHeap::kIdle - 1, 2, true));
    CHECK_FALSE(heap.Tick(3 * IdleHeap::kIdle - 2, 2, false));
    CHECK(heap.Tick(3 * IdleHeap::kIdle - 1, 2, false));
  }
  REQUIRE(prctl(PR_SET_THP_DISABLE, 0, 0, 0, 0) == 0);
}

#endif

}  // namespace
}  // namespace sheaf
