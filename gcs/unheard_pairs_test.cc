// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "gcs/unheard_pairs.h"

#include <catch2/catch.hpp>
#include <ctime>
#include <set>
#include <vector>

namespace sheaf {
namespace unheard_pairs_test {

// Reports each second, and what was decided: (second, node).
struct World {
  UnheardPairs pairs{{}};
  std::set<NodeNumber> hosts, of_drivers, gone;
  std::vector<std::pair<int, NodeNumber>> verdicts;
  std::string reason;

  void Run(const std::vector<std::pair<NodeNumber, NodeNumber>>& silent, int from, int to) {
    for (int second = from; second < to; ++second) {
      const Nanos now = second * kSecond;
      for (const auto& [one, other] : silent) {
        if (!gone.contains(one) && !gone.contains(other)) pairs.Report(one, other, now);
      }
      while (const auto verdict = pairs.Next(now, [this](NodeNumber node) {
        return hosts.contains(node) ? -1 : of_drivers.contains(node) ? 1 : 0;
      })) {
        verdicts.emplace_back(second, verdict->node);
        reason = verdict->reason;
        pairs.Remove(verdict->node);
        gone.insert(verdict->node);
      }
    }
  }
};
using Verdicts = std::vector<std::pair<int, NodeNumber>>;

SCENARIO(
    "of two nodes that do not hear each other one goes, after a while in which others may speak") {
  World world;
  WHEN("both are alike") {
    world.Run({{2, 3}}, 1, 5);
    CHECK(world.verdicts == Verdicts{{4, 3}});
    CHECK(world.reason.find("node 2 and it do not hear each other, while the GCS hears both") == 0);
  }
  WHEN("one of them hosts the GCS") {
    world.hosts = {3};
    world.Run({{2, 3}}, 1, 5);
    CHECK(world.verdicts == Verdicts{{4, 2}});
  }
  WHEN("one of them is there for a driver") {
    world.of_drivers = {3};
    world.Run({{2, 3}}, 1, 5);
    CHECK(world.verdicts == Verdicts{{4, 2}});
  }
  WHEN("they hear each other again in time") {
    world.Run({{2, 3}}, 1, 3);
    world.Run({}, 3, 10);
    CHECK(world.verdicts.empty());
    world.Run({{3, 2}}, 10, 13);  // And counts anew.
    CHECK(world.verdicts.empty());
  }
}

SCENARIO("who is unheard by most goes, and then nobody else has to") {
  World world;
  world.of_drivers = {2};
  world.Run({{2, 3}, {4, 2}, {2, 5}}, 1, 10);
  CHECK(world.verdicts == Verdicts{{4, 2}});
}

SCENARIO("who says that it hears nobody goes by that itself") {
  World world;
  world.Run({{4, 2}, {4, 3}, {4, 5}}, 1, 10);
  CHECK(world.verdicts == Verdicts{{4, 4}});
}

SCENARIO("a node has no quarrel with itself, and the host of the GCS is never told to go") {
  World world;
  world.hosts = {1, 2};
  world.Run({{3, 3}, {1, 2}}, 1, 10);
  CHECK(world.verdicts.empty());
}

SCENARIO(
    "half of a large cluster that does not hear the other half is judged in one pass over it") {
  UnheardPairs pairs{{}};
  constexpr NodeNumber kHalf = 200;
  // CPU time of this process: what else runs here does not count.
  const std::clock_t begin = std::clock();
  for (int second = 0; second < 4; ++second) {
    for (NodeNumber one = 1; one <= kHalf; ++one) {
      for (NodeNumber other = kHalf + 1; other <= 2 * kHalf; ++other)
        pairs.Report(one, other, second * kSecond);
    }
  }
  const std::clock_t reported = std::clock();
  int gone = 0;
  const auto worth = [](NodeNumber node) { return node <= kHalf ? 0 : 1; };
  while (const auto verdict = pairs.Next(4 * kSecond, worth)) {
    pairs.Remove(verdict->node);
    ++gone;
  }
  const std::clock_t judged = std::clock();
  CHECK(gone == kHalf);
  // About as long as the reports take; a pass over all pairs for each verdict takes 20 times that.
  CHECK(judged - reported < 6 * (reported - begin));
}

}  // namespace unheard_pairs_test
}  // namespace sheaf
