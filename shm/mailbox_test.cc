// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "shm/mailbox.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <utility>

#include "base/message_limits.h"
#include "base/random.h"
#include "shm/mailbox_node_for_test.h"

namespace sheaf {

SCENARIO("a frame that is too long to be sent goes nowhere, and those behind it arrive") {
  MailboxNode node;
  node.Connect();
  const std::string longest = Content(1, kMaxBodyBytes);
  Channel& to_bert = node.anna->To(kBert);
  to_bert.Send(Lane::kControl, FrameKind::kPushTask, "x", longest);
  CHECK(to_bert.queued_bytes() == 0);
  to_bert.Send(Lane::kControl, FrameKind::kPushTask, longest);
  while (node.at_bert.Count(kAnna) == 0) {
    node.bert->Poll(node.at_bert, true);
    node.anna->Poll(node.at_anna, true);
  }
  CHECK(node.at_bert.Last(kAnna) == longest);
  CHECK(node.at_bert.malformed.empty());
}

SCENARIO("a frame is its head followed by its tail, on either lane, of any length") {
  MailboxNode node;
  node.Connect();
  for (Lane lane : {Lane::kWork, Lane::kControl}) {
    for (size_t size : {0, 1, 7, 8, 64, 4096, 65535, 65536, 65537, 131072, 200'000, 3 << 20}) {
      CAPTURE(size);
      const std::string content = Content(size, size);
      const std::string_view view = content;
      for (size_t cut : {size_t{0}, size / 3, size}) {
        node.anna->To(kBert).Send(lane, FrameKind::kPushTask, view.substr(0, cut),
                                  view.substr(cut));
        const size_t before = node.at_bert.Count(kAnna);
        while (node.at_bert.Count(kAnna) == before) {
          node.bert->Poll(node.at_bert, true);
          node.anna->Poll(node.at_anna, true);
        }
        REQUIRE(node.at_bert.Last(kAnna) == content);
      }
      CHECK(node.anna->To(kBert).queued_bytes() == 0);
      CHECK_FALSE(node.anna->HasQueued());
    }
  }
}

SCENARIO("frames of a lane keep their order, short and long mixed, through a full ring") {
  MailboxNode node;
  node.Connect();
  SeededRandom random(5);
  std::vector<std::string> sent[2];
  size_t bytes = 0;
  while (bytes < 8 << 20) {
    const Lane lane = random.OneIn(2) ? Lane::kWork : Lane::kControl;
    auto& list = sent[static_cast<int>(lane)];
    list.push_back(
        Content(list.size(), random.OneIn(10) ? random.Below(300'000) : random.Below(500)));
    bytes += list.back().size();
    node.anna->To(kBert).Send(
        lane, lane == Lane::kWork ? FrameKind::kPushTask : FrameKind::kTaskReply, list.back());
    if (random.OneIn(30)) node.bert->Poll(node.at_bert, true, random.Below(40));
  }
  CHECK(node.anna->HasQueued());
  CHECK(node.anna->To(kBert).queued_bytes() > 0);
  while (node.at_bert.Count(kAnna) < sent[0].size() + sent[1].size()) {
    node.anna->Poll(node.at_anna, true);
    node.bert->Poll(node.at_bert, true);
  }
  size_t next[2] = {0, 0};
  for (auto& [kind, body] : node.at_bert.got[kAnna]) {
    const int lane = kind == FrameKind::kPushTask ? 0 : 1;
    REQUIRE(body == sent[lane][next[lane]++]);
  }
  CHECK_FALSE(node.anna->HasQueued());
  CHECK(node.anna->To(kBert).queued_bytes() == 0);
}

SCENARIO("work waits for a process that is busy, control does not") {
  MailboxNode node;
  node.Connect();
  node.anna->To(kBert).Send(Lane::kWork, FrameKind::kPushTask, "work");
  CHECK(node.bert->Pending(true));
  CHECK_FALSE(node.bert->Pending(false));
  node.anna->To(kBert).Send(Lane::kControl, FrameKind::kCancelTask, "control");
  CHECK(node.bert->Pending(false));
  CHECK(node.bert->Poll(node.at_bert, false) == 1);
  CHECK(node.at_bert.Last(kAnna) == "control");
  CHECK_FALSE(node.bert->Pending(false));
  CHECK(node.bert->Poll(node.at_bert, true) == 1);
  CHECK(node.at_bert.Last(kAnna) == "work");
  CHECK_FALSE(node.bert->Pending(true));
}

SCENARIO("a send rings the receiver's bell, and no bell outside the board is taken") {
  MailboxNode node;
  node.Connect();
  SetBell(node.bert->bell(), BellState::kAsleep);
  node.anna->To(kBert).Send(Lane::kWork, FrameKind::kPushTask, "x");
  CHECK(node.bert->bell().state.load() == static_cast<uint32_t>(BellState::kAwake));
  UniqueFd pair = node.MakePair();
  CHECK(node.anna->AddRing(kCora, pair.get(), true, kMaxProcessesPerNode).code() ==
        absl::StatusCode::kInvalidArgument);
}

SCENARIO("contact is asked for once; what was sent meanwhile arrives first and in order") {
  MailboxNode node;
  Channel& to_bert = node.anna->To(kBert);
  for (int i = 0; i < 100; ++i) to_bert.Send(Lane::kWork, FrameKind::kPushTask, std::to_string(i));
  to_bert.Send(Lane::kControl, FrameKind::kTaskReply, Content(1, 200'000));
  CHECK(node.contacts == std::vector<ProcessId>{kBert});
  CHECK(node.anna->HasQueued());
  CHECK(to_bert.queued_bytes() >= 200'000);
  CHECK_FALSE(node.anna->HasRing(kBert));
  node.Connect();
  CHECK(node.anna->HasRing(kBert));
  CHECK_FALSE(node.anna->HasQueued());
  to_bert.Send(Lane::kWork, FrameKind::kPushTask, "100");
  node.bert->Poll(node.at_bert, true);
  REQUIRE(node.at_bert.Count(kAnna) == 102);
  CHECK(node.at_bert.got[kAnna][0].second == Content(1, 200'000));
  for (int i = 0; i <= 100; ++i) CHECK(node.at_bert.got[kAnna][i + 1].second == std::to_string(i));

  UniqueFd another = node.MakePair();
  CHECK(node.anna->AddRing(kBert, another.get(), true, kBertBell).code() ==
        absl::StatusCode::kAlreadyExists);
}

SCENARIO("a segment that is too small or not sealed makes no ring") {
  MailboxNode node;
  UniqueFd small = MakeSegment("small", kRingPairBytes - kPageBytes).value();
  CHECK(node.anna->AddRing(kBert, small.get(), true, kBertBell).code() ==
        absl::StatusCode::kInvalidArgument);
  UniqueFd unsealed(memfd_create("unsealed", MFD_CLOEXEC));
  REQUIRE(ftruncate(unsealed.get(), kRingPairBytes) == 0);
  CHECK(node.anna->AddRing(kBert, unsealed.get(), true, kBertBell).code() ==
        absl::StatusCode::kInvalidArgument);
  CHECK_FALSE(node.anna->HasRing(kBert));
}

SCENARIO("a sender without room sleeps until the receiver has made some") {
  MailboxNode node;
  node.Connect();
  Channel& to_bert = node.anna->To(kBert);
  const std::string body(1000, 'x');
  size_t sent = 0;
  SetBell(node.bert->bell(), BellState::kAway);
  while (!node.anna->HasQueued()) {
    to_bert.Send(Lane::kWork, FrameKind::kPushTask, body);
    ++sent;
  }
  CHECK(node.bert->bell().knock.load() == 1);  // A full work ring calls even a busy receiver, once:
  node.bert->bell().knock.store(0);
  SetBell(node.bert->bell(), BellState::kAway);
  node.anna->Poll(node.at_anna, true);
  to_bert.Send(Lane::kWork, FrameKind::kPushTask, body);
  ++sent;
  CHECK(node.bert->bell().knock.load() == 0);

  SetBell(node.anna->bell(), BellState::kAsleep);
  CHECK_FALSE(node.anna->Pending(true));
  CHECK(node.bert->Poll(node.at_bert, true, 1) == 1);
  CHECK(node.anna->bell().state.load() == static_cast<uint32_t>(BellState::kAwake));
  CHECK(node.anna->Pending(true));  // So a second look after the ring does not sleep either.
  while (node.at_bert.Count(kAnna) < sent) {
    node.anna->Poll(node.at_anna, true);
    node.bert->Poll(node.at_bert, true);
  }
  CHECK_FALSE(node.anna->HasQueued());
  CHECK(node.bert->Poll(node.at_bert, true) == 0);
}

SCENARIO("a budget bounds a poll, and the rest stays pending") {
  MailboxNode node;
  node.Connect();
  for (int i = 0; i < 10; ++i) node.anna->To(kBert).Send(Lane::kWork, FrameKind::kPushTask, "x");
  CHECK(node.bert->Poll(node.at_bert, true, 4) == 4);
  CHECK(node.bert->Pending(true));
  CHECK(node.bert->Poll(node.at_bert, true, 4) == 4);
  CHECK(node.bert->Poll(node.at_bert, true, 4) == 2);
  CHECK_FALSE(node.bert->Pending(true));
}

SCENARIO(
    "what a handler sends is published in the order of the sends, at the latest when Poll "
    "returns") {
  MailboxNode node;
  node.Connect();
  auto cora = node.MakeMailbox(kCoraBell);
  FrameKeeper at_cora;
  UniqueFd pair = node.MakePair();
  REQUIRE(node.bert->AddRing(kCora, pair.get(), true, kCoraBell).ok());
  REQUIRE(cora->AddRing(kBert, pair.get(), false, kBertBell).ok());

  node.at_bert.then = [&](ProcessId, const Frame& frame) {
    if (frame.body != "now") {
      node.bert->To(kAnna).Send(Lane::kControl, FrameKind::kTaskReply, frame.body);
      return;
    }
    CHECK_FALSE(node.anna->Pending(true));
    node.bert->To(kCora).Send(Lane::kControl, FrameKind::kTaskReply, "later");
    CHECK(node.anna->Pending(true));  // What was sent to Anna before is there before Cora's.
    CHECK_FALSE(cora->Pending(true));
  };
  node.anna->To(kBert).Send(Lane::kWork, FrameKind::kPushTask, "1");
  node.anna->To(kBert).Send(Lane::kWork, FrameKind::kPushTask, "2");
  node.anna->To(kBert).Send(Lane::kWork, FrameKind::kPushTask, "now");
  SetBell(cora->bell(), BellState::kAsleep);
  SetBell(node.anna->bell(), BellState::kAsleep);
  node.bert->Poll(node.at_bert, true);
  CHECK(cora->bell().state.load() == static_cast<uint32_t>(BellState::kAwake));
  CHECK(node.anna->bell().state.load() == static_cast<uint32_t>(BellState::kAwake));
  CHECK(node.anna->Poll(node.at_anna, true) == 2);
  CHECK(cora->Poll(at_cora, true) == 1);
}

SCENARIO("thousands of echoes from inside a handler arrive, batches or not") {
  MailboxNode node;
  node.Connect();
  node.at_bert.then = [&](ProcessId from, const Frame& frame) {
    node.bert->To(from).Send(Lane::kControl, FrameKind::kTaskReply, frame.body);
  };
  for (int i = 0; i < 5'000; ++i) {
    node.anna->To(kBert).Send(Lane::kWork, FrameKind::kPushTask, Content(i, i % 300));
    if (i % 1000 == 999) node.bert->Poll(node.at_bert, true, 700);
  }
  while (node.at_anna.Count(kBert) < 5'000) {
    node.bert->Poll(node.at_bert, true);
    node.anna->Poll(node.at_anna, true);
  }
  for (int i = 0; i < 5'000; ++i) REQUIRE(node.at_anna.got[kBert][i].second == Content(i, i % 300));
}

SCENARIO("a handler may forget the peer whose frame it handles, and any other") {
  MailboxNode node;
  node.Connect();
  auto cora = node.MakeMailbox(kCoraBell);
  UniqueFd pair = node.MakePair();
  REQUIRE(node.bert->AddRing(kCora, pair.get(), true, kCoraBell).ok());
  REQUIRE(cora->AddRing(kBert, pair.get(), false, kBertBell).ok());
  for (int i = 0; i < 3; ++i) {
    node.anna->To(kBert).Send(Lane::kWork, FrameKind::kPushTask, "from anna");
    cora->To(kBert).Send(Lane::kWork, FrameKind::kPushTask, "from cora");
  }
  std::string seen;
  node.at_bert.then = [&](ProcessId from, const Frame& frame) {
    node.bert->To(kAnna).Send(Lane::kControl, FrameKind::kTaskReply, "into a batch");
    node.bert->To(kCora).Send(Lane::kControl, FrameKind::kTaskReply, std::string(300'000, 'q'));
    node.bert->Forget(kCora);
    node.bert->Forget(from);
    node.bert->Forget(from);
    seen = std::string(frame.body);  // Still valid.
    node.bert->To(from);             // A new contact, to a peer of the same name.
  };
  CHECK(node.bert->Poll(node.at_bert, true) == 1);
  CHECK(seen == "from anna");
  CHECK_FALSE(node.bert->HasRing(kAnna));
  CHECK_FALSE(node.bert->HasQueued());
  CHECK(node.bert->Poll(node.at_bert, true) == 0);
  CHECK(node.contacts == std::vector<ProcessId>{kAnna});
}

SCENARIO("a peer that is refused while contact is made takes frames nowhere") {
  MailboxNode node;
  Mailbox* made = nullptr;
  Mailbox mailbox(node.bells(), kCoraBell, [&](ProcessId peer) { made->Forget(peer); });
  made = &mailbox;
  Channel& channel = mailbox.To(kBert);
  channel.Send(Lane::kWork, FrameKind::kPushTask, "x");
  CHECK(channel.queued_bytes() == 0);
  CHECK_FALSE(mailbox.HasQueued());
}

SCENARIO("what a dead peer published is still drained, its unfinished frame is not") {
  MailboxNode node;
  UniqueFd pair = node.MakePair();
  REQUIRE(node.bert->AddRing(kAnna, pair.get(), false, kAnnaBell).ok());
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    Mailbox anna(node.bells(), kAnnaBell, nullptr);
    if (!anna.AddRing(kBert, pair.get(), true, kBertBell).ok()) _exit(1);
    for (int i = 0; i < 100; ++i)
      anna.To(kBert).Send(Lane::kWork, FrameKind::kPushTask, std::to_string(i));
    anna.To(kBert).Send(Lane::kControl, FrameKind::kTaskReply, "reply");
    anna.To(kBert).Send(Lane::kWork, FrameKind::kPushTask,
                        std::string(1 << 20, 'x'));  // Does not fit.
    kill(getpid(), SIGKILL);
  }
  REQUIRE(waitpid(child, nullptr, 0) == child);
  node.bert->Poll(node.at_bert, false);
  node.bert->Drain(kAnna, node.at_bert);
  REQUIRE(node.at_bert.Count(kAnna) == 101);
  CHECK(node.at_bert.got[kAnna][0].second == "reply");
  for (int i = 0; i < 100; ++i) CHECK(node.at_bert.got[kAnna][i + 1].second == std::to_string(i));
  CHECK(node.at_bert.malformed.empty());
  node.bert->Drain(kAnna, node.at_bert);
  CHECK(node.at_bert.Count(kAnna) == 101);
  node.bert->Forget(kAnna);
  CHECK_FALSE(node.bert->HasRing(kAnna));
}

SCENARIO("a handler may drain the very peer whose frame it looks at") {
  MailboxNode node;
  node.Connect();
  for (int i = 0; i < 5; ++i) {
    node.anna->To(kBert).Send(Lane::kWork, FrameKind::kPushTask, "work" + std::to_string(i));
  }
  node.anna->To(kBert).Send(Lane::kControl, FrameKind::kProcessDied, "died");
  std::string after;
  node.at_bert.then = [&](ProcessId from, const Frame& frame) {
    if (frame.kind != FrameKind::kProcessDied) return;
    node.bert->Drain(from, node.at_bert);
    after = std::string(frame.body);
  };
  CHECK(node.bert->Poll(node.at_bert, false) == 1);
  CHECK(node.at_bert.Count(kAnna) == 6);
  CHECK(after == "died");
}

SCENARIO("a malformed peer is reported once, and the others go on") {
  MailboxNode node;
  node.Connect();
  auto cora = node.MakeMailbox(kCoraBell);
  UniqueFd pair = node.MakePair();
  REQUIRE(node.bert->AddRing(kCora, pair.get(), true, kCoraBell).ok());
  REQUIRE(cora->AddRing(kBert, pair.get(), false, kBertBell).ok());
  Mapping scribbler = Mapping::Map(pair.get(), 0, kRingPairBytes, Access::kReadWrite).value();
  SECTION("a cursor") { reinterpret_cast<RingControl*>(scribbler.data())[2].tail.store(12345); }
  SECTION("a piece of one kind that continues a frame of another") {
    RingEnds ends = OpenRingPair(scribbler.data(), false);
    ends.work_out.Reserve(FrameKind::kPushTask, 8, true);
    ends.work_out.Reserve(FrameKind::kTaskReply, 8, false);
    ends.work_out.Publish();
  }
  SECTION("a frame that never ends") {
    RingEnds ends = OpenRingPair(scribbler.data(), false);
    while (node.at_bert.malformed.empty()) {
      while (ends.work_out.Reserve(FrameKind::kPushTask, kMaxRecordBody, true) != nullptr) {
      }
      ends.work_out.Publish();
      node.bert->Poll(node.at_bert, true);
    }
  }
  node.anna->To(kBert).Send(Lane::kWork, FrameKind::kPushTask, "x");
  for (int i = 0; i < 3; ++i) node.bert->Poll(node.at_bert, true);
  node.bert->Drain(kCora, node.at_bert);
  CHECK(node.at_bert.malformed == std::vector<ProcessId>{kCora});
  CHECK(node.at_bert.Count(kCora) == 0);
  CHECK(node.at_bert.Count(kAnna) == 1);
  CHECK_FALSE(node.bert->Pending(true));
}

SCENARIO("random scribbles over a ring pair crash neither end") {
  const uint64_t seed = GENERATE(range(1, 60));
  CAPTURE(seed);
  SeededRandom random(seed);
  MailboxNode node;
  UniqueFd pair = node.MakePair();
  REQUIRE(node.anna->AddRing(kBert, pair.get(), true, kBertBell).ok());
  REQUIRE(node.bert->AddRing(kAnna, pair.get(), false, kAnnaBell).ok());
  Mapping scribbler = Mapping::Map(pair.get(), 0, kRingPairBytes, Access::kReadWrite).value();
  auto* words = reinterpret_cast<std::atomic<uint64_t>*>(scribbler.data());
  node.at_bert.then = [&](ProcessId from, const Frame& frame) {
    node.at_bert.got.clear();
    if (random.OneIn(3))
      node.bert->To(from).Send(Lane::kControl, FrameKind::kTaskReply, frame.body);
  };
  for (int step = 0; step < 300; ++step) {
    node.anna->To(kBert).Send(random.OneIn(2) ? Lane::kWork : Lane::kControl, FrameKind::kPushTask,
                              std::string(random.Below(100'000) >> random.Below(17), 'x'));
    if (random.OneIn(4)) {  // A control word, or a word of data near the start of a ring.
      const uint64_t at = random.OneIn(2) ? random.Below(4 * sizeof(RingControl) / 8)
                                          : (kRingDataOffset + random.Below(4) * kRingBytes) / 8 +
                                                random.Below(512);
      words[at].store((random.Next() >> random.Below(64)) & ~(random.OneIn(2) ? 7u : 0u));
    }
    if (random.OneIn(2)) node.bert->Poll(node.at_bert, random.OneIn(2), random.Below(20));
    if (random.OneIn(2)) node.anna->Poll(node.at_anna, true);
    if (random.OneIn(50)) {
      node.anna->Forget(kBert);
      node.bert->Forget(kAnna);
      UniqueFd fresh = node.MakePair();
      REQUIRE(node.anna->AddRing(kBert, fresh.get(), true, kBertBell).ok());
      REQUIRE(node.bert->AddRing(kAnna, fresh.get(), false, kAnnaBell).ok());
      scribbler = Mapping::Map(fresh.get(), 0, kRingPairBytes, Access::kReadWrite).value();
      words = reinterpret_cast<std::atomic<uint64_t>*>(scribbler.data());
    }
  }
  SUCCEED();
}

}  // namespace sheaf
