// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "worker/core/loop_calls.h"

#include "worker/core/core_node_for_test.h"

namespace sheaf {
namespace loop_calls_test {

// An async actor with a group "io" beside the default one, whose constructor has run.
struct LoopTest {
  LoopTest() {
    proto::TaskTemplate creation;
    creation.set_kind(proto::TaskTemplate::ACTOR_CREATION);
    creation.mutable_actor()->set_is_async(true);
    proto::ConcurrencyGroup& group = *creation.mutable_actor()->add_groups();
    group.set_name("io");
    group.set_max_concurrency(10);
    REQUIRE(node.Call({}, creation) != nullptr);
    node.core->executor.FinishEnded();
    node.core->executor.CountConstructed({});
  }
  void Push(const std::vector<StoreArgument>& stored, const std::string& name,
            const std::string& group = "") {
    proto::TaskTemplate method;
    method.set_kind(proto::TaskTemplate::ACTOR_METHOD);
    method.set_name(name);
    method.set_concurrency_group(group);
    node.Push(stored, method);
  }
  std::vector<std::string> Collect() {
    std::vector<std::shared_ptr<Execution>> calls;
    waits = false;
    loop.Collect(&calls, &waits);
    std::vector<std::string> names;
    for (const auto& call : calls) names.emplace_back(call->name());
    return names;
  }

  CoreNode node;
  LoopCalls loop{*node.core};
  bool waits = false;
};

SCENARIO("calls whose arguments are within reach are the loop's at once") {
  LoopTest test;
  test.Push({}, "first");
  test.Push({test.node.Stored(1, "bytes")}, "second");
  CHECK(test.Collect() == std::vector<std::string>{"first", "second"});
  CHECK(!test.waits);
  CHECK(!test.loop.any_waits());
}

SCENARIO("a call that waits for its arguments holds back the later ones of its group alone") {
  LoopTest test;
  const StoreArgument argument = CoreNode::Elsewhere(1, 5);
  test.Push({argument}, "waits");
  test.Push({}, "later");
  test.Push({}, "other group", "io");
  CHECK(test.Collect() == std::vector<std::string>{"other group"});
  CHECK(test.waits);
  REQUIRE(test.loop.any_waits());
  CHECK(!test.loop.Look());
  test.node.Bring(argument.id, "bytes");
  REQUIRE(test.loop.Look());
  test.loop.EndWait(absl::OkStatus());
  CHECK(!test.loop.any_waits());
  CHECK(test.Collect() == std::vector<std::string>{"waits", "later"});
}

SCENARIO("of several groups each waits by itself") {
  LoopTest test;
  const StoreArgument first = CoreNode::Elsewhere(1, 5), second = CoreNode::Elsewhere(2, 5);
  test.Push({first}, "first");
  test.Push({second}, "second", "io");
  CHECK(test.Collect().empty());
  CHECK(!test.loop.Look());
  test.node.Bring(second.id, "bytes");
  REQUIRE(test.loop.Look());
  test.loop.EndWait(absl::OkStatus());
  CHECK(test.Collect() == std::vector<std::string>{"second"});
  CHECK(test.loop.any_waits());
}

SCENARIO("a call that nobody waits for any more fails, and the next one of its group goes on") {
  LoopTest test;
  test.Push({CoreNode::Elsewhere(1, 5)}, "waits");
  test.Push({}, "later");
  CHECK(test.Collect().empty());
  test.loop.EndWait(absl::AbortedError("the raylet has ended"));
  test.node.core->executor.FinishEnded();
  CHECK(test.node.sent.Count(FrameKind::kTaskReply) == 2);  // The constructor's is one.
  CHECK(test.Collect() == std::vector<std::string>{"later"});
}

}  // namespace loop_calls_test
}  // namespace sheaf
