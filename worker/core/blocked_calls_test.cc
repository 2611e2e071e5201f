// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "worker/core/blocked_calls.h"

#include <optional>

#include "worker/core/core_node_for_test.h"

namespace sheaf {
namespace blocked_calls_test {

constexpr Nanos kBegun = 100 * kSecond;

struct BlockedTest {
  std::optional<BlockedCalls::Wait> Wait(WaitsFor waits_for, uint64_t hold = 0) {
    return std::optional<BlockedCalls::Wait>(std::in_place, node.core->blocked_calls, waits_for,
                                             /*in_call=*/true, hold, kBegun);
  }
  // What the raylet was told since this was asked last.
  std::vector<bool> Told() {
    std::vector<bool> told;
    while (node.sent.Count(FrameKind::kBlocked) != 0)
      told.push_back(node.Taken<proto::Blocked>(FrameKind::kBlocked).blocked());
    return told;
  }
  // A task that comes now goes back to its owner.
  bool ReturnsTasks() {
    const size_t before = node.sent.Count(FrameKind::kTaskReturned);
    node.Push({});
    return node.sent.Count(FrameKind::kTaskReturned) != before;
  }

  CoreNode node;
};

SCENARIO("a call that waits for others gives up its queue at once and its CPUs soon") {
  BlockedTest test;
  auto wait = test.Wait(WaitsFor::kOthers);
  CHECK(test.ReturnsTasks());
  CHECK(wait->Look(kBegun) == kBegun + BlockedCalls::kBlockedAfter);
  CHECK(test.Told().empty());
  CHECK(wait->Look(kBegun + BlockedCalls::kBlockedAfter) == kForever);
  CHECK(test.Told() == std::vector{true});
  wait.reset();
  CHECK(test.Told() == std::vector{false});
  CHECK(!test.ReturnsTasks());
}

SCENARIO("a short wait is not worth a word") {
  BlockedTest test;
  auto wait = test.Wait(WaitsFor::kOthers);
  wait->Look(kBegun + BlockedCalls::kBlockedAfter - 1);
  wait.reset();
  CHECK(test.Told().empty());
}

SCENARIO("a call whose arguments are on their way is patient") {
  BlockedTest test;
  auto wait = test.Wait(WaitsFor::kArguments);
  CHECK(wait->Look(kBegun + BlockedCalls::kPatience - 1) == kBegun + BlockedCalls::kPatience);
  CHECK(!test.ReturnsTasks());
  wait->Look(kBegun + BlockedCalls::kPatience);
  CHECK(test.Told().empty());
  wait->Look(kBegun + BlockedCalls::kPatience + BlockedCalls::kBlockedAfter);
  CHECK(test.Told() == std::vector{true});
  wait.reset();
  CHECK(test.Told() == std::vector{false});
}

SCENARIO("a call that waits for admission lends its CPUs, and keeps its queue for a while") {
  BlockedTest test;
  auto wait = test.Wait(WaitsFor::kAdmission);
  wait->Look(kBegun + BlockedCalls::kAdmissionPatience);
  CHECK(test.Told() == std::vector{true});
  CHECK(!test.ReturnsTasks());
  wait.reset();
  CHECK(test.Told() == std::vector{false});
}

SCENARIO("of several that wait the last takes the CPUs back") {
  BlockedTest test;
  auto first = test.Wait(WaitsFor::kOthers), second = test.Wait(WaitsFor::kRoom);
  first->Look(kBegun + kSecond);
  second->Look(kBegun + kSecond);
  CHECK(test.Told() == std::vector{true});  // Once.
  first.reset();
  CHECK(test.Told().empty());
  CHECK(test.ReturnsTasks());
  second.reset();
  CHECK(test.Told() == std::vector{false});
}

SCENARIO("a thread that runs no call waits as long as it likes") {
  BlockedTest test;
  BlockedCalls::Wait wait(test.node.core->blocked_calls, WaitsFor::kOthers, /*in_call=*/false, 0,
                          kBegun);
  CHECK(wait.Look(kBegun + kSecond) == kForever);
  CHECK(test.Told().empty());
}

SCENARIO("others come first in holding their arguments while a call that holds its own waits") {
  BlockedTest test;
  const auto steps = [&] {
    std::vector<HoldStep> taken;
    while (test.node.sent.Count(kStoreHold) != 0) {
      HoldHead head;
      std::memcpy(&head, test.node.sent.Take(kStoreHold).body.data(), sizeof head);
      taken.push_back(head.step);
    }
    return taken;
  };
  const auto call = test.node.Call({test.node.Stored(1, Pattern(kMiB, 1))});
  ArgumentHolds& holds = test.node.core->executor.argument_holds();
  REQUIRE(!holds.Begin(*call));
  holds.OnAdmitted(call->hold_ticket);
  CHECK(steps() == std::vector{HoldStep::kAsk});
  auto wait = test.Wait(WaitsFor::kOthers, call->hold_ticket);
  wait->Look(kBegun + BlockedCalls::kBlockedAfter);
  CHECK(steps() == std::vector{HoldStep::kSuspend});
  wait.reset();
  CHECK(steps() == std::vector{HoldStep::kResume});
  auto room = test.Wait(WaitsFor::kRoom, call->hold_ticket);
  room->Look(kBegun + kSecond);
  CHECK(steps().empty());
}

}  // namespace blocked_calls_test
}  // namespace sheaf
