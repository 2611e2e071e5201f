// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Bells that are put off while others that were woken still look.
#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <vector>

#include "base/fake_clock.h"
#include "shm/mailbox_node_for_test.h"

namespace sheaf {
namespace {

// Anna with receivers that sleep, of whom one at a time may look.
struct Sleepers : MailboxNode {
  explicit Sleepers(uint32_t count) {
    anna->PutBellsOff(clock, 1);
    for (uint32_t i = 0; i < count; ++i) {
      peers.push_back(MakeMailbox(10 + i));
      UniqueFd pair = MakePair();
      REQUIRE(anna->AddRing(Name(i), pair.get(), true, 10 + i).ok());
      REQUIRE(peers[i]->AddRing(kAnna, pair.get(), false, kAnnaBell).ok());
      Sleep(i);
    }
  }
  static ProcessId Name(uint32_t i) { return {1, 100 + i}; }
  void Send(uint32_t i, Lane lane = Lane::kWork) {
    anna->To(Name(i)).Send(lane, FrameKind::kPushTask, std::to_string(sent++));
  }
  void Sleep(uint32_t i) { SetBell(peers[i]->bell(), BellState::kAsleep); }
  // Which of them were woken, in order.
  std::string Awake() {
    std::string awake;
    for (const auto& peer : peers)
      awake += peer->bell().state == static_cast<uint32_t>(BellState::kAwake) ? '1' : '0';
    return awake;
  }

  FakeClock clock;
  std::vector<std::unique_ptr<Mailbox>> peers;
  int sent = 0;
};

}  // namespace

SCENARIO("while one that was woken looks, the bells of others are put off") {
  Sleepers test(3);
  test.Send(0);
  CHECK_FALSE(test.anna->HasPutOff());
  test.Send(1);
  test.Send(2);
  test.Send(1);
  CHECK(test.Awake() == "100");
  CHECK(test.anna->HasPutOff());
  CHECK(test.anna->counts().wakes == 1);

  WHEN("it sleeps again") {
    test.Sleep(0);
    THEN("sends ring the next, and each receiver finds all that was sent to it") {
      for (int i = 0; i < 16; ++i) test.Send(2);
      CHECK(test.Awake() == "010");
      FrameKeeper keeper;
      CHECK(test.peers[1]->Poll(keeper, true) == 2);
      CHECK(keeper.got[kAnna][0].second == "1");
      CHECK(keeper.got[kAnna][1].second == "3");
      SetBell(test.peers[1]->bell(), BellState::kAway);  // It runs user code.
      for (int i = 0; i < 16; ++i) test.Send(2);
      CHECK(test.Awake() == "001");
      CHECK_FALSE(test.anna->HasPutOff());
      CHECK(test.peers[2]->Poll(keeper, true) == 33);
    }
  }
  WHEN("it looks for too long") {
    test.clock.Advance(RungBells::kLongestLook);
    for (int i = 0; i < 16; ++i) test.Send(1);
    CHECK(test.Awake() == "110");
  }
  WHEN("one of them has woken by itself") {
    FrameKeeper keeper;
    SetBell(test.peers[1]->bell(), BellState::kAwake);
    CHECK(test.peers[1]->Poll(keeper, true) == 2);
    test.Sleep(0);
    test.anna->RingPutOff();
    CHECK(test.Awake() == "011");
    CHECK(test.anna->counts().wakes == 2);
  }
  WHEN("something urgent comes for one of them") {
    test.Send(2, Lane::kControl);
    CHECK(test.Awake() == "101");
  }
  WHEN("one of them has gone") {
    test.anna->Forget(Sleepers::Name(1));
    test.Sleep(0);
    test.anna->RingPutOff();
    CHECK(test.Awake() == "001");
    CHECK_FALSE(test.anna->HasPutOff());
  }
  WHEN("all are to be rung") {
    test.anna->RingAllPutOff();
    CHECK(test.Awake() == "111");
    CHECK_FALSE(test.anna->HasPutOff());
  }
}

SCENARIO("a process that polls wakes some more, those first that have waited longest") {
  constexpr uint32_t kSome = Mailbox::kWaitingTimes;
  Sleepers test(kSome + 3);
  test.Send(0);
  for (uint32_t i = kSome + 2; i > 0; --i) test.Send(i);
  CHECK(test.Awake() == "1" + std::string(kSome + 2, '0'));
  test.anna->Poll(test.at_anna, true);
  CHECK(test.Awake() == "1000" + std::string(kSome - 1, '1'));
  test.anna->Poll(test.at_anna, true);
  CHECK(test.Awake() == "1000" + std::string(kSome - 1, '1'));
  test.Sleep(kSome + 2);
  test.anna->Poll(test.at_anna, true);
  CHECK(test.Awake() == "1001" + std::string(kSome - 2, '1') + "0");
  test.clock.Advance(RungBells::kLongestLook);
  test.anna->Poll(test.at_anna, true);
  CHECK(test.Awake() == "1111" + std::string(kSome - 2, '1') + "0");
}

SCENARIO(
    "a receiver whose bell is put off and that does not look at the ring is called with the bell") {
  Sleepers test(2);
  std::vector<std::unique_ptr<Mailbox>> others;
  for (uint32_t i = 0; i < Mailbox::kAlwaysWatched; ++i) {
    others.push_back(test.MakeMailbox(50 + i));
    UniqueFd pair = test.MakePair();
    REQUIRE(test.peers[1]->AddRing({1, 500 + i}, pair.get(), false, 50 + i).ok());
  }
  FrameKeeper keeper;
  for (uint32_t i = 0; i <= Mailbox::kQuietPolls + 1; ++i) test.peers[1]->Poll(keeper, true);
  REQUIRE(test.peers[1]->watched() == Mailbox::kAlwaysWatched);  // Anna, the first, is left out.
  test.Send(0);
  test.Send(1);
  CHECK_FALSE(test.peers[1]->Pending(true));
  test.anna->RingAllPutOff();
  CHECK(test.Awake() == "11");
  CHECK(test.peers[1]->Poll(keeper, true) == 1);
}

}  // namespace sheaf
