// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Which of many pulls begin, where a source gives nothing of what it is asked for.
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "raylet/objects/transfer_network_for_test.h"

namespace sheaf {
namespace pull_line_test {

const ObjectPullerOptions kBounds;

// Node 9 pulls, and some nodes are silent.
struct Pulls {
  TransferNetwork network;
  TransferNode& here = network.Add(9, 128 * kMiB);

  explicit Pulls(const std::vector<NodeNumber>& silent) {
    network.silent.insert(silent.begin(), silent.end());
  }
  static ObjectId NameOf(NodeNumber node, uint64_t number) { return IdOf({node, 1}, number); }
  // Of a silent node nothing is there but what is said of its size.
  void PullSilent(NodeNumber node, uint64_t number, uint64_t bytes) {
    here.puller.Pull(NameOf(node, number), {.node = node}, bytes);
  }
  // Some bytes that are there, whose size is said to be `bytes`.
  void PullFast(NodeNumber node, uint64_t number, uint64_t bytes = 5) {
    if (!network.places.contains(node)) network.Add(node);
    const ObjectId id = NameOf(node, number);
    here.puller.Pull(id, network.places.at(node)->Put(id, "bytes"), bytes);
  }
  void Settle() { network.Run(0); }
  bool IsHere(NodeNumber node, uint64_t number) {
    Settle();
    return here.Outcome(NameOf(node, number)) == LookupOutcome::kFound;
  }
  size_t AskedOf(NodeNumber node) {
    Settle();
    size_t asked = 0;
    for (const auto& request : network.unanswered) asked += request.to == node ? 1 : 0;
    return asked;
  }
};

TEST_CASE("objects come from other nodes while one gives nothing of many") {
  Pulls t({1});
  const auto [count, bytes] = GENERATE(std::pair<uint64_t, uint64_t>{1000, 100},
                                       std::pair<uint64_t, uint64_t>{100, 8 << 20},
                                       std::pair<uint64_t, uint64_t>{2, 100 << 20},
                                       std::pair<uint64_t, uint64_t>{1, kBounds.most_bytes},
                                       std::pair<uint64_t, uint64_t>{1, 3 * kBounds.most_bytes});
  for (uint64_t i = 0; i < count; ++i) t.PullSilent(1, i, bytes);
  for (uint64_t i = 0; i < 20; ++i) t.PullFast(2, i);
  for (uint64_t i = 0; i < 20; ++i) CHECK(t.IsHere(2, i));
  t.PullFast(3, 1, kBounds.most_bytes / 2);
  CHECK(t.IsHere(3, 1));
  CHECK(t.AskedOf(1) >= 1);
  CHECK(t.AskedOf(1) <= kBounds.most_pulls / 2);
  CHECK(t.here.puller.stats().queued == count - t.AskedOf(1));
}

TEST_CASE("each of several slow sources leaves something for the next") {
  Pulls t({1, 2, 3});
  for (NodeNumber node = 1; node <= 3; ++node) {
    for (uint64_t i = 0; i < 200; ++i) t.PullSilent(node, i, 4 << 20);
  }
  t.PullFast(4, 1, 4 << 20);
  CHECK(t.IsHere(4, 1));
  CHECK(t.AskedOf(1) > t.AskedOf(2));
  CHECK(t.AskedOf(2) > t.AskedOf(3));
  CHECK(t.AskedOf(3) > 0);
}

TEST_CASE("pulls of one source come in their order") {
  Pulls t({1});
  t.PullSilent(1, 1, 100 << 20);
  t.PullSilent(1, 2, 100 << 20);
  t.PullSilent(1, 3, 100);  // There would be room.
  CHECK(t.AskedOf(1) == 1);
  t.here.puller.Cancel(Pulls::NameOf(1, 1));
  CHECK(t.AskedOf(1) == 3);
}

TEST_CASE("who waits for room in the bounds is not overtaken by those that come later") {
  Pulls t({1, 2, 3, 4});
  t.PullSilent(1, 1, 100 << 20);
  t.PullSilent(2, 1, 100 << 20);
  t.PullSilent(3, 1, 100 << 20);
  t.PullSilent(4, 1, 100);
  CHECK(t.AskedOf(3) == 0);
  CHECK(t.AskedOf(4) == 0);
  t.here.puller.Cancel(Pulls::NameOf(1, 1));
  CHECK(t.AskedOf(3) == 1);
  CHECK(t.AskedOf(4) == 1);
}

TEST_CASE("of objects that are larger than half of the bounds one comes at a time") {
  Pulls t({1, 2});
  t.PullSilent(1, 1, 2 * kBounds.most_bytes);
  t.PullSilent(2, 1, 2 * kBounds.most_bytes);
  CHECK(t.AskedOf(2) == 0);
  for (uint64_t i = 0; i < 20; ++i) t.PullFast(3, i);  // They do not wait for that.
  for (uint64_t i = 0; i < 20; ++i) CHECK(t.IsHere(3, i));
  t.here.puller.Cancel(Pulls::NameOf(1, 1));
  CHECK(t.AskedOf(2) == 1);
}

TEST_CASE("a node that dies takes what waits for it out of the line") {
  Pulls t({1});
  for (uint64_t i = 0; i < 1000; ++i) t.PullSilent(1, i, 100);
  t.Settle();
  t.here.puller.NodeGone(1);
  for (const auto& request : t.network.unanswered) request.done(absl::UnavailableError("dead"));
  t.Settle();
  CHECK(t.here.puller.stats().queued == 0);
  CHECK(t.here.puller.stats().active_bytes == 0);
  CHECK(t.here.puller.TakeFinished().size() == 1000);
}

TEST_CASE("a size that nothing can have is no way past the bounds") {
  Pulls t({1, 2});
  t.PullSilent(1, 1, UINT64_MAX);
  t.PullSilent(1, 2, UINT64_MAX);
  t.PullSilent(2, 1, UINT64_MAX / 2 + 1);
  CHECK(t.AskedOf(1) == 1);
  CHECK(t.AskedOf(2) == 0);
}

TEST_CASE("parts of a source that gives nothing leave room for parts of others") {
  Pulls t({1});
  for (uint64_t i = 0; i < 10; ++i) {
    const ObjectId of = Pulls::NameOf(1, i);
    t.here.puller.PullPart(
        {.id = IdOf({9, 1}, i), .of = of, .hint = {.node = 1}, .bytes = 32 << 20},
        std::vector<NodeNumber>{1});
  }
  TransferNode& two = t.network.Add(2);
  const ObjectId of = Pulls::NameOf(2, 1), part = IdOf({9, 1}, 100);
  t.here.puller.PullPart({.id = part, .of = of, .hint = two.Put(of, "abc"), .bytes = 1},
                         std::vector<NodeNumber>{2});
  t.Settle();
  CHECK(t.here.Outcome(part) == LookupOutcome::kFound);
}

}  // namespace pull_line_test
}  // namespace sheaf
