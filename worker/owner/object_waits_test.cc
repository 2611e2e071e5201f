// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Many wait for many objects, for long: what that costs in frames and memory.
#include <set>

#include "worker/owner_state_for_test.h"

namespace sheaf {
namespace object_waits_test {

constexpr ProcessId kFarOwner{2, 5};
const ObjectLocation kThere{2, 5, 1, 0};
const ObjectLocation kHere{1, 4, 1, 0};

struct Waits : Fixture {
  // A reference that came from `owner`, with what was said of its place.
  ObjectHandle Borrow(uint64_t number, ObjectLocation hint = {}) {
    return ObjectHandle(owner.references.Incoming({ObjectId::Make(kFarOwner, number, 1), hint}));
  }
  void Query(ProcessId from, std::span<const ObjectId> ids, bool lost = false) {
    std::string body(AsBytes(ObjectQueryHead{ids.size(), lost}));
    for (const ObjectId& id : ids) body.append(AsBytes(id));
    owner.OnFrame(from, {FrameKind::kObjectQuery, body});
  }
  void Pass(Nanos time, Nanos step = kSecond) {
    for (Nanos passed = 0; passed < time; passed += step) {
      clock.Advance(step);
      owner.Tick();
    }
  }
};

TEST_CASE("a thousand references are asked about in few frames, for as long as it takes") {
  Waits f;
  std::vector<ObjectHandle> wanted;
  std::set<ObjectId> ids;
  for (uint64_t i = 1; i <= 1000; ++i) {
    wanted.push_back(f.Borrow(i));
    ids.insert(wanted.back().id());
    f.owner.resolver.Want(*wanted.back().entry());
  }
  CHECK(f.transport.Count(FrameKind::kObjectQuery) == 1000);  // At once, each as it is wanted.
  f.transport.sent.clear();
  f.Pass(3600 * kSecond);
  const size_t frames = f.transport.Count(FrameKind::kObjectQuery);
  CHECK(frames >= 3600 / 10);  // No wait hangs on one frame.
  CHECK(frames <= 3600 / 2);
  std::set<ObjectId> asked;
  const Sent last = f.transport.sent.back();
  REQUIRE(last.kind == FrameKind::kObjectQuery);
  CHECK(last.to == kFarOwner);
  ObjectQueryHead head;
  std::memcpy(&head, last.body.data(), sizeof head);
  REQUIRE(last.body.size() == sizeof head + head.count * sizeof(ObjectId));
  for (uint64_t i = 0; i < head.count; ++i) {
    ObjectId id;
    std::memcpy(&id, last.body.data() + sizeof head + i * sizeof id, sizeof id);
    asked.insert(id);
  }
  CHECK(asked == ids);
  CHECK(f.owner.Tick() - f.clock.Now() <= 10 * kSecond);
}

TEST_CASE("whoever asks again and again gets one answer, and costs nothing meanwhile") {
  Waits f;
  std::vector<ObjectHandle> results;
  std::vector<ObjectId> ids;
  for (int i = 0; i < 100; ++i) {
    results.push_back(f.Submit(f.Template()));
    f.owner.references.List(*results.back().entry());
    ids.push_back(results.back().id());
  }
  f.transport.sent.clear();
  const size_t hooks = results[0].entry()->extra ? results[0].entry()->extra->on_ready.size() : 0;
  for (int round = 0; round < 50; ++round) {
    for (uint32_t node = 2; node < 12; ++node) f.Query({node, 7}, ids);
  }
  CHECK(results[0].entry()->extra->on_ready.size() == hooks + 1);
  CHECK(results[0].entry()->extra->askers.size() == 10);
  CHECK(f.transport.sent.empty());
  f.Die({3, 7}, 0);  // One of those who asked.
  f.transport.sent.clear();
  for (const ObjectHandle& result : results) f.owner.references.SetValue(*result.entry(), "x");
  CHECK(f.transport.Count(FrameKind::kObjectAnswer) == 9 * 100);
  std::set<ProcessId> told;
  for (const Sent& frame : f.transport.sent) told.insert(frame.to);
  CHECK(told.size() == 9);
  CHECK_FALSE(told.contains({3, 7}));
}

TEST_CASE("a value whose copy in the store is lost is said by its owner, and copied anew") {
  Waits f;
  ObjectEntry* entry =
      f.owner.references.NewOwned(ObjectId::Make(kSelf, f.owner.references.NextSequence(), 1));
  const ObjectHandle handle(entry);
  f.owner.references.SetValue(*entry, "value");
  f.owner.references.Outgoing(*entry);
  REQUIRE(entry->location.known());
  const ObjectLocation lost = entry->location;
  const std::vector<ObjectId> ids{entry->id};
  f.transport.sent.clear();
  f.Query({1, 7}, ids);
  const auto kind_of = [&f] {
    const Sent answer = f.transport.Take(FrameKind::kObjectAnswer);
    return FrameHead<ReturnHead>(std::string_view(answer.body).substr(sizeof(ObjectAnswerHead)))
        ->kind;
  };
  CHECK(kind_of() == ReturnKind::kStore);
  f.Query({1, 7}, ids, /*lost=*/true);
  CHECK(kind_of() == ReturnKind::kValue);
  CHECK(f.store.freed == ids);
  CHECK(f.owner.references.unpromoted() != 0);
  CHECK(f.owner.references.PromoteAgain());
  CHECK(entry->location.known());
  CHECK_FALSE(entry->location.slot == lost.slot);
}

TEST_CASE("a borrower is told of a value once that is in the store, or the store is full") {
  Waits f;
  f.store.room = false;
  const auto new_value = [&f] {
    ObjectHandle made = f.Submit(f.Template());
    f.owner.references.Outgoing(*made.entry());
    f.transport.sent.clear();
    f.Query({1, 7}, std::vector<ObjectId>{made.id()});
    f.owner.references.SetValue(*made.entry(), "value");
    return made;
  };
  const auto answers = [&f] { return f.transport.Count(FrameKind::kObjectAnswer); };
  ObjectHandle made = new_value();
  f.owner.resolver.AnswerKept();
  CHECK(answers() == 0);
  CHECK(f.owner.Tick() == f.clock.Now() + LateAnswers::kPatience);
  SECTION("there is room soon") {
    f.store.room = true;
    REQUIRE(f.owner.references.PromoteAgain());
    f.owner.resolver.AnswerKept();
    CHECK(FrameHead<ReturnHead>(std::string_view(f.transport.Take(FrameKind::kObjectAnswer).body)
                                    .substr(sizeof(ObjectAnswerHead)))
              ->kind == ReturnKind::kStore);
    CHECK_FALSE(f.owner.resolver.holds_answers());
  }
  SECTION("there is none") {
    f.Pass(LateAnswers::kPatience, LateAnswers::kPatience);
    CHECK(answers() == 1);
    made = new_value();
    CHECK(answers() == 1);  // At once: the store is full.
    f.Pass(LateAnswers::kFullFor, LateAnswers::kFullFor);
    made = new_value();
    CHECK(answers() == 0);
  }
  SECTION("the borrower dies before") {
    f.owner.OnProcessDied({1, 7}, {}, UINT64_MAX);
    f.Pass(LateAnswers::kPatience, LateAnswers::kPatience);
    CHECK(answers() == 0);
  }
}

TEST_CASE("many objects on other nodes are asked for again in few frames") {
  Waits f;
  std::vector<ObjectHandle> wanted;
  for (uint64_t i = 1; i <= 1500; ++i) {
    wanted.push_back(f.Borrow(i, kThere));
    f.owner.resolver.Want(*wanted.back().entry());
    f.owner.resolver.Missing(*wanted.back().entry());
  }
  f.transport.sent.clear();
  f.Pass(kSecond);
  CHECK(f.transport.Count(kStoreFetch) == 2);
  CHECK(FrameItems<FetchWanted>(f.transport.Take(kStoreFetch).body).size() == kMaxStoreItems);
}

TEST_CASE("what waits for a value to be here hears of it when it is") {
  Waits f;
  std::vector<int> heard;
  const auto note = [&](int number) {
    return [&heard, number](ObjectEntry&) { heard.push_back(number); };
  };
  SECTION("one of this process: at once, when it is ready") {
    ObjectHandle result = f.Submit(f.Template());
    f.owner.resolver.WhenHere(*result.entry(), note(1));
    CHECK(heard.empty());
    f.Grant();
    f.Reply(f.TakePush(), "9");
    CHECK(heard == std::vector{1});
    f.owner.resolver.WhenHere(*result.entry(), note(2));
    CHECK(heard == std::vector{1, 2});
  }
  SECTION("one on another node: when it has come, which it does without a get") {
    ObjectHandle object = f.Borrow(1, kThere);
    f.owner.resolver.WhenHere(*object.entry(), note(1));
    f.owner.resolver.WhenHere(*object.entry(), note(2));
    CHECK(f.transport.Take(kStoreFetch).to == kRaylet);
    CHECK(f.transport.Count(kStoreFetch) == 0);
    CHECK_FALSE(f.owner.resolver.IsHere(*object.entry()));
    f.Pass(30 * kSecond);
    CHECK(heard.empty());
    f.owner.resolver.OnLocated(object.id(), &kHere, {});
    CHECK(heard == std::vector{1, 2});
    CHECK(f.owner.resolver.IsHere(*object.entry()));
  }
  SECTION("one on this node's disk: when it is back") {
    ObjectHandle object = f.Borrow(1, kHere);
    f.store.spilled.insert(kHere.slot);
    f.owner.resolver.WhenHere(*object.entry(), note(1));
    CHECK(heard.empty());
    CHECK(f.looked_up == std::vector{object.id()});
    f.store.spilled.clear();
    f.owner.resolver.OnLocated(object.id(), &kHere, {});
    CHECK(heard == std::vector{1});
  }
  SECTION("one that is lost: when its error is known") {
    ObjectHandle object = f.Borrow(1, kThere);
    f.owner.resolver.WhenHere(*object.entry(), note(1));
    f.owner.resolver.OnLocated(object.id(), nullptr, {ErrorKind::kObjectLost, "gone", {}});
    CHECK(heard.empty());  // The owner is asked.
    f.Die(kFarOwner, 0);
    f.owner.references.SetError(*object.entry(), {ErrorKind::kOwnerDied, "dead", {}});
    CHECK(heard == std::vector{1});
  }
  SECTION("one that finds no room: then, as a look at it says so") {
    ObjectHandle object = f.Borrow(1, kThere);
    f.owner.resolver.WhenHere(*object.entry(), note(1));
    f.owner.resolver.OnLocated(object.id(), nullptr, {ErrorKind::kObjectStoreFull, "full", {}});
    CHECK(heard == std::vector{1});
  }
  SECTION("nobody else holds it: it stays until then") {
    ObjectHandle object = f.Borrow(1, kThere);
    const ObjectId id = object.id();
    f.owner.resolver.WhenHere(*object.entry(), note(1));
    object = {};
    f.owner.references.CollectDropped();
    REQUIRE(f.owner.references.Find(id) != nullptr);
    f.owner.resolver.OnLocated(id, &kHere, {});
    CHECK(heard == std::vector{1});
    f.owner.references.CollectDropped();
    CHECK(f.owner.references.Find(id) == nullptr);
  }
  SECTION("its node dies: when it has come from another") {
    ObjectHandle object = f.Borrow(1, kThere);
    f.owner.resolver.WhenHere(*object.entry(), note(1));
    f.owner.OnNodeGone(2);
    f.owner.resolver.OnLocated(object.id(), &kHere, {});
    CHECK(heard == std::vector{1});
  }
}

}  // namespace object_waits_test
}  // namespace sheaf
