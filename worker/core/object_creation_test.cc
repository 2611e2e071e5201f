// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "worker/core/object_creation.h"

#include <cstring>

#include "worker/core/core_node_for_test.h"

namespace sheaf {
namespace object_creation_test {

// The raylet gives what it is asked for: slots, and then memory.
bool LookUntilMade(CoreNode& node, ObjectCreation& creation) {
  for (int turn = 0; turn < 10 && !creation.Look(); ++turn) node.store.Settle();
  return creation.Look();
}

SCENARIO("an object is made once the raylet has given memory for it") {
  CoreNode node;
  const ObjectId id = node.core->NextName();
  ObjectCreation creation(*node.core, {.id = id, .size_bytes = 5}, {});
  CHECK(!creation.Look());
  CHECK(!creation.Look());
  REQUIRE(LookUntilMade(node, creation));
  auto buffer = creation.End(absl::OkStatus());
  REQUIRE(buffer.ok());
  std::memcpy(buffer->data(), "bytes", 5);
  const ObjectHandle object = node.core->SealOwned(*std::move(buffer), {});
  CHECK(object.id() == id);
  ObjectView view;
  REQUIRE(node.core->TryView(object, &view));
  CHECK(view.bytes == "bytes");
  CHECK(node.core->object_counts().puts_store == 1);
}

SCENARIO("what no store of this size can hold is refused at once") {
  CoreNode node;
  ObjectCreation creation(*node.core, {.id = node.core->NextName(), .size_bytes = 1 << 30}, {});
  REQUIRE(creation.Look());
  CHECK(absl::IsResourceExhausted(creation.End(absl::OkStatus()).status()));
}

SCENARIO("who has waited in vain hears that there was no room, and is forgotten") {
  CoreNode node;
  const ObjectSpec spec{.id = node.core->NextName(), .size_bytes = 5};
  {
    ObjectCreation creation(*node.core, spec, {});
    CHECK(!creation.Look());
    const auto made = creation.End(absl::DeadlineExceededError("too late"));
    CHECK(absl::IsResourceExhausted(made.status()));
    CHECK(made.status().message() == "no room for 5 bytes in the object store came free in time");
  }
  ObjectCreation cancelled(*node.core, spec, {});
  CHECK(absl::IsCancelled(cancelled.End(absl::CancelledError("not wanted")).status()));
}

SCENARIO("the references inside an object can be found from the beginning") {
  CoreNode node;
  const ObjectHandle inner = node.core->PutValue("inner", {});
  CHECK(node.core->owner.references.Find(inner.id()) == nullptr);
  ObjectCreation creation(*node.core, {.id = node.core->NextName(), .size_bytes = 5}, {&inner, 1});
  CHECK(node.core->owner.references.Find(inner.id()) == inner.entry());
  REQUIRE(LookUntilMade(node, creation));
  const ObjectHandle outer =
      node.core->SealOwned(creation.End(absl::OkStatus()).value(), {&inner, 1});
  ObjectView view;
  REQUIRE(node.core->TryView(outer, &view));
  REQUIRE(view.nested.size() == 1);
  CHECK(view.nested[0] == inner);
}

}  // namespace object_creation_test
}  // namespace sheaf
