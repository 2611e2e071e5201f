// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "raylet/objects/orphan_ledger.h"

#include <catch2/catch.hpp>
#include <map>
#include <optional>
#include <set>

#include "base/fake_clock.h"
#include "base/random.h"
#include "base/testing/recording_transport_for_test.h"
#include "raylet/objects/reference_ledger.h"

namespace sheaf {
namespace orphan_ledger_test {

constexpr ProcessId kDead{9, 1};

ObjectId Object(uint64_t sequence) { return ObjectId::Make(kDead, sequence, 1); }
std::vector<ObjectId> Ids(const std::string& bytes) { return ParseIds(bytes).value(); }

struct OrphanTest {
  OrphanTest() : orphans(clock, transport, [this] { return nodes; }) {}

  std::vector<proto::OrphanRefs> To(NodeNumber node) {
    return transport.Take<proto::OrphanRefs>(RayletOf(node), FrameKind::kOrphanRefs);
  }
  void Ack(NodeNumber node, uint64_t version, const std::vector<ObjectId>& kept = {}) {
    proto::OrphanRefsAck ack;
    ack.set_version(version);
    for (const ObjectId id : kept) AppendId(ack.mutable_kept_ids(), id);
    REQUIRE(orphans.OnAck(node, ack).ok());
  }
  void Advance(Nanos time) {
    clock.Advance(time);
    orphans.Tick();
  }

  FakeClock clock;
  RecordingTransport transport;
  std::vector<NodeNumber> nodes{2, 3};
  OrphanLedger orphans;
};

SCENARIO("all nodes are asked about all orphans in one message each") {
  OrphanTest t;
  for (uint64_t i = 1; i <= 10'000; ++i) t.orphans.Add(Object(i));
  t.orphans.Add(Object(1));
  t.orphans.Tick();
  t.orphans.Tick();
  for (const NodeNumber node : t.nodes) {
    const auto asked = t.To(node);
    REQUIRE(asked.size() == 1);
    CHECK(asked[0].version() == 1);
    CHECK(Ids(asked[0].held_ids()).size() == 10'000);
    CHECK(asked[0].dropped_ids().empty());
  }
  CHECK(t.orphans.IsOpen(Object(1)));
  t.Ack(2, 1, {Object(1)});
  CHECK(t.orphans.TakeSettled().empty());
  t.Ack(3, 1, {Object(1), Object(2)});
  CHECK(t.orphans.TakeSettled().size() == 10'000);
  CHECK(t.orphans.TakeSettled().empty());
  CHECK_FALSE(t.orphans.IsOpen(Object(1)));
  CHECK(t.orphans.PlacesOf(Object(1)) == std::vector<NodeNumber>{2, 3});
  CHECK(t.orphans.PlacesOf(Object(2)) == std::vector<NodeNumber>{3});
  CHECK(t.orphans.PlacesOf(Object(3)).empty());
  THEN("what is dropped its places hear, and nobody else") {
    t.orphans.Remove(Object(2));
    t.orphans.Remove(Object(3));
    t.orphans.Tick();
    CHECK(t.To(2).empty());
    const auto told = t.To(3);
    REQUIRE(told.size() == 1);
    CHECK(told[0].version() == 2);
    CHECK(told[0].held_ids().empty());
    CHECK(Ids(told[0].dropped_ids()) == std::vector{Object(2)});
  }
}

SCENARIO("more than a message can hold goes in several, one after the other") {
  OrphanTest t;
  t.nodes = {2};
  const size_t most = OrphanLedger::kMaxIdsPerVersion;
  std::vector<ObjectId> all;
  for (uint64_t i = 1; i <= most + 1; ++i) all.push_back(Object(i));
  for (const ObjectId id : all) t.orphans.Add(id);
  t.orphans.Tick();
  auto asked = t.To(2);
  REQUIRE(asked.size() == 1);
  CHECK(Ids(asked[0].held_ids()).size() == most);
  t.Ack(2, 1, Ids(asked[0].held_ids()));
  asked = t.To(2);
  REQUIRE(asked.size() == 1);
  CHECK(Ids(asked[0].held_ids()) == std::vector{all.back()});
  t.Ack(2, 2, {all.back()});
  for (const ObjectId id : all) t.orphans.Remove(id);
  t.orphans.Tick();
  CHECK(Ids(t.To(2).at(0).dropped_ids()).size() == most);
  t.Ack(2, 3);
  CHECK(Ids(t.To(2).at(0).dropped_ids()).size() == 1);
}

SCENARIO("what is not answered is sent again; a silent node holds nobody up") {
  OrphanTest t;
  t.orphans.Add(Object(1));
  t.orphans.Tick();
  t.To(2), t.To(3);
  t.Ack(2, 1);
  t.Advance(OrphanLedger::kFirstResend);
  CHECK(t.To(2).empty());
  REQUIRE(t.To(3).size() == 1);
  CHECK(t.orphans.TakeSettled().empty());
  t.Advance(OrphanLedger::kAnswerLimit);
  CHECK(t.orphans.TakeSettled() == std::vector{Object(1)});
  CHECK(t.orphans.PlacesOf(Object(1)).empty());
  WHEN("it answers later") {
    t.Ack(3, 1, {Object(1)});
    CHECK(t.orphans.PlacesOf(Object(1)) == std::vector<NodeNumber>{3});
  }
  WHEN("nobody holds it by then") {
    t.orphans.Remove(Object(1));
    t.Ack(3, 1, {Object(1)});
    THEN("the late keeper is told to let go") {
      const auto told = t.To(3);
      REQUIRE(told.size() == 2);  // The second resend, and that.
      CHECK(Ids(told[1].dropped_ids()) == std::vector{Object(1)});
    }
  }
  WHEN("it never answers") {
    for (uint64_t i = 2; i < 100; ++i) {
      t.orphans.Add(Object(i));
      t.Advance(kSecond);
      t.Ack(2, i);
    }
    t.Advance(OrphanLedger::kAnswerLimit);
    t.Ack(3, 1);
    THEN("of what came meanwhile it is asked nothing that is settled") {
      CHECK(t.To(3).size() < 60);
    }
  }
}

SCENARIO("stale and unknown answers change nothing") {
  OrphanTest t;
  t.Ack(2, 1, {Object(1)});
  t.orphans.Add(Object(1));
  t.orphans.Tick();
  t.Ack(2, 7, {Object(1)});
  t.Ack(4, 1, {Object(1)});
  CHECK(t.orphans.PlacesOf(Object(1)).empty());
  proto::OrphanRefsAck bad;
  bad.set_version(1);
  bad.set_kept_ids("17 bytes are none");
  CHECK(absl::IsInvalidArgument(t.orphans.OnAck(2, bad)));
  t.Ack(2, 1, {Object(1)});
  t.Ack(2, 1, {});
  CHECK(t.orphans.PlacesOf(Object(1)) == std::vector<NodeNumber>{2});
}

SCENARIO("places die in turn") {
  OrphanTest t;
  t.orphans.Add(Object(1));
  t.orphans.Tick();
  t.Ack(2, 1, {Object(1)});
  t.Ack(3, 1, {Object(1)});
  t.orphans.TakeSettled(), t.To(2), t.To(3);
  t.nodes = {3, 4};
  t.orphans.NodeGone(2);
  t.orphans.Tick();
  CHECK(t.orphans.PlacesOf(Object(1)) == std::vector<NodeNumber>{3});
  CHECK(t.To(3).empty());
  t.nodes = {4};
  t.orphans.NodeGone(3);
  THEN("when the last is gone the others are asked: one may have fetched it since") {
    CHECK(t.orphans.IsOpen(Object(1)));
    t.orphans.Tick();
    CHECK(t.To(4).size() == 1);
    t.Ack(4, 1, {Object(1)});
    CHECK(t.orphans.TakeSettled() == std::vector{Object(1)});
    CHECK(t.orphans.PlacesOf(Object(1)) == std::vector<NodeNumber>{4});
  }
  THEN("of the last node nothing more is waited for") {
    t.orphans.Tick();
    t.orphans.NodeGone(4);
    CHECK(t.orphans.TakeSettled() == std::vector{Object(1)});
    CHECK(t.orphans.PlacesOf(Object(1)).empty());
  }
}

SCENARIO("a place that did not have it lets go of it and is asked anew, in this order") {
  OrphanTest t;
  t.nodes = {2};
  t.orphans.Add(Object(1));
  t.orphans.Tick();
  t.Ack(2, 1, {Object(1)});
  t.To(2), t.orphans.TakeSettled();
  t.orphans.PlacesFailed(Object(1));
  CHECK(t.orphans.IsOpen(Object(1)));
  t.orphans.Tick();
  const auto told = t.To(2);
  REQUIRE(told.size() == 1);
  CHECK(told[0].dropped_ids() == told[0].held_ids());
  t.Ack(2, 2);
  CHECK(t.orphans.TakeSettled() == std::vector{Object(1)});
  CHECK(t.orphans.PlacesOf(Object(1)).empty());
  t.orphans.PlacesFailed(Object(1));  // It had none: nobody is asked again.
  CHECK_FALSE(t.orphans.IsOpen(Object(1)));
}

SCENARIO("without other nodes the answer is there with the next tick") {
  OrphanTest t;
  t.nodes = {};
  t.orphans.Add(Object(1));
  t.orphans.Tick();
  CHECK(t.orphans.TakeSettled() == std::vector{Object(1)});
}

// Keepers as the contract has them. After any history, with frames lost, doubled and late, each
// keeps exactly what it has of what is held, and every question was settled in time.
SCENARIO("places and keepers agree after any history") {
  const uint64_t seed = GENERATE(range(1, 40));
  SeededRandom random(seed);
  OrphanTest t;
  struct Keeper {
    uint64_t version = 0;
    std::set<ObjectId> has, kept;
    std::vector<proto::OrphanRefs> late;
    std::optional<proto::OrphanRefsAck> last;
  };
  std::map<NodeNumber, Keeper> keepers{{2, {}}, {3, {}}, {4, {}}};
  t.nodes = {2, 3, 4};
  for (auto& [node, keeper] : keepers) {
    for (uint64_t i = 1; i <= 8; ++i) {
      if (random.OneIn(2)) keeper.has.insert(Object(i));
    }
  }
  const auto receive = [&](NodeNumber node, Keeper& keeper, const proto::OrphanRefs& refs,
                           bool answered) {
    if (refs.version() < keeper.version) return;
    if (refs.version() > keeper.version) {
      keeper.version = refs.version();
      for (const ObjectId id : Ids(refs.dropped_ids())) keeper.kept.erase(id);
      for (const ObjectId id : Ids(refs.held_ids())) {
        if (keeper.has.contains(id)) keeper.kept.insert(id);
      }
    }
    std::vector<ObjectId> kept;
    for (const ObjectId id : Ids(refs.held_ids())) {
      if (keeper.kept.contains(id)) kept.push_back(id);
    }
    if (answered) t.Ack(node, refs.version(), kept);
  };
  std::set<ObjectId> held;
  const auto deliver = [&](bool lossy) {
    for (auto& [node, keeper] : keepers) {
      std::vector<proto::OrphanRefs> now = t.To(node);
      for (const proto::OrphanRefs& refs : std::exchange(keeper.late, {})) now.push_back(refs);
      for (const proto::OrphanRefs& refs : now) {
        if (lossy && random.OneIn(4)) continue;
        if (lossy && random.OneIn(4)) keeper.late.push_back(refs);
        receive(node, keeper, refs, !lossy || !random.OneIn(4));
      }
    }
  };
  for (int step = 0; step < 300; ++step) {
    const ObjectId id = Object(1 + random.Below(8));
    switch (random.Below(3)) {
      case 0:
        if (held.insert(id).second) t.orphans.Add(id);
        break;
      case 1:
        if (held.erase(id) != 0) t.orphans.Remove(id);
        break;
      default:
        if (random.OneIn(5)) t.orphans.PlacesFailed(id);
    }
    if (random.OneIn(2)) deliver(true);
    t.Advance(random.Below(500 * kMillisecond));
  }
  for (int i = 0; i < 10; ++i) {
    deliver(false);
    t.Advance(3 * kSecond);
  }
  CHECK(t.orphans.size() == held.size());
  for (const auto& [node, keeper] : keepers) {
    for (const ObjectId id : keeper.kept) CHECK(held.contains(id));
  }
  for (const ObjectId id : held) {
    CHECK_FALSE(t.orphans.IsOpen(id));
    for (const NodeNumber place : t.orphans.PlacesOf(id)) {
      CHECK(keepers.at(place).kept.contains(id));
    }
  }
}

}  // namespace orphan_ledger_test
}  // namespace sheaf
