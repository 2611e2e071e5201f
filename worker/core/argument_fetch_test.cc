// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "worker/core/argument_fetch.h"

#include "worker/core/core_node_for_test.h"

namespace sheaf {
namespace argument_fetch_test {

constexpr uint64_t kStoreBytes = 16 * kMiB;

SCENARIO("arguments that lie in the arena are pinned at once") {
  CoreNode node(kStoreBytes);
  ArgumentFetch fetch(*node.core, node.Call({node.Stored(1, "one"), node.Stored(2, "two")}));
  REQUIRE(fetch.Begin());
  REQUIRE(fetch.End(absl::OkStatus()).ok());
  REQUIRE(fetch.call()->argument_count() == 2);
  CHECK(fetch.call()->argument(0).bytes == "one");
  CHECK(fetch.call()->argument(1).bytes == "two");
}

SCENARIO("a call without arguments in the store waits for nothing") {
  CoreNode node(kStoreBytes);
  ArgumentFetch fetch(*node.core, node.Call({}));
  CHECK(fetch.Begin());
  CHECK(fetch.Look());
  CHECK(fetch.End(absl::OkStatus()).ok());
}

SCENARIO("an argument that lies on another node is brought") {
  CoreNode node(kStoreBytes);
  const StoreArgument here = node.Stored(1, "here"), there = CoreNode::Elsewhere(2, 5);
  ArgumentFetch fetch(*node.core, node.Call({here, there}));
  CHECK(!fetch.Begin());
  CHECK(fetch.admitted());
  CHECK(!fetch.Look());
  CHECK(node.sent.Count(kStoreFetch) > 0);
  node.Bring(there.id, "there");
  REQUIRE(fetch.Look());
  REQUIRE(fetch.End(absl::OkStatus()).ok());
  CHECK(fetch.call()->argument(0).bytes == "here");
  CHECK(fetch.call()->argument(1).bytes == "there");
}

SCENARIO("a call that is cancelled while its arguments are on their way does not go on") {
  CoreNode node(kStoreBytes);
  ArgumentFetch fetch(*node.core, node.Call({CoreNode::Elsewhere(1, 5)}));
  CHECK(!fetch.Begin());
  CHECK(!fetch.Look());
  fetch.call()->cancel_requested = true;
  CHECK(fetch.Look());
  CHECK(absl::IsNotFound(fetch.End(absl::OkStatus())));
}

SCENARIO("who waits in vain hears which argument it was") {
  CoreNode node(kStoreBytes);
  const StoreArgument argument = CoreNode::Elsewhere(1, 5);
  ArgumentFetch fetch(*node.core, node.Call({argument}));
  CHECK(!fetch.Begin());
  CHECK(!fetch.Look());
  const absl::Status ended = fetch.End(absl::AbortedError("the raylet has ended"));
  CHECK(absl::IsNotFound(ended));
  CHECK(ended.message().find(argument.id.ToHex()) != absl::string_view::npos);
  CHECK(ended.message().find("the raylet has ended") != absl::string_view::npos);
}

SCENARIO("a call that may not hold its arguments yet pins none of them") {
  CoreNode node(kStoreBytes);
  // A good part of the store.
  const StoreArgument large = node.Stored(1, Pattern(kStoreBytes / 64, 1));
  ArgumentFetch fetch(*node.core, node.Call({large}));
  CHECK(!fetch.Begin());
  CHECK(!fetch.admitted());
  CHECK(!fetch.LookForAdmission());
  CHECK(!fetch.Look());
  CHECK(fetch.call()->argument(0).bytes.empty());
  const HoldAdmitted admitted{fetch.call()->hold_ticket};
  node.core->dispatch.OnFrame(kRaylet, {kStoreHeld, AsBytes(admitted)});
  CHECK(fetch.LookForAdmission());
  REQUIRE(fetch.Look());
  REQUIRE(fetch.End(absl::OkStatus()).ok());
  CHECK(fetch.call()->argument(0).bytes.size() == large.size);
}

SCENARIO("arguments that are more than the store can hold at once fail their call") {
  CoreNode node(kStoreBytes);
  const ObjectLocation elsewhere{kSelf.node + 1, 0, 1, 0};
  std::vector<ObjectHandle> objects;  // Of this process, so that it knows how large they are.
  std::vector<StoreArgument> arguments;
  for (int i = 0; i < 2; ++i) {
    const ObjectId id = node.core->NextName();
    objects.push_back(node.core->AddStored(id, elsewhere, kStoreBytes, {}));
    arguments.push_back({id, elsewhere, kStoreBytes});
  }
  node.core->Outgoing(objects);
  const std::shared_ptr<CallExecution> call = node.Call(arguments);
  ArgumentFetch fetch(*node.core, call);
  CHECK(!fetch.Begin());
  const HoldAdmitted admitted{call->hold_ticket};
  node.core->dispatch.OnFrame(kRaylet, {kStoreHeld, AsBytes(admitted)});
  REQUIRE(fetch.Look());
  CHECK(absl::IsResourceExhausted(fetch.End(absl::OkStatus())));
  CHECK(call->argument(0).bytes.empty());
}

}  // namespace argument_fetch_test
}  // namespace sheaf
