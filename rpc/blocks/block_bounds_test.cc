// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What one peer may take of who serves blocks, and what a question suffers from others.
#include <netinet/in.h>
#include <sys/socket.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/testing/wait_until_for_test.h"
#include "rpc/blocks/block_fetcher.h"
#include "rpc/blocks/block_service.h"
#include "rpc/blocks/block_wire.h"
#include "rpc/blocks/connection_threads.h"
#include "rpc/links_node_for_test.h"
#include "rpc/proxy_for_test.h"

namespace sheaf {
namespace block_bounds_test {

constexpr ProcessId kOne{1, 0}, kTwo{2, 0};

// A service whose askers all prove to be kOne.
class Serving {
 public:
  explicit Serving(std::string block, Nanos silence_limit = kTestPatience)
      : service_(OptionsFor(std::move(block), silence_limit), threads_) {
    sockaddr_in address = LoopbackAddress(0);
    socklen_t size = sizeof address;
    REQUIRE(bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), size) == 0);
    REQUIRE(listen(listener_.get(), 8) == 0);
    getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
  }
  ~Serving() {
    service_.Stop();
    threads_.AwaitAll();
  }
  // Greeted. So many bytes lie between the ends at most, or what the system likes.
  UniqueFd Connect(int between = 0) {
    UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const timeval patience{kTestPatience / kSecond, 0};
    setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    if (between != 0) setsockopt(fd.get(), SOL_SOCKET, SO_RCVBUF, &between, sizeof between);
    const sockaddr_in address = LoopbackAddress(port_);
    REQUIRE(connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
    UniqueFd accepted(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (between != 0) setsockopt(accepted.get(), SOL_SOCKET, SO_SNDBUF, &between, sizeof between);
    service_.Accept(std::move(accepted), "127.0.0.1:1");
    const std::string hello = std::string(kBlockMagic) + std::string(BytesOf(Greeting{1, {}}));
    send(fd.get(), hello.data(), hello.size(), MSG_NOSIGNAL);
    Digest proof{};
    REQUIRE(recv(fd.get(), proof.data(), proof.size(), MSG_WAITALL) == sizeof proof);
    return fd;
  }
  static void Ask(int fd) {
    QuestionHeader question;
    question.ticket.request_hash = Sha256("");
    const std::string_view bytes = BytesOf(question);
    send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }
  // Of the answer's header; nothing came: -1.
  static int Code(int fd) {
    AnswerHeader answer;
    const ssize_t got = recv(fd, &answer, sizeof answer, MSG_WAITALL);
    return got == sizeof answer ? static_cast<int>(answer.code) : -1;
  }

 private:
  static BlockService::Options OptionsFor(std::string block, Nanos silence_limit) {
    BlockService::Options options;
    options.idle_limit = kTestPatience;
    options.silence_limit = silence_limit;
    options.tls = [] { return std::shared_ptr<const TlsContext>(); };
    options.prove = [](uint64_t, const Digest&) { return std::optional<Digest>(Digest{}); };
    options.check = [](const FetchTicket&) { return absl::StatusOr<ProcessId>(kOne); };
    const auto bytes = std::make_shared<std::string>(std::move(block));
    options.on_fetch = [bytes](ProcessId, std::string, LinksOptions::Respond respond) {
      respond(Block{"", {bytes->data(), bytes->size()}, bytes});
    };
    options.on_proven = [](const std::string&) {};
    options.on_refused = [] {};
    options.on_bytes = [](uint64_t) {};
    return options;
  }

  const UniqueFd listener_{socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  uint16_t port_ = 0;
  ConnectionThreads threads_;
  BlockService service_;
};

TEST_CASE("one peer has so many connections, and when it closes one it may have another") {
  Serving serving("");
  std::vector<UniqueFd> held;
  for (size_t i = 0; i < BlockService::kMostOfOnePeer; ++i) {
    held.push_back(serving.Connect());
    Serving::Ask(held.back().get());
    REQUIRE(Serving::Code(held.back().get()) == 0);
  }
  const UniqueFd one_more = serving.Connect();
  Serving::Ask(one_more.get());
  CHECK(Serving::Code(one_more.get()) == static_cast<int>(absl::StatusCode::kUnavailable));
  Serving::Ask(held.front().get());  // The others go on.
  CHECK(Serving::Code(held.front().get()) == 0);
  held.pop_back();
  CHECK(WaitUntil(kTestPatience, [&] {
    const UniqueFd instead = serving.Connect();
    Serving::Ask(instead.get());
    return Serving::Code(instead.get()) == 0;
  }));
}

// Takes the block's bytes, so many each 20 ms; how many came until it ended.
size_t TakeSlowly(int fd, size_t all, size_t at_a_time) {
  std::string bytes(at_a_time, '\0');
  size_t taken = 0;
  while (taken < all) {
    const ssize_t got = recv(fd, bytes.data(), std::min(at_a_time, all - taken), 0);
    if (got <= 0) break;
    taken += static_cast<size_t>(got);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // A slow link.
  }
  return taken;
}

TEST_CASE("an answer goes on for as long as it moves, however slow the link is") {
  constexpr size_t kBlock = 2'500'000;
  constexpr int kBetween = 32 * 1024;
  Serving serving(std::string(kBlock, 'b'), /*silence_limit=*/kSecond);
  {
    const UniqueFd fd = serving.Connect(kBetween);
    Serving::Ask(fd.get());
    REQUIRE(Serving::Code(fd.get()) == 0);
    CHECK(TakeSlowly(fd.get(), kBlock, 8 * 1024) == kBlock);  // A MiB takes more than two seconds.
  }
  const UniqueFd fd = serving.Connect(kBetween);
  Serving::Ask(fd.get());
  REQUIRE(Serving::Code(fd.get()) == 0);
  CHECK(TakeSlowly(fd.get(), kBlock, 512) <
        kBlock);  // Some bytes come all the time, but not enough.
}

TEST_CASE("a question that nobody answers takes none with it that was asked together with it") {
  std::mutex mutex;
  std::vector<LinksOptions::Respond> held, never;
  LinksOptions options = TestLinksOptions();
  options.silence_limit = 60 * kSecond;
  options.on_fetch = [&](ProcessId, std::string request, LinksOptions::Respond respond) {
    if (request == "quick") return respond(Block{"quick", {}, nullptr});
    const std::lock_guard lock(mutex);
    (request == "held" ? held : never).push_back(std::move(respond));
  };
  TestNode one({kOne}), two({kTwo}, options);
  one.links().SetAddress(kTwo, two.address());
  one.Send(kTwo, "hello");
  REQUIRE(two.AwaitFrames(1));
  std::map<std::string, std::vector<absl::Status>> ends;
  const auto ask = [&](const std::string& request, Nanos timeout) {
    one.links().Fetch(kOne, kTwo, request, timeout, [&, request](auto block) {
      const std::lock_guard lock(mutex);
      ends[request].push_back(block.status());
    });
  };
  for (size_t i = 0; i < BlockFetcher::kConnections; ++i) ask("held", 3 * kTestPatience);
  REQUIRE(WaitUntil(kTestPatience, [&] {
    const std::lock_guard lock(mutex);
    return held.size() == BlockFetcher::kConnections;
  }));
  ask("never", kSecond);
  for (int i = 0; i < 3; ++i) ask("quick", kTestPatience);
  {
    const std::lock_guard lock(mutex);
    held.back()(Block{"", {}, nullptr});  // Over its connection all four go together.
  }
  CHECK(WaitUntil(kTestPatience, [&] {
    const std::lock_guard lock(mutex);
    return ends["quick"].size() == 3 && ends["never"].size() == 1;
  }));
  {
    const std::lock_guard lock(mutex);
    CHECK(ends["never"][0].code() == absl::StatusCode::kDeadlineExceeded);
    for (const absl::Status& end : ends["quick"]) CHECK(end.ToString() == "OK");
    for (const auto& respond : held) respond(Block{"", {}, nullptr});
  }
  CHECK(WaitUntil(kTestPatience, [&] {
    const std::lock_guard lock(mutex);
    return ends["held"].size() == BlockFetcher::kConnections;
  }));
}

// Asks of one node by another; what became of each question, by its request.
class Asking {
 public:
  explicit Asking(Links& links) : links_(links) {}
  void Ask(const std::string& request, Nanos timeout) {
    links_.Fetch(kOne, kTwo, request, timeout, [this, request](auto block) {
      absl::Status end = block.status();
      if (block.ok()) end = (*block)->Keep();
      const std::lock_guard lock(mutex_);
      ends_[request].push_back(end);
    });
  }
  std::vector<absl::Status> Await(const std::string& request, size_t count) {
    REQUIRE(WaitUntil(kTestPatience, [&] {
      const std::lock_guard lock(mutex_);
      return ends_[request].size() >= count;
    }));
    const std::lock_guard lock(mutex_);
    return ends_[request];
  }
  bool IsOpen(const std::string& request) {
    const std::lock_guard lock(mutex_);
    return ends_[request].empty();
  }

 private:
  Links& links_;
  std::mutex mutex_;
  std::map<std::string, std::vector<absl::Status>> ends_;
};

TEST_CASE("a question that waits behind a refused one has its time for an answer") {
  std::mutex mutex;
  std::map<std::string, std::vector<LinksOptions::Respond>> asked;
  LinksOptions options = TestLinksOptions();
  options.silence_limit = 60 * kSecond;
  options.on_fetch = [&](ProcessId, const std::string& request, LinksOptions::Respond respond) {
    const std::lock_guard lock(mutex);
    asked[request].push_back(std::move(respond));
  };
  const auto await = [&](const std::string& request, size_t count) {
    REQUIRE(WaitUntil(kTestPatience, [&] {
      const std::lock_guard lock(mutex);
      return asked[request].size() == count;
    }));
  };
  TestNode one({kOne}), two({kTwo}, options);
  one.links().SetAddress(kTwo, two.address());
  one.Send(kTwo, "hello");
  REQUIRE(two.AwaitFrames(1));
  Asking asking(one.links());
  for (size_t i = 0; i < BlockFetcher::kConnections; ++i) asking.Ask("first", 3 * kTestPatience);
  await("first", BlockFetcher::kConnections);
  const Nanos until = MonotonicNow() + 2 * kSecond;
  asking.Ask("refused", 3 * kTestPatience);
  asking.Ask("behind", 2 * kSecond);
  {
    const std::lock_guard lock(mutex);
    asked["first"].back()(Block{"", {}, nullptr});  // Over its connection both go.
  }
  await("refused", 1);
  await("behind", 1);
  REQUIRE(WaitUntil(kTestPatience, [&] { return MonotonicNow() > until; }));
  const std::lock_guard lock(mutex);
  asked["refused"].front()(absl::NotFoundError("none"));
  CHECK(absl::IsNotFound(asking.Await("refused", 1).front()));
  CHECK_FALSE(
      WaitUntil(kSecond, [&] { return !asking.IsOpen("behind"); }));  // It may take a while.
  asked["behind"].front()(Block{"", {}, nullptr});
  CHECK(asking.Await("behind", 1).front().ToString() == "OK");
  for (const auto& respond : asked["first"]) respond(Block{"", {}, nullptr});
  asking.Await("first", BlockFetcher::kConnections);
}

TEST_CASE("who waits for a connection waits as long as connections move") {
  LinksOptions options = TestLinksOptions();
  options.silence_limit = 60 * kSecond;
  std::atomic<size_t> heard{0};
  options.on_fetch = [&](ProcessId, const std::string& request, LinksOptions::Respond respond) {
    ++heard;
    auto bytes = std::make_shared<std::string>(std::stoul(request), 'b');
    respond(Block{"", {bytes->data(), bytes->size()}, bytes});
  };
  TestNode one({kOne}), two({kTwo}, options);
  Proxy proxy(two.address());
  one.links().SetAddress(kTwo, proxy.address());
  one.Send(kTwo, "hello");
  REQUIRE(two.AwaitFrames(1));
  proxy.Throttle(500'000);
  Asking asking(one.links());
  for (size_t i = 0; i < BlockFetcher::kConnections; ++i)
    asking.Ask("2000000", kTestPatience);  // For some 4 s.
  REQUIRE(WaitUntil(kTestPatience, [&] { return heard == BlockFetcher::kConnections; }));
  asking.Ask("5", kSecond);
  CHECK(asking.Await("5", 1).front().ToString() == "OK");
  for (const absl::Status& end : asking.Await("2000000", BlockFetcher::kConnections))
    CHECK(end.ToString() == "OK");
  proxy.Throttle(0);
}

TEST_CASE("what was asked at an address that a peer no longer has ends with the peer, too") {
  TestNode one({kOne}), two({kTwo});
  one.links().SetAddress(kTwo, two.address());
  one.Send(kTwo, "hello");
  REQUIRE(two.AwaitFrames(1));
  // Its queue is full, so that it does not answer.
  const UniqueFd nobody(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = LoopbackAddress(0);
  socklen_t size = sizeof address;
  REQUIRE(bind(nobody.get(), reinterpret_cast<sockaddr*>(&address), size) == 0);
  REQUIRE(listen(nobody.get(), 0) == 0);
  getsockname(nobody.get(), reinterpret_cast<sockaddr*>(&address), &size);
  const UniqueFd first = ConnectTo(ntohs(address.sin_port));
  one.links().SetAddress(kTwo, absl::StrCat("127.0.0.1:", ntohs(address.sin_port)));
  std::atomic<int> ended{0};
  one.links().Fetch(kOne, kTwo, "x", 10 * kTestPatience,
                    [&](auto block) { ended = absl::IsUnavailable(block.status()) ? 1 : 2; });
  one.links().SetAddress(kTwo, two.address());
  CHECK(one.Fetch(kTwo, "y").status().code() != absl::StatusCode::kDeadlineExceeded);
  CHECK(ended == 0);
  one.links().Forget(kTwo);
  REQUIRE(WaitUntil(kTestPatience, [&] { return ended != 0; }));
  CHECK(ended == 1);
}

}  // namespace block_bounds_test
}  // namespace sheaf
