// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Peers that have been quiet for a while: nobody looks at their rings until they call.
#include <catch2/catch.hpp>
#include <memory>
#include <vector>

#include "shm/mailbox_node_for_test.h"

namespace sheaf {
namespace {

// Bert with many peers, each a process with a mailbox of its own.
struct Crowd : MailboxNode {
  explicit Crowd(uint32_t count, uint32_t step = 1) {
    for (uint32_t i = 0; i < count; ++i) {
      const uint32_t bell = 10 + i * step;
      peers.push_back(MakeMailbox(bell));
      Join(i, bell);
    }
  }
  static ProcessId Name(uint32_t i) { return {1, 100 + i}; }
  void Join(uint32_t i, uint32_t bell) {
    UniqueFd pair = MakePair();
    REQUIRE(peers[i]->AddRing(kBert, pair.get(), true, kBertBell).ok());
    REQUIRE(bert->AddRing(Name(i), pair.get(), false, bell).ok());
  }
  void Send(uint32_t i, Lane lane = Lane::kControl) {
    peers[i]->To(kBert).Send(lane, FrameKind::kPushTask, "news");
  }
  void BeQuiet() {
    for (uint32_t i = 0; i <= Mailbox::kQuietPolls + 1; ++i) bert->Poll(at_bert, true);
  }
  std::vector<std::unique_ptr<Mailbox>> peers;
};

}  // namespace

SCENARIO("peers that are quiet are not looked at, and call when they have something") {
  Crowd crowd(30);
  CHECK(crowd.bert->watched() == 30);
  crowd.BeQuiet();
  CHECK(crowd.bert->watched() == Mailbox::kAlwaysWatched);
  CHECK_FALSE(crowd.bert->Pending(true));
  for (uint32_t i = 0; i < 30; ++i) {
    crowd.Send(i, i % 2 == 0 ? Lane::kControl : Lane::kWork);
    CHECK(crowd.bert->Pending(true));
    CHECK(crowd.bert->Poll(crowd.at_bert, true) == 1);
    CHECK(crowd.at_bert.Count(Crowd::Name(i)) == 1);
    CHECK_FALSE(crowd.bert->Pending(true));
  }
  crowd.BeQuiet();
  CHECK(crowd.bert->watched() == Mailbox::kAlwaysWatched);
}

SCENARIO("a call wakes a receiver that sleeps") {
  Crowd crowd(30);
  crowd.BeQuiet();
  for (uint32_t i = 0; i < 30; ++i) {
    SetBell(crowd.bert->bell(), BellState::kAsleep);
    CHECK_FALSE(crowd.bert->Pending(true));
    crowd.Send(i);
    CHECK(crowd.bert->bell().state == static_cast<uint32_t>(BellState::kAwake));
    CHECK(crowd.peers[i]->counts().wakes == 1);
    CHECK(crowd.bert->Poll(crowd.at_bert, true) == 1);
  }
}

SCENARIO("callers that share a bit are all looked at") {
  Crowd crowd(12, kCallBits);
  crowd.BeQuiet();
  crowd.Send(3);
  crowd.Send(11);
  CHECK(crowd.bert->Poll(crowd.at_bert, true) == 2);
  CHECK(crowd.bert->watched() == 12);
}

SCENARIO("work that is not taken yet keeps its sender watched") {
  Crowd crowd(30);
  for (uint32_t i = 0; i < 30; ++i) crowd.Send(i, Lane::kWork);
  for (uint32_t i = 0; i <= Mailbox::kQuietPolls + 1; ++i) crowd.bert->Poll(crowd.at_bert, false);
  CHECK(crowd.bert->watched() == 30);
  CHECK(crowd.bert->Poll(crowd.at_bert, true) == 30);
}

SCENARIO("what waits for room at a quiet peer leaves when there is some") {
  Crowd crowd(30);
  crowd.BeQuiet();
  FrameKeeper at_peer;
  for (uint32_t i = 0; i < 30; ++i) {
    const std::string half(kRingBytes / 8, 'x');
    for (int frame = 0; frame < 16; ++frame)
      crowd.bert->To(Crowd::Name(i)).Send(Lane::kWork, FrameKind::kPushTask, half);
    CHECK(crowd.bert->To(Crowd::Name(i)).queued_bytes() > 0);
    for (int poll = 0; poll < 10; ++poll) {
      crowd.peers[i]->Poll(at_peer, true);
      crowd.bert->Poll(crowd.at_bert, true);
    }
    CHECK(crowd.bert->To(Crowd::Name(i)).queued_bytes() == 0);
  }
  CHECK(at_peer.Count(kBert) == 30 * 16);
}

SCENARIO("a quiet peer may die and be replaced") {
  Crowd crowd(30);
  crowd.BeQuiet();
  for (uint32_t i = 0; i < 30; ++i) {
    crowd.Send(i);  // Its call outlives it.
    crowd.bert->Drain(Crowd::Name(i), crowd.at_bert);
    crowd.bert->Forget(Crowd::Name(i));
    crowd.peers[i] = crowd.MakeMailbox(10 + i);
    crowd.Join(i, 10 + i);
    CHECK(crowd.bert->Poll(crowd.at_bert, true) == 0);
    crowd.BeQuiet();
    crowd.Send(i);
    CHECK(crowd.bert->Poll(crowd.at_bert, true) == 1);
  }
}

SCENARIO("a sender that stops before it calls is found by a look at all") {
  Crowd crowd(30);
  crowd.BeQuiet();
  crowd.Send(20);
  for (auto& calls : crowd.bert->bell().calls) calls = 0;
  CHECK(crowd.bert->Poll(crowd.at_bert, true) == 0);
  crowd.bert->LookAtAll();
  CHECK(crowd.bert->Poll(crowd.at_bert, true) == 1);
}

}  // namespace sheaf
