// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "worker/core/gathering.h"

#include "worker/core/core_node_for_test.h"

namespace sheaf {
namespace gathering_test {

constexpr uint64_t kStoreBytes = 16 * kMiB;

// An object of this process that lies on another node.
ObjectHandle Elsewhere(CoreNode& node, uint64_t size) {
  return node.core->AddStored(node.core->NextName(), {kSelf.node + 1, 0, 1, 0}, size, {});
}

SCENARIO("values are taken as they come, and asked for side by side") {
  CoreNode node;
  const std::vector<ObjectHandle> objects = {node.core->PutValue("first", {}), Elsewhere(node, 6),
                                             Elsewhere(node, 5)};
  std::vector<ObjectView> views(objects.size());
  Gathering gathering(*node.core, objects, &views);
  CHECK(!gathering.Look());
  CHECK(gathering.next() == 1);
  CHECK(node.sent.Count(kStoreFetch) == 2);
  node.Bring(objects[2].id(), "third");
  CHECK(!gathering.Look());
  CHECK(gathering.next() == 1);
  node.Bring(objects[1].id(), "second");
  REQUIRE(gathering.Look());
  CHECK(gathering.status().ok());
  CHECK(views[0].bytes == "first");
  CHECK(views[1].bytes == "second");
  CHECK(views[2].bytes == "third");
}

SCENARIO("more than the store can hold is refused before anything is brought") {
  CoreNode node(kStoreBytes);
  const std::vector<ObjectHandle> objects = {Elsewhere(node, kStoreBytes),
                                             Elsewhere(node, kStoreBytes)};
  std::vector<ObjectView> views(objects.size());
  Gathering gathering(*node.core, objects, &views);
  CHECK(gathering.Look());
  CHECK(absl::IsResourceExhausted(gathering.status()));
  CHECK(gathering.next() == 0);
}

SCENARIO("one object that is given twice is counted once") {
  CoreNode node(kStoreBytes);
  const ObjectHandle object = Elsewhere(node, kStoreBytes * 2 / 3);
  const std::vector<ObjectHandle> objects = {object, object};
  std::vector<ObjectView> views(objects.size());
  Gathering gathering(*node.core, objects, &views);
  CHECK(!gathering.Look());
  CHECK(gathering.status().ok());
}

SCENARIO("an error is a value like others") {
  CoreNode node;
  const ObjectHandle failed(node.core->owner.references.NewOwned(node.core->NextName()));
  node.core->owner.references.SetError(*failed.entry(), {ErrorKind::kTaskFailed, "it failed", {}});
  std::vector<ObjectView> views(1);
  Gathering gathering(*node.core, {&failed, 1}, &views);
  REQUIRE(gathering.Look());
  CHECK(gathering.status().ok());
  REQUIRE(views[0].error != nullptr);
  CHECK(views[0].error->message == "it failed");
}

}  // namespace gathering_test
}  // namespace sheaf
