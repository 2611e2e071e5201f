// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "base/resources.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <map>

#include "base/random.h"

namespace sheaf {
namespace {

Resources Parsed(const char* text) {
  const auto parsed = ParseResources(text);
  REQUIRE(parsed.ok());
  return *parsed;
}

}  // namespace

SCENARIO("amounts are read from and written to text that people write") {
  CHECK(Parsed("CPU:2,GPU:0.5").ToString() == "2 CPU, 0.5 GPU");
  CHECK(Parsed(" CPU:1 , slot : 3 ").ToString() == "1 CPU, 3 slot");
  CHECK(Parsed("node:10.0.0.1:0.0001").Get("node:10.0.0.1") == 1);
  CHECK(Parsed("memory:2G,object_store_memory:100M").ToString() ==
        "2 GiB memory, 100 MiB object_store_memory");
  CHECK(Parsed("memory:500").ToString() == "500 bytes memory");
  CHECK(Parsed("").ToString() == "nothing");
  CHECK(Parsed("CPU:0").empty());
  for (const char* bad : {"CPU", "CPU:", "CPU:x", "CPU:-1", "CPU:nan", "CPU:inf", "CPU:2e9", ":1",
                          "CPU:1,CPU:2", "CPU:0.00001", "GPU:1.5", "slot:2K", "memory:1e14"}) {
    INFO(bad);
    CHECK(absl::IsInvalidArgument(ParseResources(bad).status()));
  }
}

SCENARIO("amounts of a peer are checked before they are used") {
  using Map = std::map<std::string, int64_t>;
  CHECK(Resources::FromMap(Map{{"CPU", 10'000}, {"slot", 5}})->ToString() == "1 CPU, 0.0005 slot");
  CHECK(Resources::FromMap(Map{{"GPU", 20'000}}).ok());
  CHECK_FALSE(Resources::FromMap(Map{{"GPU", 15'000}}).ok());
  CHECK_FALSE(Resources::FromMap(Map{{"CPU", -1}}).ok());
  CHECK_FALSE(Resources::FromMap(Map{{"CPU", INT64_MAX}}).ok());
  CHECK_FALSE(Resources::FromMap(Map{{"", 1}}).ok());
  CHECK_FALSE(Resources::FromMap(Map{{"a\nb", 1}}).ok());
  CHECK_FALSE(Resources::FromMap(Map{{"a,b", 1}}).ok());
  CHECK_FALSE(Resources::FromMap(Map{{std::string(300, 'x'), 1}}).ok());
  Map many;
  for (int i = 0; i < 300; ++i) {
    many[std::to_string(i)] = 1;
  }
  CHECK_FALSE(Resources::FromMap(many).ok());
  CHECK_FALSE(AmountFromDouble("CPU", std::nan("")).ok());
  Map out;
  Parsed("CPU:2,slot:1").ToMap(out);
  CHECK(out == Map{{"CPU", 20'000}, {"slot", 10'000}});
}

SCENARIO("a request fits when of each name it asks for there is enough") {
  const Resources node = Parsed("CPU:2,GPU:1,slot:1");
  CHECK(node.Fits(Parsed("CPU:2")));
  CHECK(node.Fits(Parsed("CPU:2,GPU:1,slot:1")));
  CHECK(node.Fits({}));
  CHECK_FALSE(node.Fits(Parsed("CPU:2.0001")));
  CHECK_FALSE(node.Fits(Parsed("slot:2")));
  CHECK_FALSE(node.Fits(Parsed("other:1")));
  CHECK(node.Missing(Parsed("CPU:3,slot:1,other:2")) == Parsed("CPU:1,other:2"));
  WHEN("one amount is negative") {
    const Resources lent = node - Parsed("CPU:3");
    THEN("only requests for that name do not fit") {
      CHECK(lent.ToString() == "-1 CPU, 1 GPU, 1 slot");
      CHECK(lent.Fits(Parsed("GPU:1,slot:1")));
      CHECK_FALSE(lent.Fits(Parsed("CPU:0.0001")));
    }
  }
}

SCENARIO("what is taken and given back in any order ends where it began") {
  SeededRandom random(1);
  const std::vector<Resources> parts = {Parsed("CPU:0.1"), Parsed("GPU:0.3,b:0.7"),
                                        Parsed("a:0.0001,c:3"), Parsed("memory:1G,b:1"),
                                        Parsed("a:1,b:0.1,c:0.2,d:5")};
  const Resources start = Parsed("CPU:100,a:3,b:0.7");
  Resources now = start;
  std::vector<size_t> taken;
  for (int step = 0; step < 10'000; ++step) {
    if (taken.empty() || random.OneIn(2)) {
      taken.push_back(random.Below(parts.size()));
      now -= parts[taken.back()];
    } else {
      std::swap(taken[random.Below(taken.size())], taken.back());
      now += parts[taken.back()];
      taken.pop_back();
    }
  }
  for (size_t part : taken) {
    now += parts[part];
  }
  CHECK(now == start);
  CHECK_FALSE(now < start);
}

SCENARIO("sums beyond the range stop at its end") {
  const Resources huge = Resources::Of(KnownResource::kMemory, INT64_MAX - 1);
  CHECK((huge + huge).Get("memory") == INT64_MAX);
  CHECK((Resources() - huge - huge).Get("memory") == INT64_MIN);
}

}  // namespace sheaf
