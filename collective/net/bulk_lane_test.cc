// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Lanes over socket pairs: this rank is 0; what it says to and hears from ranks 1 and 2 is seen at
// the other ends.
#include "collective/net/bulk_lane.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <string>
#include <thread>

namespace sheaf {
namespace {

using Outcome = BulkLane::Outcome;
using Until = BulkLane::Until;
constexpr auto kLane = BulkSockets::Lane::kCollective;

const std::byte* Bytes(const std::string& text) {
  return reinterpret_cast<const std::byte*>(text.data());
}
std::byte* Bytes(std::string& text) { return reinterpret_cast<std::byte*>(text.data()); }

class Rig {
 public:
  explicit Rig(bool spins = true) : sockets(3, spins) {
    for (int peer = 1; peer < 3; ++peer) {
      int pair[2];
      REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) == 0);
      sockets.Add(peer, kLane, UniqueFd(pair[0]));
      ends[peer].Reset(pair[1]);
    }
  }
  void Say(int peer, const std::string& text) {
    REQUIRE(write(ends[peer].get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()));
  }
  std::string Heard(int peer) {
    char bytes[1000];
    const ssize_t size = read(ends[peer].get(), bytes, sizeof bytes);
    return size > 0 ? std::string(bytes, static_cast<size_t>(size)) : "";
  }
  BulkLane::Result Await(BulkLane& lane, const BulkBatch& batch, Until until,
                         Nanos timeout = 20 * kSecond) {
    return lane.Await(
        batch, until, MonotonicNow() + timeout, [] { return false; }, [](int) { return false; });
  }

  BulkSockets sockets;
  UniqueFd ends[3];
};

TEST_CASE("transfers of a lane take what comes in the order in which they were begun", "[bulk]") {
  Rig rig(GENERATE(true, false));
  BulkLane lane(rig.sockets, kLane);
  BulkBatch first, second;
  std::string a(3, '.'), b(4, '.'), c(2, '.');
  lane.Receive(1, Bytes(a), 3, first);
  lane.Receive(1, Bytes(b), 4, second);
  lane.Receive(2, Bytes(c), 2, first);
  lane.Send(2, Bytes(std::string("to two")), 0, first);  // Nothing: done before it began.
  CHECK(first.sends == 0);
  rig.Say(1, "abcd");
  rig.Say(2, "xy");
  CHECK(rig.Await(lane, first, Until::kAll).outcome == Outcome::kDone);
  CHECK(a == "abc");
  CHECK(c == "xy");
  CHECK(second.receives == 1);
  rig.Say(1, "efg and what is not asked for");
  CHECK(rig.Await(lane, second, Until::kAll).outcome == Outcome::kDone);
  CHECK(b == "defg");
}

TEST_CASE("what is sent leaves while something else is awaited", "[bulk]") {
  Rig rig;
  BulkLane lane(rig.sockets, kLane);
  BulkBatch out, in;
  const std::string large(size_t{8} << 20, 'l');  // More than a connection holds.
  std::string answer(6, '.');
  lane.Send(1, Bytes(large), large.size(), out);
  lane.Receive(2, Bytes(answer), answer.size(), in);
  // Says the word that is awaited when all of the large array has come.
  std::string heard;
  std::thread other([&] {
    while (heard.size() < large.size()) {
      const std::string more = rig.Heard(1);
      more.empty() ? std::this_thread::yield() : static_cast<void>(heard += more);
    }
    rig.Say(2, "so far");
  });
  const BulkLane::Result result = rig.Await(lane, in, Until::kReceived);
  other.join();
  CHECK(result.outcome == Outcome::kDone);
  CHECK(answer == "so far");
  CHECK(out.sends == 0);
  CHECK(heard == large);
}

TEST_CASE("a connection that ends is told with its rank", "[bulk]") {
  Rig rig(GENERATE(true, false));
  BulkLane lane(rig.sockets, kLane);
  BulkBatch batch;
  std::string one(4, '.'), two(4, '.');
  lane.Receive(1, Bytes(one), 4, batch);
  lane.Receive(2, Bytes(two), 4, batch);
  rig.Say(2, "tw");
  rig.ends[2].Reset();
  const BulkLane::Result result = rig.Await(lane, batch, Until::kReceived);
  CHECK(result.outcome == Outcome::kBroken);
  CHECK(result.peer == 2);
  // Given up, the lane touches the arrays no more.
  lane.Abandon();
  rig.Say(1, "late");
  lane.Move();
  CHECK(one == "....");
}

TEST_CASE("bytes that do not come are told with the rank that owes them", "[bulk]") {
  Rig rig(GENERATE(true, false));
  BulkLane lane(rig.sockets, kLane);
  BulkBatch batch;
  std::string one(4, '.'), two(4, '.');
  lane.Receive(1, Bytes(one), 4, batch);
  lane.Receive(2, Bytes(two), 4, batch);
  rig.Say(1, "here");
  const BulkLane::Result result = rig.Await(lane, batch, Until::kReceived, 10 * kMillisecond);
  CHECK(result.outcome == Outcome::kLate);
  CHECK(result.peer == 2);
  CHECK(one == "here");
}

TEST_CASE("a wait ends when it is stopped, and when another thread breaks the connections",
          "[bulk]") {
  Rig rig(GENERATE(true, false));
  BulkLane lane(rig.sockets, kLane);
  BulkBatch batch;
  std::string one(4, '.');
  lane.Receive(1, Bytes(one), 4, batch);
  int asked = 0;
  CHECK(lane.Await(
                batch, Until::kReceived, MonotonicNow() + 20 * kSecond,
                [&] { return ++asked == 2; }, [](int) { return false; })
            .outcome == Outcome::kStopped);
  std::thread other([&] { rig.sockets.Break(); });
  CHECK(rig.Await(lane, batch, Until::kReceived).outcome == Outcome::kBroken);
  other.join();
  CHECK(rig.Await(lane, batch, Until::kReceived).outcome == Outcome::kBroken);
}

TEST_CASE("a wait ends when it is stopped while bytes come slowly", "[bulk]") {
  Rig rig(GENERATE(true, false));
  BulkLane lane(rig.sockets, kLane);
  BulkBatch batch;
  std::string long_one(10'000, '.');
  lane.Receive(1, Bytes(long_one), long_one.size(), batch);
  std::atomic<bool> over{false};
  std::thread other([&] {
    for (int i = 0; i < 1000 && !over.load(); ++i) {
      if (write(rig.ends[1].get(), "x", 1) != 1) break;
      poll(nullptr, 0, 5);  // What is tested: a byte each few milliseconds.
    }
    rig.ends[1].Reset();
  });
  const BulkLane::Result result = lane.Await(
      batch, Until::kAll, MonotonicNow() + 20 * kSecond, [] { return true; },
      [](int) { return false; });
  over.store(true);
  other.join();
  CHECK(result.outcome == Outcome::kStopped);
}

TEST_CASE("a rank that is known to be gone is waited for only while its bytes come", "[bulk]") {
  Rig rig(GENERATE(true, false));
  BulkLane lane(rig.sockets, kLane);
  BulkBatch batch;
  std::string one(4, '.'), two(4, '.');
  lane.Receive(1, Bytes(one), 4, batch);
  lane.Receive(2, Bytes(two), 4, batch);
  rig.Say(2, "all.");
  const BulkLane::Result result = lane.Await(
      batch, Until::kAll, MonotonicNow() + 20 * kSecond, [] { return false; },
      [](int peer) { return peer == 1; });
  CHECK(result.outcome == Outcome::kBroken);
  CHECK(result.peer == 1);
  CHECK(two == "all.");
}

}  // namespace
}  // namespace sheaf
