// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Links over a network that cuts, swallows and delays, and between processes that come and go.
#include <algorithm>
#include <atomic>
#include <thread>

#include "base/testing/wait_until_for_test.h"
#include "rpc/links_node_for_test.h"
#include "rpc/proxy_for_test.h"

namespace sheaf {
namespace links_faults_test {

constexpr ProcessId kOne{1, 0}, kTwo{2, 0};

// For tests that cut connections, on a machine that may be busy: silence is not their subject.
LinksOptions Patient() {
  LinksOptions options = TestLinksOptions();
  options.silence_limit = 20 * kSecond;
  return options;
}

// 10 Mbit/s; sockets hold some MB, which is seconds of that.
TEST_CASE("what is sent ahead does not wait behind megabytes for a slow link") {
  LinksOptions options = TestLinksOptions();
  options.ping_period = kSecond;  // As in a cluster: the buffers of sockets are full for a while.
  options.silence_limit = 5 * kSecond;
  TestNode gcs({kTwo}, options);
  Proxy proxy(gcs.address());
  proxy.Throttle(1'250'000);
  TestNode node({kOne}, options);
  node.links().SetAddress(kTwo, proxy.address());
  node.Send(kTwo, "hello");
  REQUIRE(gcs.AwaitFrames(1));
  const std::string bulk(6 << 20, 'b');
  node.Send(kTwo, bulk);
  Nanos worst = 0;
  uint64_t beats = 0;
  const auto arrived = [&](std::string_view body) {
    return [&gcs, body = std::string(body)] {
      const auto all = gcs.arrived();
      return std::any_of(all.begin(), all.end(),
                         [&](const TestNode::Arrived& each) { return each.body == body; });
    };
  };
  // Beside the bulk, which takes five seconds, beats come each within a part of one.
  while (!arrived(bulk)()) {
    const std::string beat = absl::StrCat("beat ", ++beats);
    const Nanos sent = MonotonicNow();
    node.links().SendAhead(kOne, kTwo, {kOne, kTwo, Lane::kControl, FrameKind::kGcsRequest, beat});
    REQUIRE(WaitUntil(kTestPatience, arrived(beat)));
    worst = std::max(worst, MonotonicNow() - sent);
    CHECK(MonotonicNow() - gcs.links().last_frame(kOne) < 2 * kSecond);  // It counts as life.
  }
  INFO("the slowest of " << beats << " took " << worst << " ns");
  CHECK(beats >= 3);
  CHECK(worst < 3 * kSecond);
}

TEST_CASE("100,000 frames arrive once and in order, while the connection is cut again and again") {
  TestNode two({kTwo}, Patient());
  Proxy proxy(two.address());
  TestNode one({kOne}, Patient());
  two.CheckNumbers();
  one.CheckNumbers();
  one.links().SetAddress(kTwo, proxy.address());
  constexpr uint64_t kFrames = 100'000, kPart = 4'000;
  std::thread back([&] {
    two.AwaitLink(kOne, true);
    for (uint64_t sent = 0; sent < kFrames / 10; sent += 100) two.SendNumbers(kOne, sent, 100, 4);
  });
  for (uint64_t sent = 0; sent < kFrames; sent += kPart) {
    one.SendNumbers(kTwo, sent, kPart, 16);
    REQUIRE(two.AwaitFrames(sent + kPart / 4));
    REQUIRE(one.AwaitLink(kTwo, true));
    proxy.Cut();  // Somewhere in the rest.
  }
  back.join();
  CHECK(two.AwaitFrames(kFrames));
  CHECK(one.AwaitFrames(kFrames / 10));
  CHECK(two.frames() == kFrames);
  CHECK(two.wrong() == 0);
  CHECK(one.wrong() == 0);
  CHECK(one.links().figures().reconnects > 10);
  CHECK(one.links().figures().resent_messages > 0);
}

TEST_CASE("a connection that swallows everything is given up after the limit, and replaced") {
  TestNode two({kTwo});
  Proxy proxy(two.address());
  TestNode one({kOne});
  one.links().SetAddress(kTwo, proxy.address());
  one.Send(kTwo, "before");
  REQUIRE(two.AwaitFrames(1));
  const bool idle = GENERATE(true, false);
  const auto hole = GENERATE(Proxy::Hole::kBoth, Proxy::Hole::kFromDialler);
  proxy.Swallow(hole);
  const Nanos begin = MonotonicNow();
  if (!idle) one.Send(kTwo, "into the hole");
  REQUIRE(one.AwaitLink(kTwo, false));
  CHECK(MonotonicNow() - begin >= 300 * kMillisecond);
  CHECK(MonotonicNow() - begin < 6 * kSecond);
  CHECK(two.AwaitLink(kOne, false));
  proxy.Swallow(Proxy::Hole::kNone);
  proxy.Cut();
  if (idle) one.Send(kTwo, "after");
  CHECK(two.AwaitFrames(2));
  CHECK(one.AwaitLink(kTwo, true));
}

TEST_CASE("delay is not death") {
  TestNode two({kTwo});
  Proxy proxy(two.address());
  TestNode one({kOne});
  proxy.Delay(60 * kMillisecond);
  one.links().SetAddress(kTwo, proxy.address());
  two.CheckNumbers();
  one.SendNumbers(kTwo, 0, 2'000, 10);
  REQUIRE(two.AwaitFrames(2'000));
  CHECK(two.wrong() == 0);
}

TEST_CASE("a restarted end gets what the old one never took; its peer is told") {
  auto two = std::make_unique<TestNode>(std::vector{kGcs});
  const std::string address = two->address();
  TestNode one({kOne});
  one.links().SetAddress(kGcs, address);
  one.Send(kGcs, "to the first");
  REQUIRE(two->AwaitFrames(1));
  // Until it is acknowledged the second would get it too.
  const Nanos deadline = MonotonicNow() + kTestPatience;
  while (one.links().queued_bytes(kGcs) > 0 && MonotonicNow() < deadline) {
    one.Await([] { return false; }, 5 * kMillisecond);
  }
  two.reset();
  REQUIRE(one.AwaitLink(kGcs, false));
  one.Send(kGcs, "to the second");
  LinksOptions options = TestLinksOptions();
  options.listen_address = address;
  TestNode second({kGcs}, options);
  REQUIRE(second.AwaitFrames(1));
  CHECK(second.arrived().back().body == "to the second");
  REQUIRE(one.AwaitLink(kGcs, true));
  second.Send(kOne, "hello again");
  REQUIRE(one.AwaitFrames(1));
}

TEST_CASE("an end that cannot be dialled is reached over the link that it keeps up") {
  LinksOptions only_dials = TestLinksOptions();
  only_dials.listen_address = "";
  TestNode inside({kTwo}, only_dials);
  CHECK(inside.address().empty());
  TestNode outside({kOne});
  Proxy proxy(outside.address());
  inside.links().SetAddress(kOne, proxy.address());
  inside.Send(kOne, "hello");
  REQUIRE(outside.AwaitFrames(1));
  outside.Send(kTwo, "one");
  REQUIRE(inside.AwaitFrames(1));
  proxy.Cut();
  REQUIRE(outside.AwaitLink(kTwo, false));
  outside.Send(kTwo, "two");  // Nothing makes the inner end dial but the lost connection.
  REQUIRE(inside.AwaitFrames(2));

  for (const size_t size : {size_t{0}, size_t{10}, size_t{60'000}}) {
    const std::string request(size, 'q');
    auto block = outside.Fetch(kTwo, request);
    REQUIRE(block.status().ToString() == "OK");
    CHECK((*block)->head() == "for 1.0");
    REQUIRE((*block)->size() == 2 * size);
    std::string bytes(2 * size, '\0');
    REQUIRE((*block)->CopyTo({bytes.data(), bytes.size()}).ok());
    CHECK(bytes == request + request);
  }
  proxy.Swallow(Proxy::Hole::kBoth);
  const absl::StatusCode code = outside.Fetch(kTwo, "x", 300 * kMillisecond).status().code();
  CHECK((code == absl::StatusCode::kDeadlineExceeded || code == absl::StatusCode::kUnavailable));
}

TEST_CASE("blocks of an end that cannot be dialled may take as long as they move") {
  LinksOptions options = TestLinksOptions();
  options.silence_limit = 20 * kSecond;
  TestNode outside({kOne}, options);
  options.listen_address = "";
  options.on_fetch = [](ProcessId, const std::string& request, LinksOptions::Respond respond) {
    auto bytes = std::make_shared<std::string>(std::stoul(request), 'b');
    respond(Block{"", {bytes->data(), bytes->size()}, bytes});
  };
  TestNode inside({kTwo}, options);
  Proxy proxy(outside.address());
  inside.links().SetAddress(kOne, proxy.address());
  inside.Send(kOne, "hello");
  REQUIRE(outside.AwaitFrames(1));
  CHECK(outside.links().last_block(kTwo) == 0);
  proxy.Throttle(250'000);
  const Nanos begin = MonotonicNow();
  // One in many parts, or many in turns, of which the last waits for longer than 5 s.
  const auto [count, bytes] = GENERATE(std::pair{1, 900'000}, std::pair{40, 55'000});
  std::vector<absl::Status> ends(count);
  std::vector<std::thread> threads;
  for (absl::Status& end : ends) {
    threads.emplace_back(
        [&, bytes] { end = outside.Fetch(kTwo, std::to_string(bytes), 3 * kSecond).status(); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const absl::Status& end : ends) CHECK(end.ToString() == "OK");
  CHECK(MonotonicNow() - begin > 2 * kSecond);
  CHECK(outside.links().last_block(kTwo) > begin);
  proxy.Throttle(0);
}

TEST_CASE("a block that never comes ends, though others of an end that cannot be dialled come") {
  TestNode outside({kOne});
  LinksOptions options = TestLinksOptions();
  options.listen_address = "";
  LinksOptions::Respond kept;
  options.on_fetch = [&](ProcessId, const std::string& request, LinksOptions::Respond respond) {
    if (request == "keep") {
      kept = std::move(respond);
      return;
    }
    auto bytes = std::make_shared<std::string>(100'000, 'b');
    respond(Block{"", {bytes->data(), bytes->size()}, bytes});
  };
  TestNode inside({kTwo}, options);
  inside.links().SetAddress(kOne, outside.address());
  inside.Send(kOne, "hello");
  REQUIRE(outside.AwaitFrames(1));
  std::atomic<bool> ended{false};
  absl::Status why;
  std::thread waiter([&] {
    why = outside.Fetch(kTwo, "keep", 100 * kMillisecond).status();
    ended = true;
  });
  const Nanos begin = MonotonicNow();
  while (!ended && MonotonicNow() - begin < 20 * kSecond) {
    CHECK(outside.Fetch(kTwo, "x").ok());
    WaitUntil(50 * kMillisecond, [&] { return ended.load(); });
  }
  CHECK(ended);
  inside.links().Stop();
  waiter.join();
  CHECK(why.code() == absl::StatusCode::kDeadlineExceeded);
  kept = nullptr;
}

TEST_CASE("of two connections dialled at once one stays") {
  for (int round = 0; round < 20; ++round) {
    TestNode one({kOne}), two({kTwo});
    one.CheckNumbers();
    two.CheckNumbers();
    one.links().SetAddress(kTwo, two.address());
    two.links().SetAddress(kOne, one.address());
    std::thread other([&] { two.SendNumbers(kOne, 0, 100, 7); });
    one.SendNumbers(kTwo, 0, 100, 7);
    other.join();
    REQUIRE(one.AwaitFrames(100));
    REQUIRE(two.AwaitFrames(100));
    CHECK(one.wrong() + two.wrong() == 0);
    one.SendNumbers(kTwo, 100, 100, 7);
    two.SendNumbers(kOne, 100, 100, 7);
    REQUIRE(one.AwaitFrames(200));
    REQUIRE(two.AwaitFrames(200));
    CHECK(one.wrong() + two.wrong() == 0);
  }
}

TEST_CASE("a forgotten peer is not spoken to, and not let in again") {
  TestNode one({kOne}), two({kTwo});
  one.links().SetAddress(kTwo, two.address());
  two.links().SetAddress(kOne, one.address());
  one.Send(kTwo, "hello");
  REQUIRE(two.AwaitFrames(1));
  one.links().Forget(kTwo);
  REQUIRE(two.AwaitLink(kOne, false));
  two.Send(kOne, "am I dead?");
  REQUIRE(two.AwaitReason(absl::StatusCode::kPermissionDenied));
  one.Send(kTwo, "nowhere");
  CHECK(one.links().queued_bytes(kTwo) == 0);
  CHECK(one.frames() == 0);
  CHECK(one.Fetch(kTwo, "x").status().code() == absl::StatusCode::kUnavailable);
}

TEST_CASE("who has no address any more is not dialled, and let in when it dials") {
  TestNode one({kOne});
  auto two = std::make_unique<TestNode>(std::vector{kTwo});
  Proxy proxy(two->address());
  one.links().SetAddress(kTwo, proxy.address());
  one.Send(kTwo, "hello");
  REQUIRE(two->AwaitFrames(1));
  two.reset();
  const int before = proxy.dials();
  REQUIRE(WaitUntil(kTestPatience, [&] { return proxy.dials() > before; }));  // It is kept up.
  one.links().SetAddress(kTwo, "");
  one.Send(kTwo, "are you there?");
  const int then = proxy.dials() + 1;  // One may have been on its way.
  CHECK_FALSE(WaitUntil(2 * kSecond, [&] { return proxy.dials() > then; }));
  two = std::make_unique<TestNode>(std::vector{kTwo});
  two->links().SetAddress(kOne, one.address());
  two->Send(kOne, "I am back");
  REQUIRE(one.AwaitFrames(1));
  REQUIRE(two->AwaitFrames(1));
}

TEST_CASE("frames for a peer without an address wait for one") {
  TestNode one({kOne}), two({kTwo});
  one.Send(kTwo, "early");
  CHECK(one.links().queued_bytes(kTwo) > 0);
  one.links().SetAddress(kTwo, "127.0.0.1:1");  // Nobody is there.
  REQUIRE(one.AwaitReason(absl::StatusCode::kUnavailable));
  one.links().SetAddress(kTwo, two.address());
  REQUIRE(two.AwaitFrames(1));
}

TEST_CASE("a fetch ends, whatever happens to the other end") {
  LinksOptions silent = TestLinksOptions();
  std::vector<LinksOptions::Respond> kept;
  std::mutex mutex;
  silent.on_fetch = [&](ProcessId, const std::string& request, LinksOptions::Respond respond) {
    if (request == "drop") return;
    if (request == "refuse") return respond(absl::NotFoundError("no such block"));
    std::lock_guard lock(mutex);
    kept.push_back(std::move(respond));
  };
  auto two = std::make_unique<TestNode>(std::vector{kTwo}, silent);
  TestNode one({kOne});
  SECTION("nobody knows where it is") {
    CHECK(one.Fetch(kTwo, "x", 50 * kMillisecond).status().code() ==
          absl::StatusCode::kDeadlineExceeded);
  }
  one.links().SetAddress(kTwo, two->address());
  SECTION("it has nothing") {
    const absl::Status status = one.Fetch(kTwo, "refuse").status();
    CHECK(status.code() == absl::StatusCode::kNotFound);
    CHECK(status.message() == "no such block");
  }
  SECTION("it drops the request") {
    CHECK(one.Fetch(kTwo, "drop").status().code() == absl::StatusCode::kCancelled);
  }
  SECTION("it never answers") {
    CHECK(one.Fetch(kTwo, "keep", 200 * kMillisecond).status().code() ==
          absl::StatusCode::kDeadlineExceeded);
  }
  SECTION("it stops") {
    one.Send(kTwo, "hello");
    REQUIRE(two->AwaitFrames(1));
    std::thread stopper([&] {
      two->Await(
          [&] {
            std::lock_guard lock(mutex);
            return !kept.empty();
          },
          200 * kMillisecond);
      two->links().Stop();
    });
    CHECK_FALSE(one.Fetch(kTwo, "keep").ok());
    stopper.join();
  }
  SECTION("this end stops") {
    one.Send(kTwo, "hello");
    REQUIRE(two->AwaitFrames(1));
    std::thread stopper([&] {
      one.Await([] { return false; }, 100 * kMillisecond);
      one.links().Stop();
    });
    CHECK_FALSE(one.Fetch(kTwo, "keep").ok());
    stopper.join();
  }
  std::lock_guard lock(mutex);
  kept.clear();
}

}  // namespace links_faults_test
}  // namespace sheaf
