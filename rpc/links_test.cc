// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Links between processes that live in this one: who reaches whom, and what arrives.
#include "rpc/links.h"

#include "rpc/links_node_for_test.h"

namespace sheaf {
namespace links_test {

constexpr ProcessId kOne{1, 0}, kTwo{2, 0}, kThree{3, 0};

TEST_CASE("frames arrive whole, in order and aligned, both ways over one connection") {
  TestNode one({kOne}), two({kTwo});
  one.links().SetAddress(kTwo, two.address());
  one.links().Send(kOne, kTwo, {{1, 7}, {2, 9}, Lane::kWork, FrameKind::kPushTask, "abc"});
  one.links().Send(kOne, kTwo, {{1, 8}, {2, 9}, Lane::kControl, FrameKind::kTaskReply, ""});
  CHECK_FALSE(two.AwaitFrames(1, 50 * kMillisecond));  // Nothing flushed them.
  const std::string large(3'000'000, 'L');
  one.links().Send(kOne, kTwo, {{1, 8}, {2, 9}, Lane::kControl, FrameKind::kTaskReply, large});
  one.links().Flush();
  REQUIRE(two.AwaitFrames(3));
  const auto arrived = two.arrived();
  CHECK(arrived[0].peer == kOne);
  CHECK(arrived[0].from == ProcessId{1, 7});
  CHECK(arrived[0].to == ProcessId{2, 9});
  CHECK(arrived[0].lane == Lane::kWork);
  CHECK(arrived[0].kind == FrameKind::kPushTask);
  CHECK(arrived[0].body == "abc");
  CHECK(arrived[1].body.empty());
  CHECK(arrived[2].body == large);
  CHECK(two.aligned());

  two.Send(kOne, "back");  // It has no address of the other: the connection serves both ways.
  REQUIRE(one.AwaitFrames(1));
  CHECK(one.arrived()[0].peer == kTwo);
  CHECK(one.arrived()[0].body == "back");
  CHECK(one.AwaitLink(kTwo, true));
  CHECK(two.AwaitLink(kOne, true));
  CHECK(one.links().figures().frames_sent == 3);
  CHECK(two.links().figures().frames_received == 3);
}

TEST_CASE("a guest becomes a raylet on the connection that it dialled") {
  TestNode gcs({kGcs});
  TestNode guest({});
  guest.links().SetAddress(kGcs, gcs.address());
  guest.Send(kGcs, "who am I?");
  REQUIRE(gcs.AwaitFrames(1));
  const ProcessId name = gcs.arrived()[0].peer;
  CHECK(name.node == 0);
  CHECK(name.process != 0);
  gcs.Send(kTwo, "too early, it waits");
  gcs.Send(name, "you are 2");
  REQUIRE(guest.AwaitFrames(1));
  guest.links().AddSelf(kTwo);
  REQUIRE(gcs.AwaitLink(kTwo, true));
  CHECK(gcs.AwaitLink(name, false));
  REQUIRE(guest.AwaitFrames(2));
  CHECK(guest.arrived()[1].body == "too early, it waits");
  gcs.Send(name, "by the old name");
  REQUIRE(guest.AwaitFrames(3));
  guest.links().Send(kTwo, kGcs, {kTwo, kGcs, Lane::kControl, FrameKind::kGcsRequest, "as two"});
  guest.links().Flush();
  REQUIRE(gcs.AwaitFrames(2));
  CHECK(gcs.arrived()[1].peer == kTwo);
  CHECK(gcs.links().figures().reconnects == 0);
}

TEST_CASE("three ends, one of them a process that is two") {
  TestNode head({kGcs, kOne}), two({kTwo}), three({kThree});
  for (TestNode* node : {&two, &three}) {
    node->links().SetAddress(kGcs, head.address());
    node->links().SetAddress(kOne, head.address());
  }
  three.links().SetAddress(kTwo, two.address());
  two.Send(kGcs, "2 to gcs");
  three.Send(kGcs, "3 to gcs");
  three.Send(kOne, "3 to 1");
  three.Send(kTwo, "3 to 2");
  REQUIRE(head.AwaitFrames(3));
  REQUIRE(two.AwaitFrames(1));
  head.links().Send(kOne, kThree, {kOne, kThree, Lane::kControl, FrameKind::kGcsReply, "1 to 3"});
  head.links().Send(kGcs, kThree, {kGcs, kThree, Lane::kControl, FrameKind::kGcsReply, "g to 3"});
  head.links().Flush();
  REQUIRE(three.AwaitFrames(2));
}

TEST_CASE("a block is fetched, over links that do not stand yet too") {
  TestNode one({kOne}), two({kTwo});
  one.links().SetAddress(kTwo, two.address());
  const std::string request(40'000, 'r');
  auto block = one.Fetch(kTwo, request);
  REQUIRE(block.status().ToString() == "OK");
  CHECK((*block)->head() == "for 1.0");
  REQUIRE((*block)->size() == 80'000);
  std::string bytes(80'000, '\0');
  REQUIRE((*block)->CopyTo({bytes.data(), bytes.size()}).ok());
  CHECK(bytes == request + request);
  CHECK(two.links().figures().served_bytes == 80'000);
  CHECK(one.links().figures().fetched_bytes == 80'000);
}

}  // namespace links_test
}  // namespace sheaf
