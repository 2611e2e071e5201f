// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Parts of objects: read together, where they lie or fetched; asked for, found, and lost with their
// nodes.
#include "worker/core/core_node_for_test.h"
#include "worker/core/part_fetches.h"
#include "worker/core/part_gathering.h"
#include "worker/owner/object_places_for_test.h"

namespace sheaf {
namespace parts_test {

// An object of this process that lies on another node.
ObjectHandle Elsewhere(CoreNode& node, uint64_t size) {
  return node.core->AddStored(node.core->NextName(), {kSelf.node + 1, 0, 1, 0}, size, {});
}

PartWanted TakeQuestion(CoreNode& node) {
  const auto frame = node.sent.Take(kStorePart);
  return FrameItems<PartWanted>(frame.body)[0];
}

void Answer(CoreNode& node, ObjectId name, LookupOutcome outcome) {
  const LocatedObject answer{.id = name, .location = {}, .outcome = outcome, .flags = 0};
  node.core->dispatch.OnFrame(kRaylet, {kStoreLocated, AsBytes(answer)});
}

SCENARIO("a part is read in place where its object is, and fetched where it is not") {
  CoreNode node;
  const std::vector<ObjectPart> parts = {{node.core->PutValue("0123456789", {}), 2, 3},
                                         {Elsewhere(node, 1000), 500, 4}};
  std::vector<ObjectView> views;
  PartGathering gathering(*node.core, parts, &views);
  CHECK(!gathering.Look());
  CHECK(gathering.next().offset == 500);
  const PartWanted wanted = TakeQuestion(node);
  CHECK(wanted.of == parts[1].object.id());
  CHECK(wanted.offset == 500);
  CHECK(wanted.bytes == 4);
  CHECK(wanted.hint.node == kSelf.node + 1);
  CHECK(node.sent.Count(kStoreFetch) == 0);
  node.Bring(wanted.id, "part");
  REQUIRE(gathering.Look());
  CHECK(gathering.status().ok());
  CHECK(views[0].bytes == "234");
  CHECK(views[1].bytes == "part");
  CHECK(node.core->parts.size() == 0);
}

SCENARIO("what nobody reads any more is not sought") {
  CoreNode node;
  ObjectId name;
  {
    const std::vector<ObjectPart> parts = {{Elsewhere(node, 1000), 0, 4}};
    std::vector<ObjectView> views;
    PartGathering gathering(*node.core, parts, &views);
    CHECK(!gathering.Look());
    name = TakeQuestion(node).id;
  }
  node.core->owner.references.CollectDropped();
  node.store.clock.Advance(2 * kSecond);
  node.core->Tick();
  const PartWanted cancelled = TakeQuestion(node);
  CHECK(cancelled.id == name);
  CHECK(cancelled.cancel == 1);
  CHECK(node.core->parts.size() == 0);
}

SCENARIO("errors of parts") {
  CoreNode node;
  std::vector<ObjectPart> parts = {{Elsewhere(node, 1000), 500, 4}};
  std::vector<ObjectView> views;
  const auto read = [&](LookupOutcome outcome) {
    PartGathering gathering(*node.core, parts, &views);
    CHECK(!gathering.Look());
    Answer(node, TakeQuestion(node).id, outcome);
    REQUIRE(gathering.Look());
    REQUIRE(views[0].error != nullptr);
    return views[0].error->kind;
  };
  WHEN("the store has no room") {
    CHECK(read(LookupOutcome::kFull) == ErrorKind::kObjectStoreFull);
  }
  WHEN("the object is shorter") {
    CHECK(read(LookupOutcome::kOutOfRange) == ErrorKind::kInvalidArgument);
  }
  WHEN("the object is nowhere, and nobody can make it again") {
    CHECK(read(LookupOutcome::kNotFound) == ErrorKind::kObjectLost);
  }
  WHEN("a small value is shorter") {
    parts = {{node.core->PutValue("0123456789", {}), 8, 3}};
    PartGathering gathering(*node.core, parts, &views);
    while (!gathering.Look()) {
    }
    REQUIRE(views[0].error != nullptr);
    CHECK(views[0].error->kind == ErrorKind::kInvalidArgument);
  }
}

SCENARIO("more than the store can hold is refused") {
  CoreNode node(16 * kMiB);
  const std::vector<ObjectPart> parts = {{Elsewhere(node, 32 * kMiB), 0, 10 * kMiB},
                                         {Elsewhere(node, 32 * kMiB), 0, 10 * kMiB}};
  std::vector<ObjectView> views;
  PartGathering gathering(*node.core, parts, &views);
  CHECK(gathering.Look());
  CHECK(absl::IsResourceExhausted(gathering.status()));
}

struct Parts : Places {
  PartFetches fetches{kSelf, clock, transport, owner.references, owner.resolver};

  PartWanted TakeQuestion() {
    const Sent frame = transport.Take(kStorePart);
    CHECK(frame.to == kRaylet);
    return FrameItems<PartWanted>(frame.body)[0];
  }
  bool Answer(ObjectId name, const absl::StatusOr<ObjectLocation>& location) {
    return fetches.OnLocated(name, location);
  }
  void Pass(Nanos duration) {
    clock.Advance(duration);
    owner.Tick();
    fetches.Tick();
  }
};
const absl::Status kNowhere = absl::NotFoundError("not on this node");

TEST_CASE("a part comes as an object of this process, which is freed under the name it came by") {
  Parts f;
  const ObjectHandle object = f.Result();
  ObjectHandle part = f.fetches.Fetch(*object.entry(), 100, 50);
  const PartWanted wanted = f.TakeQuestion();
  CHECK(wanted.of == object.id());
  CHECK(wanted.hint == kThere);
  CHECK(wanted.id.maker() == kSelf);
  CHECK(wanted.id != part.id());
  f.Pass(kSecond);
  CHECK(f.TakeQuestion().id == wanted.id);  // No wait hangs on one frame.
  REQUIRE(f.Answer(wanted.id, kHere));
  CHECK(ObjectState{part.entry()->state} == ObjectState::kStore);
  CHECK(part.entry()->size == 50);
  CHECK(f.fetches.size() == 0);
  CHECK_FALSE(f.Answer(wanted.id, kHere));
  part = {};
  f.Collect();
  CHECK(f.store.freed == std::vector{wanted.id});
}

TEST_CASE("a part of what is made only now is asked for when it is there") {
  Parts f;
  const ObjectHandle object = f.Submit(f.Template(3));
  const ObjectHandle part = f.fetches.Fetch(*object.entry(), 0, 5);
  CHECK(f.transport.Count(kStorePart) == 0);
  f.Pass(3 * kSecond);
  f.Grant(1, kFar);
  f.ReplyStored(f.TakePush(), kThere);
  CHECK(f.transport.Count(kStorePart) == 1);
  CHECK(f.TakeQuestion().hint == kThere);
}

TEST_CASE("a part of what is not there makes the owner look for it, and begin anew") {
  Parts f;
  const ObjectHandle object = f.Result();
  const ObjectHandle part = f.fetches.Fetch(*object.entry(), 0, 5);
  const PartWanted first = f.TakeQuestion();
  SECTION("where there is another copy, that is asked about, under another name") {
    f.Copied(kThirdRaylet, object.id(), kThird);
    REQUIRE(f.Answer(first.id, kNowhere));
    const PartWanted cancelled = f.TakeQuestion();
    CHECK(cancelled.id == first.id);
    CHECK(cancelled.cancel == 1);
    const PartWanted second = f.TakeQuestion();
    CHECK(second.hint == kThird);
    CHECK(second.id != first.id);
    CHECK_FALSE(f.Answer(first.id, kHere));  // Too late.
    REQUIRE(f.Answer(second.id, kHere));
    CHECK(part.entry()->ready());
  }
  SECTION("else its call runs again") {
    REQUIRE(f.Answer(first.id, kNowhere));
    CHECK(ObjectState{object.entry()->state} == ObjectState::kPending);
    CHECK_FALSE(part.entry()->ready());
  }
  SECTION("but not when it is known to be elsewhere by now: that answer is about something past") {
    f.owner.references.DropCopy(*object.entry(), kThere.node);
    f.owner.references.AddCopy(*object.entry(), kThird);
    REQUIRE(f.Answer(first.id, kNowhere));
    CHECK(object.entry()->location == kThird);
    CHECK(f.TakeFrees().empty());
    CHECK(f.TakeQuestion().cancel == 1);
    CHECK(f.TakeQuestion().hint == kThird);
  }
  SECTION("nor does a question go on about a place where it is no more") {
    f.owner.references.DropCopy(*object.entry(), kThere.node);
    f.owner.references.AddCopy(*object.entry(), kThird);
    f.Pass(kSecond);
    CHECK(f.TakeQuestion().cancel == 1);
    CHECK(f.TakeQuestion().hint == kThird);
  }
}

TEST_CASE("a place that says again and again that it does not have it is asked once a second") {
  Parts f;
  const ObjectHandle object = f.PutThere();
  const ObjectHandle part = f.fetches.Fetch(*object.entry(), 0, 5);
  int asked = 0;
  for (int i = 0; i < 100 && !part.entry()->ready(); ++i) {
    while (f.transport.Count(kStorePart) != 0) {
      const PartWanted wanted = f.TakeQuestion();
      if (wanted.cancel != 0) continue;
      ++asked;
      f.owner.references.AddCopy(*object.entry(),
                                 kThird);  // Somebody always says that it is there.
      REQUIRE(f.Answer(wanted.id, kNowhere));
    }
    f.Pass(kSecond);
  }
  REQUIRE(ObjectState{part.entry()->state} == ObjectState::kError);
  CHECK(part.entry()->extra->error.kind == ErrorKind::kObjectLost);
  CHECK(asked <= 31);
}

TEST_CASE("the error of an object is that of its parts, and each is withdrawn") {
  Parts f;
  const ObjectHandle object = f.PutThere();
  const ObjectHandle part = f.fetches.Fetch(*object.entry(), 0, 5);
  const PartWanted wanted = f.TakeQuestion();
  REQUIRE(f.Answer(wanted.id, kNowhere));
  REQUIRE(ObjectState{part.entry()->state} == ObjectState::kError);
  CHECK(part.entry()->extra->error.kind == ErrorKind::kObjectLost);
  CHECK(f.TakeQuestion().cancel == 1);
  CHECK(f.transport.Count(kStorePart) == 0);
}

TEST_CASE(
    "a raylet that says nothing for a minute ends the wait for a part, one that works does not") {
  Parts f;
  const ObjectHandle object = f.Result();
  const ObjectHandle part = f.fetches.Fetch(*object.entry(), 0, 5);
  const PartWanted wanted = f.TakeQuestion();
  for (int i = 0; i < 200; ++i) {
    f.Pass(kSecond);
    CHECK(f.TakeQuestion().id == wanted.id);
    REQUIRE(f.Answer(wanted.id, absl::UnavailableError("on its way")));
  }
  CHECK_FALSE(part.entry()->ready());
  for (int i = 0; i < 61; ++i) f.Pass(kSecond);
  REQUIRE(ObjectState{part.entry()->state} == ObjectState::kError);
  CHECK(part.entry()->extra->error.kind == ErrorKind::kTimeout);
}

}  // namespace parts_test
}  // namespace sheaf
