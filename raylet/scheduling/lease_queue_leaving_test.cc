// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Leases whose workers end by themselves, among nodes that hand demands to each other and back.
#include <algorithm>
#include <catch2/catch.hpp>
#include <vector>

#include "raylet/scheduling/lease_queue_for_test.h"

namespace sheaf {
namespace lease_queue_leaving_test {

using lease_queue_test::Kind;
using lease_queue_test::Node;
using lease_queue_test::Wants;

constexpr ProcessId kFar{3, 9};

SCENARIO(
    "a demand whose only lease leaves may be given back, and lasts until that worker has ended") {
  Node node("GPU:1");
  node.AddNode(2, "GPU:1");
  node.AddNode(3, "CPU:1");
  node.view.nodes[2].available = {};
  node.queue.OnDemand(kFar, Wants(1, "GPU:1", 1), node.now, {}, 3, 1);
  auto actions = node.Take();
  REQUIRE(actions.size() == 1);
  REQUIRE(actions[0].kind == Kind::kGrant);
  const LeaseNumber lease = actions[0].lease;
  node.queue.OnUnneeded(lease);
  node.queue.OnLeaving(lease, node.now);
  node.Take();
  node.queue.OnDemand(kFar, Wants(1, "GPU:1", 1), node.now, {}, 3, 1);  // The next task.
  CHECK(node.Take().empty());
  node.view.nodes[2].available = node.view.nodes[2].total;
  node.queue.OnClusterChanged(node.now);
  while (node.queue.NextTick() != kForever) node.PassTime();
  actions = node.Take();
  REQUIRE(actions.size() == 1);
  CHECK(actions[0].kind == Kind::kGiveBack);
  CHECK(actions[0].wanted == 0);
  CHECK_FALSE(actions[0].unneeded);
  REQUIRE(node.queue.Find(lease) != nullptr);
  CHECK(node.queue.OnReturn(lease, node.now));
  CHECK(node.ledger.available() == node.ledger.total());
  CHECK(node.queue.AllPending().empty());
}

// A node between two others, which hand it their demands and take its own, or do not.
class World {
 public:
  explicit World(uint64_t seed) : random_(seed), node_("CPU:2,GPU:2") {
    node_.AddNode(2, "CPU:2,GPU:2");
    node_.AddNode(3, "CPU:2,GPU:2");
  }

  void Run(int steps) {
    for (int i = 0; i < steps; ++i) {
      node_.now += static_cast<Nanos>(random_.Below(3)) * kMillisecond;
      Step();
      if (node_.queue.NextTick() <= node_.now) node_.queue.OnTick(node_.now);
      Take();
    }
  }
  void End() {
    for (const ProcessId owner : kOwners) node_.queue.OnOwnerGone(owner, node_.now);
    Take();
    while (!leases_.empty()) Return(leases_.size() - 1);
    CHECK(node_.ledger.available() == node_.ledger.total());
    CHECK(node_.queue.leases_out() == 0);
    CHECK(node_.queue.lenders() == 0);
    CHECK(node_.queue.AllPending().empty());
  }

 private:
  static constexpr ProcessId kOwners[] = {{1, 5}, {1, 6}, {2, 5}, {3, 5}};

  void Step() {
    static const std::string kKinds[] = {"CPU:1", "GPU:1", ""};
    const ProcessId owner = kOwners[random_.Below(4)];
    const uint64_t key = random_.Below(3);
    const auto some = [this] { return static_cast<uint32_t>(random_.Below(4)); };
    switch (random_.Below(10)) {
      case 0:
        if (random_.OneIn(20)) node_.queue.OnOwnerGone(owner, node_.now);
        return;
      case 1:
      case 2:
        if (leases_.empty()) return;
        return node_.queue.OnLeaving(leases_[random_.Below(leases_.size())], node_.now);
      case 3:
      case 4:
        if (!leases_.empty()) Return(random_.Below(leases_.size()));
        return;
      case 5: {
        const NodeNumber other = 2 + some() % 2;
        NodeView& view = node_.view.nodes[other];
        view.available = random_.OneIn(2) ? view.total : Resources();
        view.refuses = random_.OneIn(4);
        return node_.queue.OnClusterChanged(node_.now);
      }
      case 6:
        return node_.queue.OnGivenBack(owner, key, 2 + some() % 2, 1 + some() % 2, some(),
                                       random_.OneIn(2), node_.now);
      default: {
        const NodeNumber via = owner.node == 1 ? 0 : owner.node;
        return node_.queue.OnDemand(owner, Wants(key, kKinds[key], some(), some()), node_.now, {},
                                    via, via == 0 ? 0 : 1 + some() % 2);
      }
    }
  }

  void Take() {
    for (const LeaseAction& action : node_.Take()) {
      if (action.kind == Kind::kGrant && node_.queue.Find(action.lease) != nullptr)
        leases_.push_back(action.lease);
    }
    REQUIRE(node_.queue.leases_out() == leases_.size());
  }

  void Return(size_t at) {
    const LeaseNumber lease = leases_[at];
    leases_.erase(leases_.begin() + static_cast<ptrdiff_t>(at));
    REQUIRE(node_.queue.Find(lease) != nullptr);
    if (random_.OneIn(2)) node_.queue.OnUnneeded(lease);
    REQUIRE(node_.queue.OnReturn(lease, node_.now));
    Take();
  }

  SeededRandom random_;
  Node node_;
  std::vector<LeaseNumber> leases_;
};

SCENARIO("random demands, handed on and back, whose leases leave: all comes back") {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    INFO("seed " << seed);
    World world(seed);
    world.Run(400);
    world.End();
  }
}

}  // namespace lease_queue_leaving_test
}  // namespace sheaf
