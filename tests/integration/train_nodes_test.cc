// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Training groups on several real nodes, which die one after the other.
#include <sheaf/train.h>
#include <signal.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <set>
#include <vector>

#include "tests/integration/least_squares.h"
#include "tests/integration/loopback_nodes.h"

namespace training {

// The nodes that the members are on.
std::set<uint32_t> NodesOf(const std::vector<train::Member>& members) {
  std::set<uint32_t> nodes;
  for (const train::Member& member : members) nodes.insert(member.node);
  return nodes;
}

TEST_CASE("nodes that die cost no step and double none: those left go on, down to the last") {
  loopback::Cluster cluster({.nodes = 3, .cpus = 3, .store = "64MiB"});
  ScratchDirectory scratch;
  train::Options options{.workers = 3,
                         .policy = sheaf::GroupPolicy::kSpread,
                         .folder = scratch / "run",
                         .max_failures = 2};
  train::WorkerGroup<Fit>* running = nullptr;
  std::vector<std::set<uint32_t>> worlds;
  options.on_event = [&](const train::Event& event) {
    if (Contains(event.text, " begin from ")) worlds.push_back(NodesOf(running->members()));
  };
  // Behind these steps, each time once, the node that has the first rank of those that are not on
  // the driver's. At the first death all its processes end at once, as when a machine loses its
  // power; at the second it is the raylet alone, and what follows is up to the workers.
  std::set<uint64_t> deaths{8, 23};
  options.on_step = [&](const train::Row& row) {
    if (deaths.erase(row.step) == 0) return;
    const std::vector<train::Member> members = running->members();
    const auto victim = std::find_if(members.begin(), members.end(), [&](const auto& member) {
      return member.node != cluster.members[0].number;
    });
    REQUIRE(victim != members.end());
    cluster.Kill(victim->node - cluster.members[0].number);
    if (deaths.empty()) return;
    for (const train::Member& member : members) {
      if (member.node == victim->node) kill(member.pid, SIGKILL);
    }
  };
  train::WorkerGroup<Fit> group(options);
  running = &group;
  const train::Result result = group.Run({.steps = 40, .save_each = 5});
  CheckReached(result, 40);
  INFO(Words(result));
  CHECK(result.checkpoint->folder().filename() == "checkpoint_000040");
  REQUIRE(worlds.size() == 3);
  CHECK(worlds[0].size() == 3);
  CHECK(worlds[1].size() == 2);
  CHECK(worlds[2] == std::set<uint32_t>{cluster.members[0].number});
  CHECK(Contains(Words(result), "3 workers on 3 nodes (0 kept, 3 new) begin from the start"));
  CHECK(Contains(Words(result), "3 workers on 2 nodes (2 kept, 1 new) begin from checkpoint_"));
  CHECK(Contains(Words(result), "3 workers on 1 node ("));
  CHECK(result.recoveries.size() == 2);
}

}  // namespace training

int main(int argc, char** argv) { return loopback::Main(argc, argv); }
