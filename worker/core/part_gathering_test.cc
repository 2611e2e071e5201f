// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "worker/core/part_gathering.h"

#include "worker/core/core_node_for_test.h"

namespace sheaf {
namespace {

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

}  // namespace

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

}  // namespace sheaf
