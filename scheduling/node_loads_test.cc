// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What nodes have free, as it travels from the GCS to all of them.
#include "scheduling/node_loads.h"

#include <catch2/catch.hpp>
#include <random>
#include <set>
#include <vector>

namespace sheaf {
namespace {

proto::Resources Written(const Resources& resources) {
  proto::Resources written;
  resources.ToMap(*written.mutable_amounts());
  return written;
}

Resources CpusAnd(double cpus, const char* name, double amount) {
  Resources resources = Resources::Cpu(cpus);
  resources.Set(name, static_cast<Amount>(amount * kUnit));
  return resources;
}

// A GCS's table and one who follows it.
struct World {
  KnownLoads known;
  std::map<NodeNumber, proto::Resources> nodes;
  std::map<NodeNumber, Resources> follower;

  proto::NodeLoads Say(const std::set<NodeNumber>& changed) {
    std::map<NodeNumber, const proto::Resources*> now;
    for (const NodeNumber node : changed) now[node] = &nodes.at(node);
    proto::NodeLoads loads = known.Changes(now);
    REQUIRE(ApplyLoads(loads, [&](NodeNumber node) { return &follower[node]; }).ok());
    return loads;
  }
};

}  // namespace

SCENARIO("only what is new of a node is said, and what it has no more") {
  World world;
  world.nodes[3] = Written(CpusAnd(4, "slot", 0.5));
  world.nodes[900] = Written(Resources::Cpu(64));
  const proto::NodeLoads first = world.Say({3, 900});
  CHECK(first.anew_size() == 2);
  CHECK(world.follower[3] == CpusAnd(4, "slot", 0.5));
  CHECK(world.follower[900] == Resources::Cpu(64));

  world.nodes[3] = Written(CpusAnd(0, "slot", 0.5));
  const proto::NodeLoads second = world.Say({3, 900});
  REQUIRE(second.columns_size() == 1);
  CHECK(second.anew_size() == 0);
  CHECK(second.columns(0).nodes_size() == 1);
  CHECK(world.follower[3] == CpusAnd(0, "slot", 0.5));
  CHECK(world.Say({3, 900}).ByteSizeLong() == 0);
}

SCENARIO("a thousand busy nodes are three bytes each") {
  World world;
  std::set<NodeNumber> all;
  for (NodeNumber node = 1; node <= 1000; ++node) {
    all.insert(node);
    world.nodes[node] = Written(CpusAnd(64, "memory", 1e12));
  }
  world.Say(all);
  for (auto& [node, available] : world.nodes)
    available = Written(CpusAnd(node % 64, "memory", 1e12));
  CHECK(world.Say(all).ByteSizeLong() < 3 * 1000);
}

SCENARIO("half a GPU beside a whole one is free; less than nothing is nothing") {
  World world;
  Resources more = Resources::Cpu(-1);
  more.Set(KnownResource::kGpu, 15'000);
  world.nodes[1] = Written(more);
  CHECK(FreeResources(world.nodes[1]) == Resources::Of(KnownResource::kGpu, 15'000));
  world.Say({1});
  CHECK(world.follower[1] == Resources::Of(KnownResource::kGpu, 15'000));
}

SCENARIO("a message that contradicts itself is refused") {
  const auto applied = [](const proto::NodeLoads& loads) {
    Resources resources;
    return ApplyLoads(loads, [&](NodeNumber) { return &resources; }).ok();
  };
  proto::NodeLoads loads;
  proto::LoadColumn& column = *loads.add_columns();
  column.set_resource("CPU");
  column.set_unit(kUnit);
  column.add_nodes(1);
  CHECK_FALSE(applied(loads));
  column.add_amounts(4);
  CHECK(applied(loads));
  column.set_amounts(0, INT64_MAX / 2);
  CHECK_FALSE(applied(loads));
  column.set_amounts(0, 4);
  column.set_resource("");  // Which a node made up: others are heard all the same.
  CHECK(applied(loads));
}

// Some follow from the first on, one begins at any time with a snapshot of the table as it is.
SCENARIO("whoever begins to follow, and whenever, knows in the end what all know") {
  for (unsigned seed = 0; seed < 200; ++seed) {
    INFO("seed " << seed);
    std::mt19937 random(seed);
    const auto draw = [&](int below) { return static_cast<int>(random() % below); };
    World world;
    std::set<NodeNumber> changed;
    std::map<NodeNumber, Resources> late;
    for (int step = 0; step < 60; ++step) {
      const auto node = static_cast<NodeNumber>(1 + draw(5));
      Resources resources = Resources::Cpu(draw(3));
      for (const char* name : {"slot", "disk"}) {
        if (draw(2) == 0) resources.Set(name, draw(3) * kUnit / (1 + draw(2)));
      }
      world.nodes[node] = Written(resources);
      changed.insert(node);
      const bool begins = draw(8) == 0;
      if (begins) {
        late.clear();
        for (const auto& [number, available] : world.nodes) late[number] = FreeResources(available);
        for (const NodeNumber number : changed) world.known.Unsure(number);
      }
      if (draw(3) != 0) continue;
      const proto::NodeLoads loads = world.Say(changed);
      REQUIRE(ApplyLoads(loads, [&](NodeNumber number) { return &late[number]; }).ok());
      changed.clear();
      for (const auto& [number, available] : world.nodes) {
        REQUIRE(world.follower[number] == FreeResources(available));
        if (late.size() == world.nodes.size()) REQUIRE(late[number] == FreeResources(available));
      }
    }
  }
}

}  // namespace sheaf
