// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "worker/new_rings.h"

#include <catch2/catch.hpp>
#include <deque>

namespace sheaf {
namespace new_rings_test {

constexpr ProcessId kOne{1, 5}, kTwo{1, 6}, kThree{1, 7};

struct Socket {
  NewRings rings;
  std::deque<absl::StatusOr<NewRingPair>> messages;
  std::vector<uint64_t> added;
  absl::Status adds;

  void Send(ProcessId peer, uint64_t ring) {
    messages.push_back(NewRingPair{peer, ring, true, 0, {}});
  }
  std::vector<ProcessId> Match(Nanos now) {
    auto lost = rings.Match(
        now,
        [&]() -> absl::StatusOr<NewRingPair> {
          if (messages.empty()) return absl::DeadlineExceededError("nothing");
          auto message = std::move(messages.front());
          messages.pop_front();
          return message;
        },
        [&](NewRingPair pair) {
          added.push_back(pair.ring);
          return adds;
        });
    REQUIRE(lost.ok());
    return *lost;
  }
};

TEST_CASE("a ring is there when its frame and its descriptor have come") {
  Socket socket;
  SECTION("the descriptor first, as is usual") {
    socket.Send(kOne, 1);
    socket.rings.Announce(kOne, 1, 0);
    CHECK(socket.Match(0).empty());
  }
  SECTION("the frame first") {
    socket.rings.Announce(kOne, 1, 0);
    CHECK(socket.Match(0).empty());
    CHECK(socket.added.empty());
    CHECK(socket.rings.awaits_some());
    socket.Send(kOne, 1);
    CHECK(socket.Match(kSecond).empty());
  }
  CHECK(socket.added == std::vector<uint64_t>{1});
  CHECK_FALSE(socket.rings.awaits_some());
  CHECK(socket.Match(60 * kSecond).empty());
}

TEST_CASE("a descriptor that is lost is missed by its own ring alone") {
  Socket socket;
  socket.messages.push_back(absl::ResourceExhaustedError("too many open files"));
  socket.Send(kTwo, 2);
  socket.rings.Announce(kOne, 1, 0);
  CHECK(socket.Match(0).empty());
  socket.rings.Announce(kTwo, 2, 0);  // Its descriptor was taken before.
  CHECK(socket.Match(0).empty());
  CHECK(socket.added == std::vector<uint64_t>{2});
  socket.Send(kThree, 3);
  socket.rings.Announce(kThree, 3, kSecond);
  CHECK(socket.Match(kSecond).empty());
  CHECK(socket.added == std::vector<uint64_t>{2, 3});
  CHECK(socket.Match(NewRings::kPatience) == std::vector{kOne});  // And it is said.
  CHECK_FALSE(socket.rings.awaits_some());
}

TEST_CASE("a ring that cannot be mapped is said at once; one that is there already is no loss") {
  Socket socket;
  socket.Send(kOne, 1);
  socket.rings.Announce(kOne, 1, 0);
  SECTION("no memory") {
    socket.adds = absl::ResourceExhaustedError("mmap");
    CHECK(socket.Match(0) == std::vector{kOne});
  }
  SECTION("a second one") {
    socket.adds = absl::AlreadyExistsError("a ring");
    CHECK(socket.Match(0).empty());
  }
}

TEST_CASE("the end of the raylet is not taken for a loss") {
  NewRings rings;
  rings.Announce(kOne, 1, 0);
  const auto lost = rings.Match(
      0, [] { return absl::StatusOr<NewRingPair>(absl::UnavailableError("closed")); },
      [](NewRingPair) { return absl::OkStatus(); });
  CHECK(absl::IsUnavailable(lost.status()));
}

}  // namespace new_rings_test
}  // namespace sheaf
