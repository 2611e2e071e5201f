// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What workers ask before they hold the arguments of a call, and how they are answered.
#include "raylet/objects/argument_admission.h"

#include <catch2/catch.hpp>

#include "base/testing/recording_transport_for_test.h"
#include "raylet/raylet_node_for_test.h"

namespace sheaf {
namespace argument_admission_test {

constexpr ProcessId kWorker{1, 5};
constexpr ProcessId kOther{1, 6};

struct Node {
  RayletNode of_store;  // For its store alone.
  FakeClock clock;
  RecordingTransport transport;
  ArgumentAdmission arguments{clock, transport, *of_store.store};

  absl::Status Hold(ProcessId process, uint64_t ticket, HoldStep step, uint64_t bytes = 0,
                    uint32_t count = 1) {
    HoldHead head{};
    head.ticket = ticket;
    head.step = step;
    head.count = count;
    HeldObject object{};
    object.id = ObjectId::Make({9, 9}, ticket, 1);
    object.bytes = bytes;
    const std::string body = std::string(AsBytes(head)) + std::string(AsBytes(object));
    return arguments.OnHold(process, {kStoreHold, body});
  }
  std::vector<uint64_t> Admitted(ProcessId process) {
    arguments.Settle();
    std::vector<uint64_t> tickets;
    for (const SentFrame& frame : transport.Take(process)) {
      if (frame.kind != kStoreHeld) continue;
      tickets.push_back(FrameHead<HoldAdmitted>(frame.body)->ticket);
    }
    return tickets;
  }
};

SCENARIO("calls whose arguments are most of the store run one after the other") {
  Node node;
  const uint64_t most = RayletNode::kCapacityBytes * 6 / 10;
  REQUIRE(node.Hold(kWorker, 1, HoldStep::kAsk, most).ok());
  REQUIRE(node.Hold(kOther, 2, HoldStep::kAsk, most).ok());
  CHECK(node.Admitted(kWorker) == std::vector<uint64_t>{1});
  CHECK(node.Admitted(kOther).empty());
  CHECK(node.arguments.IsWaiting(kOther));
  WHEN("the first ends") { REQUIRE(node.Hold(kWorker, 1, HoldStep::kEnd).ok()); }
  WHEN("its process is gone") { node.arguments.OnProcessGone(kWorker); }
  CHECK(node.Admitted(kOther) == std::vector<uint64_t>{2});
  CHECK_FALSE(node.arguments.IsWaiting(kOther));
}

SCENARIO("what cannot be read is refused, what a newer peer says is not") {
  Node node;
  CHECK_FALSE(node.arguments.OnHold(kWorker, {kStoreHold, "short"}).ok());
  CHECK_FALSE(node.Hold(kWorker, 1, HoldStep::kAsk, 1, /*count=*/2).ok());
  CHECK(node.Hold(kWorker, 1, static_cast<HoldStep>(77)).ok());
  CHECK(node.Admitted(kWorker).empty());
}

}  // namespace argument_admission_test
}  // namespace sheaf
