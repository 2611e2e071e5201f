// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "raylet/scheduling/resource_ledger.h"

#include <catch2/catch.hpp>
#include <map>

#include "base/random.h"

namespace sheaf {
namespace resource_ledger_test {

Resources Parsed(const char* text) { return ParseResources(text).value(); }
const PlacementGroupId kGroup = PlacementGroupId::Make({1, 1}, 7);
constexpr int32_t kAny = -1;

SCENARIO("what is acquired is gone until it is released") {
  ResourceLedger ledger(Parsed("CPU:2,slot:1"), {});
  auto first = ledger.Acquire(Parsed("CPU:1,slot:1"));
  REQUIRE(first.has_value());
  CHECK(ledger.available() == Parsed("CPU:1"));
  CHECK_FALSE(ledger.Acquire(Parsed("CPU:2")).has_value());
  CHECK_FALSE(ledger.Acquire(Parsed("slot:1")).has_value());
  ledger.Release(*first);
  CHECK(ledger.available() == ledger.total());
}

SCENARIO("whole GPUs take free ids, fractions share one") {
  ResourceLedger ledger(Parsed("CPU:8,GPU:4"), {}, {4, 5, 6, 7});
  const auto half = ledger.Acquire(Parsed("GPU:0.5"));
  const auto third = ledger.Acquire(Parsed("GPU:0.3"));
  CHECK(half->GpuIds() == std::vector<uint32_t>{4});
  CHECK(third->GpuIds() == std::vector<uint32_t>{4});
  const auto two = ledger.Acquire(Parsed("GPU:2"));
  CHECK(two->GpuIds() == std::vector<uint32_t>{5, 6});
  WHEN("the sum would do, but no id has so much left") {
    const auto other = ledger.Acquire(Parsed("GPU:0.5"));
    CHECK(other->GpuIds() == std::vector<uint32_t>{7});
    CHECK(ledger.available().gpu() == 7'000);
    THEN("nothing is given") {
      CHECK_FALSE(ledger.CanAcquire(Parsed("GPU:0.6")));
      CHECK_FALSE(ledger.Acquire(Parsed("GPU:0.6")).has_value());
      ledger.Release(*two);
      CHECK(ledger.Acquire(Parsed("GPU:0.2"))->GpuIds() == std::vector<uint32_t>{4});  // Tightest.
      CHECK(ledger.Acquire(Parsed("GPU:2"))->GpuIds() == std::vector<uint32_t>{5, 6});
    }
  }
}

SCENARIO("a blocked worker lends its CPUs and takes them back at once") {
  ResourceLedger ledger(Parsed("CPU:1,slot:1"), {});
  auto parent = ledger.Acquire(Parsed("CPU:1,slot:1"));
  ledger.Lend(*parent);
  ledger.Lend(*parent);
  CHECK(ledger.available() == Parsed("CPU:1"));
  const auto child = ledger.Acquire(Parsed("CPU:1"));
  REQUIRE(child.has_value());
  WHEN("the parent goes on while the child runs") {
    ledger.Reclaim(*parent);
    ledger.Reclaim(*parent);
    CHECK(ledger.available().cpu() == -kUnit);
    CHECK_FALSE(ledger.Acquire(Parsed("CPU:0.1")).has_value());
    CHECK(ledger.Acquire({}).has_value());
    ledger.Release(*child);
    ledger.Release(*parent);
    THEN("all is back") { CHECK(ledger.available() == ledger.total()); }
  }
  WHEN("the parent dies while it lends") {
    ledger.Release(*parent);
    ledger.Release(*child);
    THEN("all is back, once") { CHECK(ledger.available() == ledger.total()); }
  }
}

SCENARIO("a bundle is prepared, committed, used and returned") {
  ResourceLedger ledger(Parsed("CPU:4,GPU:2"), {});
  const BundleId bundle{kGroup, 0};
  REQUIRE(ledger.Prepare(bundle, Parsed("CPU:2,GPU:1"), {1, 0}).ok());
  REQUIRE(ledger.Prepare(bundle, Parsed("CPU:2,GPU:1"), {1, 0}).ok());  // A resend.
  CHECK(absl::IsAlreadyExists(ledger.Prepare(bundle, Parsed("CPU:1"), {1, 0})));
  CHECK(ledger.available() == Parsed("CPU:2,GPU:1"));
  CHECK_FALSE(ledger.AcquireIn(kGroup, 0, Parsed("CPU:1")).has_value());  // Not committed.
  REQUIRE(ledger.Commit(bundle).ok());
  CHECK(absl::IsNotFound(ledger.Commit({kGroup, 1})));
  CHECK(absl::IsResourceExhausted(ledger.Prepare({kGroup, 1}, Parsed("CPU:3"), {1, 0})));

  const auto lease = ledger.AcquireIn(kGroup, kAny, Parsed("CPU:1,GPU:1"));
  REQUIRE(lease.has_value());
  CHECK(lease->GpuIds() == std::vector<uint32_t>{0});
  CHECK_FALSE(ledger.CanAcquireIn(kGroup, 0, Parsed("CPU:2")));
  CHECK(ledger.CouldEverAcquireIn(kGroup, 0, Parsed("CPU:2")));
  CHECK_FALSE(ledger.CouldEverAcquireIn(kGroup, kAny, Parsed("CPU:3")));
  WHEN("it is returned while a lease uses part of it") {
    CHECK(ledger.ReturnBundle(bundle));
    CHECK_FALSE(ledger.ReturnBundle(bundle));
    THEN("the rest is free at once, and that part with the lease") {
      CHECK(ledger.available() == Parsed("CPU:3,GPU:1"));
      CHECK(ledger.Acquire(Parsed("GPU:1"))->GpuIds() == std::vector<uint32_t>{1});
      ledger.Release(*lease);
      CHECK(ledger.available() == Parsed("CPU:4,GPU:1"));
    }
    THEN("a new bundle of the same name does not get what the old lease gives back") {
      REQUIRE(ledger.Prepare(bundle, Parsed("CPU:1"), {1, 0}).ok());
      ledger.Release(*lease);
      CHECK(ledger.bundles().at(bundle).available == Parsed("CPU:1"));
      CHECK(ledger.available() == Parsed("CPU:3,GPU:2"));
    }
  }
}

SCENARIO("whatever is done in whatever order, nothing is given twice and all comes back") {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    INFO("seed " << seed);
    SeededRandom random(seed);
    const Resources total = Parsed("CPU:4,GPU:3,memory:1G,slot:5");
    ResourceLedger ledger(total, {});
    const std::vector<Resources> requests = {Parsed("CPU:1"), Parsed("CPU:0.3,GPU:0.3"),
                                             Parsed("GPU:2"), Parsed("GPU:0.7,slot:2"),
                                             Parsed("CPU:2,memory:300M")};
    std::vector<Allocation> out;
    std::vector<BundleId> bundles;
    int32_t next_bundle = 0;
    for (int step = 0; step < 2'000; ++step) {
      const Resources& request = requests[random.Below(requests.size())];
      switch (random.Below(8)) {
        case 0:
        case 1:
          if (auto allocation = ledger.Acquire(request)) out.push_back(*allocation);
          break;
        case 2:
          if (auto allocation = ledger.AcquireIn(kGroup, kAny, request)) out.push_back(*allocation);
          break;
        case 3:
        case 4:
          if (!out.empty()) {
            std::swap(out[random.Below(out.size())], out.back());
            ledger.Release(out.back());
            out.pop_back();
          }
          break;
        case 5:
          if (ledger.Prepare({kGroup, next_bundle}, request, {1, 0}).ok()) {
            CHECK(ledger.Commit({kGroup, next_bundle}).ok());
            bundles.push_back({kGroup, next_bundle});
          }
          ++next_bundle;
          break;
        case 6:
          if (!bundles.empty()) {
            CHECK(ledger.ReturnBundle(bundles.back()));
            bundles.pop_back();
          }
          break;
        default:
          if (!out.empty()) {
            Allocation& one = out[random.Below(out.size())];
            random.OneIn(2) ? ledger.Lend(one) : ledger.Reclaim(one);
          }
      }
      std::map<uint32_t, Amount> gpus;
      Resources used;
      for (const Allocation& allocation : out) {
        used += allocation.resources;
        for (const GpuShare& share : allocation.gpus) gpus[share.id] += share.amount;
      }
      used.Set(KnownResource::kCpu, 0);  // Lent CPUs may be in use twice.
      REQUIRE(total.Fits(used));
      for (const auto& [id, amount] : gpus) REQUIRE((id < 3 && amount <= kUnit));
    }
    for (const Allocation& allocation : out) ledger.Release(allocation);
    for (const BundleId& bundle : bundles) CHECK(ledger.ReturnBundle(bundle));
    REQUIRE(ledger.available() == total);
    REQUIRE(ledger.Acquire(Parsed("GPU:3")).has_value());
  }
}

}  // namespace resource_ledger_test
}  // namespace sheaf
