// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// A raylet and the objects of other nodes: who is told what, and what becomes of copies.
#include "raylet/raylet_objects_for_test.h"

namespace sheaf {
namespace raylet_objects_test {

TEST_CASE("a process gets an object of another node, and its owner hears of the copy") {
  Objects node;
  const ProcessId other = node.Driver();
  const ObjectLocation there{2, 7, 3, 0};
  node.Fetch(node.driver, kFarObject, there);
  node.Fetch(other, kFarObject, there);
  REQUIRE(node.blocks.asked.size() == 1);
  proto::BlockRequest request;
  REQUIRE(request.ParseFromString(node.blocks.asked[0].request));
  CHECK(request.slot() == 7);
  CHECK(node.Serve("hello") == 2);
  const auto told = node.Told(kFarOwner);
  REQUIRE(told.size() == 1);
  CHECK(told[0].id == kFarObject);
  CHECK(told[0].location.node == Objects::kNode);
  for (const ProcessId asker : {node.driver, other}) {
    const auto located = node.Located(asker);
    REQUIRE(located.size() == 1);
    CHECK(located[0].outcome == LookupOutcome::kFound);
    CHECK(located[0].location == told[0].location);
  }
  SECTION("the next one finds it here") {
    node.Fetch(node.driver, kFarObject, there);
    CHECK(node.blocks.asked.empty());
    CHECK(node.Located(node.driver).at(0).outcome == LookupOutcome::kFound);
  }
  SECTION("its owner, and nobody else of other nodes, frees it") {
    const ObjectName name{kFarObject, told[0].location};
    const auto free_from = [&](ProcessId from) {
      node.raylet->OnRemoteFrame(from, RayletOf(Objects::kNode), Lane::kControl,
                                 {kStoreFree, AsBytes(name)});
      return !node.store->Contains(kFarObject);
    };
    CHECK_FALSE(free_from({2, 6}));
    CHECK_FALSE(free_from({3, 5}));
    CHECK(free_from(kFarOwner));
  }
  SECTION("the owner is told again, in case it did not hear") {
    node.Advance(11 * kSecond);
    CHECK(node.Told(kFarOwner).size() == 1);
  }
}

TEST_CASE("what cannot be brought is answered all the same") {
  Objects node;
  SECTION("it is not there") {
    node.Fetch(node.driver, kFarObject, {2, 7, 3, 0});
    node.Refuse();
    CHECK(node.Located(node.driver).at(0).outcome == LookupOutcome::kNotFound);
  }
  SECTION("its node is dead") {
    node.NodeDies(2);
    node.Fetch(node.driver, kFarObject, {2, 7, 3, 0});
    CHECK(node.Located(node.driver).at(0).outcome == LookupOutcome::kNotFound);
    CHECK(node.blocks.asked.empty());
  }
  SECTION("its node dies meanwhile") {
    node.Fetch(node.driver, kFarObject, {2, 7, 3, 0});
    node.NodeDies(2);
    node.blocks.Take().done(absl::UnavailableError("closed"));
    node.raylet->EndTurn();
    CHECK(node.Located(node.driver).at(0).outcome == LookupOutcome::kNotFound);
  }
  SECTION("a hint without a node") {
    node.Fetch(node.driver, kFarObject, {});
    CHECK(node.Located(node.driver).at(0).outcome == LookupOutcome::kNotFound);
  }
}

TEST_CASE("who asks again hears that it is coming, however long that takes") {
  Objects node;
  node.Nodes({2});
  node.Fetch(node.driver, kFarObject, {2, 7, 3, 0});
  CHECK(node.Located(node.driver).empty());
  for (int i = 0; i < 100; ++i) {
    node.Fetch(node.driver, kFarObject, {2, 7, 3, 0});
    const auto located = node.Located(node.driver);
    REQUIRE(located.size() == 1);
    CHECK(located[0].id == kFarObject);
    CHECK(located[0].outcome == LookupOutcome::kComing);
  }
  SECTION("then that it is here") {
    node.Serve("hello");
    CHECK(node.Located(node.driver).at(0).outcome == LookupOutcome::kFound);
  }
  SECTION("a source that gives nothing, but lives, is no proof that it is lost") {
    for (int i = 0; i < 40; ++i) {
      while (!node.blocks.asked.empty()) {
        node.blocks.Take().done(absl::DeadlineExceededError("slow"));
        node.raylet->EndTurn();
      }
      node.Advance(kSecond);
    }
    for (const LocatedObject& located : node.Located(node.driver))
      CHECK(located.outcome == LookupOutcome::kComing);
    node.Fetch(node.driver, kFarObject, {2, 7, 3, 0});  // As the process does each second.
    node.Serve("hello");
    const auto located = node.Located(node.driver);
    REQUIRE_FALSE(located.empty());
    CHECK(located.back().outcome == LookupOutcome::kFound);
  }
}

TEST_CASE("nobody waits for it any more: the pull ends") {
  Objects node;
  const ProcessId other = node.Driver();
  node.Fetch(other, kFarObject, {2, 7, 3, 0});
  node.Exit(other);
  node.Serve("hello");
  CHECK_FALSE(node.store->Contains(kFarObject));
  CHECK(node.store->Stats().used_bytes == 0);
}

TEST_CASE("a copy whose owner dies stays while somebody here holds the reference") {
  Objects node;
  const bool held = GENERATE(true, false);
  if (held) node.Borrow(node.driver, kFarObject);
  node.Fetch(node.driver, kFarObject, {2, 7, 3, 0});
  SECTION("before the copy has come") {
    node.OwnerDies(kFarOwner);
    node.Serve("hello");
    CHECK(node.Told(kFarOwner).empty());
  }
  SECTION("after it has come") {
    node.Serve("hello");
    node.OwnerDies(kFarOwner);
  }
  SECTION("with its whole node") {
    node.Serve("hello");
    node.NodeDies(2);
  }
  node.Advance(4 * kSecond);  // Borrowers on other nodes may fetch it until then.
  CHECK(node.store->Contains(kFarObject) == held);
  if (!held) return;
  node.Refs(node.driver, 2, {}, {kFarObject});
  CHECK_FALSE(node.store->Contains(kFarObject));
}

TEST_CASE("other raylets fetch objects of this node, and are asked whether they are there") {
  Objects node;
  const ObjectId id = ObjectId::Make(node.driver, 1, 1);
  node.Put(node.driver, id, "hello");
  proto::BlockRequest request;
  request.set_id(id.Binary());
  request.set_length(100);
  absl::StatusOr<Block> answer = absl::UnknownError("");
  node.raylet->OnFetch(2, request.SerializeAsString(),
                       [&](absl::StatusOr<Block> block) { answer = std::move(block); });
  REQUIRE(answer.ok());
  CHECK(std::string_view(answer->bytes.data(), answer->bytes.size()) == "hello");
  const FetchWanted wanted{.id = id, .hint = {.node = Objects::kNode}, .size = 0};
  node.raylet->OnRemoteFrame({2, 9}, RayletOf(Objects::kNode), Lane::kControl,
                             {kStoreFetch, AsBytes(wanted)});
  const auto located = node.Located({2, 9});
  REQUIRE(located.size() == 2);
  CHECK(located[0].outcome == LookupOutcome::kFound);
  CHECK(located[1].outcome == LookupOutcome::kComing);  // Were it on disk, the other came later.
  SECTION("but not the dead") {
    node.NodeDies(2);
    node.raylet->OnFetch(2, request.SerializeAsString(),
                         [&](absl::StatusOr<Block> block) { answer = std::move(block); });
    CHECK(absl::IsUnavailable(answer.status()));
  }
}

TEST_CASE("what is sealed in the name of a process that never was is freed") {
  Objects node;
  node.AnswerGcs();
  const bool elsewhere = GENERATE(false, true);
  const ProcessId nobody = elsewhere ? ProcessId{777'777, 3} : ProcessId{Objects::kNode, 777'777};
  const ObjectId own = ObjectId::Make(node.driver, 1, 1), lost = ObjectId::Make(nobody, 1, 1);
  node.Put(node.driver, own, "whose maker lives");
  node.Put(node.driver, lost, "scribbled over");
  node.Advance(5 * kSecond);
  CHECK(node.store->Contains(lost));  // The word of its maker may be on its way.
  node.Advance(40 * kSecond);
  CHECK_FALSE(node.store->Contains(lost));
  CHECK(node.store->Contains(own));
}

TEST_CASE("malformed frames about objects of other nodes change nothing") {
  Objects node;
  for (const std::string& body : {std::string(), std::string(39, 'x'), std::string(4000, '\xff')}) {
    node.raylet->OnFrame(node.driver, {kStoreFetch, body});
    node.raylet->OnRemoteFrame({2, 9}, RayletOf(Objects::kNode), Lane::kControl,
                               {kStoreFetch, body});
    node.raylet->OnRemoteFrame({2, 9}, RayletOf(Objects::kNode), Lane::kControl,
                               {kStoreFree, body});
  }
  node.Advance(kSecond);
  CHECK(node.store->Stats().used_bytes == 0);
}

// What running calls hold as arguments.
struct Arguments : Objects {
  ProcessId other = Driver();

  std::string Body(uint64_t ticket, HoldStep step, std::vector<HeldObject> objects = {}) {
    const HoldHead head{.ticket = ticket,
                        .caller = driver.packed(),
                        .step = step,
                        .count = static_cast<uint32_t>(objects.size())};
    return std::string(AsBytes(head)) +
           std::string(ItemsAsBytes(std::span<const HeldObject>(objects)));
  }
  void Ask(ProcessId process, uint64_t ticket, ObjectId id, uint64_t bytes) {
    raylet->OnFrame(process, {kStoreHold, Body(ticket, HoldStep::kAsk, {{id, bytes}})});
  }
  void Say(ProcessId process, uint64_t ticket, HoldStep step) {
    raylet->OnFrame(process, {kStoreHold, Body(ticket, step)});
  }
  std::vector<uint64_t> Held(ProcessId process) {
    std::vector<uint64_t> tickets;
    for (const SentFrame& frame : transport.Take(process)) {
      if (frame.kind == kStoreHeld) tickets.push_back(FrameHead<HoldAdmitted>(frame.body)->ticket);
    }
    return tickets;
  }
};

TEST_CASE("arguments of running calls are held up to a share of the store") {
  Arguments node;
  constexpr uint64_t kHalf = RayletNode::kCapacityBytes / 2;
  const auto id = [](uint64_t number) { return ObjectId::Make(kFarOwner, number, 1); };
  node.Ask(node.driver, 1, id(1), kHalf);
  node.Ask(node.other, 1, id(2), kHalf);
  node.Ask(node.driver, 2, id(1), kHalf);
  CHECK(node.Held(node.driver) == std::vector<uint64_t>{1});
  CHECK(node.Held(node.other).empty());
  SECTION("when one ends the next may begin") {
    node.Say(node.driver, 1, HoldStep::kEnd);
    CHECK(node.Held(node.other) == std::vector<uint64_t>{1});
    CHECK(node.Held(node.driver).empty());
  }
  SECTION("what a dead process held is held no more, and its questions are gone") {
    node.Exit(node.driver);
    CHECK(node.Held(node.other) == std::vector<uint64_t>{1});
    node.Say(node.other, 1, HoldStep::kEnd);
    CHECK(node.Held(node.driver).empty());
  }
  SECTION("a call that waits for another lets it begin, and sooner or later anybody") {
    node.Say(node.driver, 1, HoldStep::kSuspend);  // Whose process has made all three.
    CHECK(node.Held(node.other) == std::vector<uint64_t>{1});
    node.Say(node.driver, 1, HoldStep::kResume);
    CHECK(node.Held(node.driver).empty());
    node.Advance(ArgumentLedger::kPatience + kSecond);
    CHECK(node.Held(node.driver) == std::vector<uint64_t>{2});
  }
  SECTION("what is here has the size that it has here") {
    node.Put(node.other, id(7), std::string(100, 'x'));
    node.Ask(node.other, 2, id(7), UINT64_MAX);
    node.Say(node.driver, 1, HoldStep::kEnd);
    node.Say(node.driver, 2, HoldStep::kEnd);
    CHECK(node.Received<proto::Shutdown>(node.other, FrameKind::kShutdown).empty());
    node.Say(node.other, 1, HoldStep::kEnd);
    node.Ask(node.driver, 4, id(8), kHalf);
    CHECK(node.Held(node.driver) == std::vector<uint64_t>{4});
  }
  SECTION("malformed questions end their sender alone") {
    const std::string body = node.Body(9, HoldStep::kAsk, {{id(1), 1}, {id(2), 1}});
    for (const size_t length : {size_t{0}, sizeof(HoldHead) - 1, body.size() - 1}) {
      node.Driver();
      const ProcessId bad = node.Driver();
      node.raylet->OnFrame(bad, {kStoreHold, std::string_view(body).substr(0, length)});
      CHECK_FALSE(node.Received<proto::Shutdown>(bad, FrameKind::kShutdown).empty());
    }
    node.Say(node.other, 77, HoldStep::kEnd);
    node.Say(node.other, 77, HoldStep::kResume);
    node.Say(node.other, 77, HoldStep{99});
    CHECK(node.Received<proto::Shutdown>(node.other, FrameKind::kShutdown).empty());
  }
}

TEST_CASE("while somebody waits in vain for room in the store no further arguments are held") {
  Arguments node;
  const auto id = [](uint64_t number) { return ObjectId::Make(kFarOwner, number, 1); };
  const auto room = [&](ProcessId process) {
    const ExtentRequest request{
        .request = 1, .bytes = RayletNode::kCapacityBytes * 5 / 8, .wait_ns = 60 * kSecond};
    node.raylet->OnFrame(process, {kStoreExtentRequest, AsBytes(request)});
    node.raylet->EndTurn();
  };
  const ProcessId third = node.Driver();
  room(third);
  room(node.driver);
  node.Ask(node.driver, 1, id(1), 1);
  node.Ask(node.driver, 2, id(2), 1);
  CHECK(node.Held(node.driver) == std::vector<uint64_t>{1, 2});  // It may get it.
  node.Advance(2 * kSecond);
  node.Ask(node.driver, 3, id(3), 1);
  CHECK(node.Held(node.driver).empty());
  node.Exit(third);
  node.Advance(100 * kMillisecond);
  CHECK(node.Held(node.driver) == std::vector<uint64_t>{3});
}

}  // namespace raylet_objects_test
}  // namespace sheaf
