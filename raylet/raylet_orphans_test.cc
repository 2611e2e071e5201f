// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// A raylet and references to objects of dead owners that lie on other nodes, or here for other
// nodes: who is asked, who keeps what, and for how long.
#include "raylet/raylet_objects_for_test.h"

namespace sheaf {
namespace raylet_orphans_test {

struct Orphans : Objects {
  Orphans() { Nodes({2, 3}); }

  // What node `node` was asked or told.
  std::vector<proto::OrphanRefs> To(NodeNumber node) {
    Advance(100 * kMillisecond);
    return Received<proto::OrphanRefs>(RayletOf(node), FrameKind::kOrphanRefs);
  }
  void Ack(NodeNumber node, uint64_t version, const std::vector<ObjectId>& kept) {
    proto::OrphanRefsAck ack;
    ack.set_version(version);
    for (const ObjectId id : kept) AppendId(ack.mutable_kept_ids(), id);
    FromNode(node, FrameKind::kOrphanRefsAck, ack);
  }
  void Ask(const std::vector<ObjectId>& ids, uint64_t request = 7) {
    proto::AdoptedQuery query;
    query.set_request(request);
    for (const ObjectId id : ids) AppendId(query.mutable_ids(), id);
    Send(driver, FrameKind::kAdoptedQuery, query);
  }
  std::vector<proto::AdoptedAnswer> Answers() {
    return Received<proto::AdoptedAnswer>(driver, FrameKind::kAdoptedAnswer);
  }
  // Node `node` asks for `held` and lets go of `dropped`; what this one keeps for it, or that it
  // did not answer.
  std::optional<std::vector<ObjectId>> AskedBy(NodeNumber node, uint64_t version,
                                               const std::vector<ObjectId>& held,
                                               const std::vector<ObjectId>& dropped = {}) {
    proto::OrphanRefs refs;
    refs.set_version(version);
    for (const ObjectId id : held) AppendId(refs.mutable_held_ids(), id);
    for (const ObjectId id : dropped) AppendId(refs.mutable_dropped_ids(), id);
    FromNode(node, FrameKind::kOrphanRefs, refs);
    const auto acks = Received<proto::OrphanRefsAck>(RayletOf(node), FrameKind::kOrphanRefsAck);
    if (acks.empty()) return std::nullopt;
    CHECK(acks[0].version() == version);
    return ParseIds(acks[0].kept_ids()).value();
  }
  // A copy of `kFarObject`, whose owner lives.
  void Copy() {
    Fetch(driver, kFarObject, {2, 7, 3, 0});
    Serve("hello");
    REQUIRE(store->Contains(kFarObject));
  }
};

TEST_CASE("a borrower hears on which node a dead node's object is, and gets it from there") {
  Orphans node;
  node.Borrow(node.driver, kFarObject);
  node.NodeDies(2);
  node.Ask({kFarObject}, 5);
  node.Ask({kFarObject}, 6);  // Asked again.
  const auto asked = node.To(3);
  REQUIRE(asked.size() == 1);
  CHECK(asked[0].held_ids() == kFarObject.Binary());
  CHECK(node.Answers().empty());
  const bool there = GENERATE(true, false);
  node.Ack(3, 1, there ? std::vector{kFarObject} : std::vector<ObjectId>());
  const auto answers = node.Answers();
  REQUIRE(answers.size() == 1);
  CHECK(answers[0].request() == 6);
  CHECK(answers[0].adopted(0) == there);
  CHECK(answers[0].nodes(0) == (there ? 3 : 0));
  CHECK(node.blocks.asked.empty());  // Nobody wants its bytes yet.
  if (!there) {
    node.Refs(node.driver, 2, {}, {kFarObject});
    CHECK(node.raylet->figures().Get().orphans == 0);
    CHECK(node.To(3).empty());
    return;
  }
  SECTION("in one copy, which stays while it is held, as that on the other node does") {
    node.Fetch(node.driver, kFarObject, {.node = 3});
    CHECK(node.Serve("hello") == 3);
    CHECK(node.Located(node.driver).at(0).outcome == LookupOutcome::kFound);
    node.Advance(20 * kSecond);
    CHECK(node.store->Contains(kFarObject));
    node.Refs(node.driver, 2, {}, {kFarObject});
    CHECK_FALSE(node.store->Contains(kFarObject));
    const auto told = node.To(3);
    REQUIRE(told.size() == 1);
    CHECK(told[0].dropped_ids() == kFarObject.Binary());
  }
  SECTION("a stale hint is no obstacle") {
    node.Fetch(node.driver, kFarObject, {2, 7, 3, 0});
    CHECK(node.Serve("hello") == 3);
  }
  SECTION("what that node has lost since is asked for anew") {
    node.Fetch(node.driver, kFarObject, {.node = 3});
    node.Refuse();
    CHECK(node.Located(node.driver).at(0).outcome == LookupOutcome::kNotFound);
    node.Ask({kFarObject});
    CHECK(node.Answers().empty());
    const auto again = node.To(3);
    REQUIRE(again.size() == 1);
    CHECK(again[0].dropped_ids() == again[0].held_ids());
    node.Ack(3, 2, {});
    CHECK_FALSE(node.Answers().at(0).adopted(0));
  }
  SECTION("the keeper dies as well") {
    node.Nodes({4});
    node.NodeDies(3);
    node.Ask({kFarObject});
    REQUIRE(node.To(4).size() == 1);
    node.Ack(4, 1, {kFarObject});
    CHECK(node.Answers().at(0).nodes(0) == 4);
  }
}

TEST_CASE("10,000 borrowed objects of a dead node are one message to each of the others") {
  Orphans node;
  std::vector<ObjectId> ids;
  for (uint32_t i = 0; i < 10'000; ++i) ids.push_back(ObjectId::Make({2, 1 + i % 100}, i, 1));
  node.Refs(node.driver, 1, ids);
  node.Nodes({4});
  node.NodeDies(2);
  for (const ObjectId id : ids) node.Ask({id});
  for (const NodeNumber other : {3, 4}) {
    const auto asked = node.To(other);
    REQUIRE(asked.size() == 1);
    CHECK(asked[0].held_ids().size() == ids.size() * sizeof(ObjectId));
    node.Ack(other, 1, {});
  }
  CHECK(node.Answers().size() == ids.size());
}

TEST_CASE("a node that does not answer costs a borrower less than five seconds") {
  Orphans node;
  node.Borrow(node.driver, kFarObject);
  node.NodeDies(2);
  node.Ask({kFarObject});
  for (const bool silent : {true, false}) {
    node.Advance(silent ? 2 * kSecond : 3 * kSecond);
    CHECK(node.Answers().empty() == silent);
  }
  CHECK(node.Received<proto::RefsReported>(node.driver, FrameKind::kRefsReported).size() == 1);
}

TEST_CASE("a reference that comes after its owner's death is reported when its places keep it") {
  Orphans node;
  node.NodeDies(2);
  node.Borrow(node.driver, kFarObject);
  const auto reported = [&] {
    return node.Received<proto::RefsReported>(node.driver, FrameKind::kRefsReported);
  };
  REQUIRE(node.To(3).size() == 1);
  CHECK(reported().empty());  // Whoever sent the reference still holds it.
  node.Ack(3, 1, {kFarObject});
  const auto answers = reported();
  REQUIRE(answers.size() == 1);
  CHECK(answers[0].orphan_ids() == kFarObject.Binary());
  SECTION("the next process needs nobody's answer") {
    const ProcessId other = node.Driver();
    node.Refs(other, 1, {kFarObject});
    CHECK(node.Received<proto::RefsReported>(other, FrameKind::kRefsReported).size() == 1);
    CHECK(node.To(3).empty());
  }
}

TEST_CASE("a question may come before the word that the process holds the reference") {
  Orphans node;
  node.NodeDies(2);
  node.Ask({kFarObject});
  CHECK(node.Answers().empty());
  const bool holds = GENERATE(true, false);
  if (holds) node.Borrow(node.driver, kFarObject);
  CHECK(node.To(3).size() == (holds ? 1 : 0));
  if (holds) {
    node.Ack(3, 1, {kFarObject});
    CHECK(node.Answers().at(0).nodes(0) == 3);
  } else {
    node.Advance(5 * kSecond);
    CHECK_FALSE(node.Answers().at(0).adopted(0));
  }
}

TEST_CASE("the nodes are asked about an owner that died alone, its own node too") {
  Orphans node;
  node.Borrow(node.driver, kFarObject);
  if (GENERATE(true, false)) {
    node.OwnerDies(kFarOwner);
  } else {
    node.Ask({kFarObject});  // The process heard of the death first.
  }
  CHECK(node.To(2).size() == 1);
  CHECK(node.To(3).size() == 1);
  node.Ack(2, 1, {kFarObject});
  node.Ack(3, 1, {});
  node.Ask({kFarObject});
  CHECK(node.Answers().back().nodes(0) == 2);
}

TEST_CASE("a copy is kept for the nodes that hold the reference") {
  Orphans node;
  node.Nodes({4});
  const bool borrowed = GENERATE(true, false);
  if (borrowed) node.Borrow(node.driver, kFarObject);
  node.Copy();
  node.Advance(9 * kSecond);                 // Soon its owner would be told of the copy again.
  const bool first = GENERATE(true, false);  // Who hears first of the death.
  if (!first) node.NodeDies(2);
  if (!first) node.Advance(2 * kSecond);
  const ObjectId unknown = ObjectId::Make(kFarOwner, 2, 1);
  CHECK(node.AskedBy(3, 1, {kFarObject, unknown}) == std::vector{kFarObject});
  if (first) node.NodeDies(2);
  CHECK(node.AskedBy(4, 1, {kFarObject}) == std::vector{kFarObject});
  node.Advance(20 * kSecond);
  CHECK(node.raylet->figures().Get().adopted_objects == 1);
  if (borrowed) node.Refs(node.driver, 2, {}, {kFarObject});
  CHECK(node.store->Contains(kFarObject));
  CHECK(node.AskedBy(3, 1, {kFarObject}) == std::vector{kFarObject});  // Twice: answered again.
  CHECK(node.AskedBy(3, 2, {}, {kFarObject}) == std::vector<ObjectId>());
  CHECK_FALSE(node.AskedBy(3, 1, {kFarObject}).has_value());  // Late.
  CHECK(node.store->Contains(kFarObject));
  if (GENERATE(true, false)) {
    CHECK(node.AskedBy(4, 2, {}, {kFarObject}).has_value());
  } else {
    node.NodeDies(4);
  }
  CHECK_FALSE(node.store->Contains(kFarObject));
  CHECK(node.raylet->figures().Get().held_references == 0);
  CHECK(node.raylet->figures().Get().adopted_objects == 0);
  CHECK(node.raylet->figures().Get().swept == 0);
}

TEST_CASE("what nobody holds goes a moment after its owner's node") {
  Orphans node;
  node.Copy();
  node.NodeDies(2);
  CHECK(node.AskedBy(3, 1, {}).has_value());
  node.Advance(2 * kSecond);
  CHECK(node.store->Contains(kFarObject));
  node.Advance(2 * kSecond);
  CHECK_FALSE(node.store->Contains(kFarObject));
}

TEST_CASE("a dead node's questions and malformed ones change nothing") {
  Orphans node;
  node.Copy();
  node.NodeDies(3);
  CHECK_FALSE(node.AskedBy(3, 1, {kFarObject}).has_value());
  for (const FrameKind kind : {FrameKind::kOrphanRefs, FrameKind::kOrphanRefsAck}) {
    for (const std::string& body : {std::string(3, '\xff'), std::string("\x12\x01x")}) {
      node.raylet->OnRemoteFrame(RayletOf(2), RayletOf(Objects::kNode), Lane::kControl,
                                 {kind, body});
    }
  }
  CHECK(node.raylet->figures().Get().held_references == 0);
}

SCENARIO("a process that asks about more orphans at once than a frame may have is told to end") {
  Orphans node;
  std::vector<ObjectId> ids;
  for (uint64_t i = 0; i <= kMaxStoreItems; ++i) ids.push_back(ObjectId::Make({2, 7}, i, 1));
  node.Ask(ids);
  CHECK(node.Answers().empty());
  CHECK(node.Received<proto::Shutdown>(node.driver, FrameKind::kShutdown).size() == 1);
}

}  // namespace raylet_orphans_test
}  // namespace sheaf
