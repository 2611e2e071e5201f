// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Blocks from, and for, those who are slow: every wait has an end, and can be broken off.
#include <netinet/in.h>
#include <pthread.h>
#include <sys/socket.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <condition_variable>
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
#include "rpc/security/tls_directory_for_test.h"

namespace sheaf {
namespace slow_blocks_test {

constexpr ProcessId kOne{1, 0}, kTwo{2, 0};

LinksOptions GivingMuch(size_t size) {
  LinksOptions options = TestLinksOptions();
  options.silence_limit = 60 * kSecond;
  options.on_fetch = [size](ProcessId, std::string, LinksOptions::Respond respond) {
    auto bytes = std::make_shared<std::string>(size, 'b');
    respond(Block{"", {bytes->data(), bytes->size()}, bytes});
  };
  return options;
}

void Meet(TestNode& one, TestNode& two, const std::string& address) {
  one.links().SetAddress(kTwo, address);
  one.Send(kTwo, "hello");
  REQUIRE(two.AwaitFrames(1));
}

// What became of a fetch, which is answered on any thread.
struct Outcome {
  void Is(absl::Status status) {
    const std::lock_guard lock(mutex);
    outcome = std::move(status);
    is_known = true;
  }
  bool Await(Nanos patience) {
    return WaitUntil(patience, [this] {
      const std::lock_guard lock(mutex);
      return is_known;
    });
  }
  std::mutex mutex;
  bool is_known = false;
  absl::Status outcome;
};

TEST_CASE("a block that takes longer than its fetch may last comes, as long as it moves") {
  const TlsDirectory directory;
  LinksOptions options = GivingMuch(1 << 20);
  if (GENERATE(false, true)) {
    directory.Make("ours");
    options.credentials = directory.Load("ours");
  }
  TestNode one({kOne}, options), two({kTwo}, options);
  Proxy proxy(two.address());
  Meet(one, two, proxy.address());
  proxy.Throttle(300'000);
  const auto block = one.Fetch(kTwo, "x", kSecond);
  REQUIRE(block.status().ToString() == "OK");
  CHECK((*block)->size() == 1 << 20);
  proxy.Throttle(0);
}

TEST_CASE("a block of which hardly anything comes ends when its fetch may last no longer") {
  const TlsDirectory directory;
  LinksOptions options = GivingMuch(20 << 20);
  if (GENERATE(false, true)) {
    directory.Make("ours");
    options.credentials = directory.Load("ours");
  }
  TestNode one({kOne}, options), two({kTwo}, options);
  Proxy proxy(two.address());
  Meet(one, two, proxy.address());
  proxy.Throttle(5'000);  // Some bytes come all the time.
  const Nanos start = MonotonicNow();
  const absl::Status status = one.Fetch(kTwo, "x", 2 * kSecond).status();
  CHECK(status.code() == absl::StatusCode::kDeadlineExceeded);
  CHECK(MonotonicNow() - start < 15 * kSecond);  // All of it would take more than a minute.
  proxy.Throttle(0);
}

TEST_CASE("a stranger whose TLS trickles in has no more time than others") {
  const TlsDirectory directory;
  directory.Make("ours");
  LinksOptions options = TestLinksOptions();
  options.credentials = directory.Load("ours");
  TestNode two({kTwo}, options);
  const UniqueFd stranger = ConnectTo(PortOf(two.address()));
  const std::string hello = std::string(kBlockMagic) + std::string("\x16\x03\x01\x3f\x00", 5) +
                            std::string("\x01\x00\x3e\xfc", 4);
  REQUIRE(send(stranger.get(), hello.data(), hello.size(), MSG_NOSIGNAL) ==
          static_cast<ssize_t>(hello.size()));
  CHECK(WaitUntil(20 * kSecond, [&] {  // Its record would take some minutes.
    send(stranger.get(), "\x03", 1, MSG_NOSIGNAL);
    return two.links().figures().refused_handshakes == 1;
  }));
}

TEST_CASE("who waits for a connection to nobody stops when the peer is forgotten") {
  TestNode one({kOne}), two({kTwo});
  Meet(one, two, two.address());
  // Its queue is full, so that it does not answer.
  const UniqueFd nobody(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = LoopbackAddress(0);
  socklen_t size = sizeof address;
  REQUIRE(bind(nobody.get(), reinterpret_cast<sockaddr*>(&address), size) == 0);
  REQUIRE(listen(nobody.get(), 0) == 0);
  getsockname(nobody.get(), reinterpret_cast<sockaddr*>(&address), &size);
  const UniqueFd first = ConnectTo(ntohs(address.sin_port));
  one.links().SetAddress(kTwo, absl::StrCat("127.0.0.1:", ntohs(address.sin_port)));
  Outcome fetch;
  one.links().Fetch(kOne, kTwo, "x", 10 * kTestPatience,
                    [&](auto block) { fetch.Is(block.status()); });
  CHECK_FALSE(fetch.Await(300 * kMillisecond));
  one.links().Forget(kTwo);
  REQUIRE(fetch.Await(kTestPatience));
  CHECK(fetch.outcome.code() == absl::StatusCode::kUnavailable);
}

TEST_CASE("who waits for the bytes of a block can be interrupted") {
  TestNode one({kOne}), two({kTwo}, GivingMuch(64 << 20));
  Proxy proxy(two.address());
  Meet(one, two, proxy.address());
  proxy.Throttle(1'000'000);
  std::atomic<ReceivedBlock*> coming{nullptr};
  Outcome fetch;
  one.links().Fetch(kOne, kTwo, "x", 10 * kTestPatience, [&](auto block) {
    if (!block.ok()) return fetch.Is(block.status());
    std::vector<char> bytes((*block)->size());
    coming = block->get();
    fetch.Is((*block)->CopyTo({bytes.data(), bytes.size()}));
  });
  REQUIRE(WaitUntil(kTestPatience, [&] { return coming != nullptr; }));
  coming.load()->Interrupt();
  REQUIRE(fetch.Await(kTestPatience));
  CHECK(fetch.outcome.code() == absl::StatusCode::kUnavailable);
  proxy.Throttle(0);
}

// Sees to it that no thread can be started.
class NoThreads {
 public:
  NoThreads() {
    pthread_getattr_default_np(&before_);
    pthread_attr_t huge;
    pthread_attr_init(&huge);
    pthread_attr_setstacksize(&huge, size_t{1} << 46);
    REQUIRE(pthread_setattr_default_np(&huge) == 0);
    pthread_attr_destroy(&huge);
  }
  ~NoThreads() {
    pthread_setattr_default_np(&before_);
    pthread_attr_destroy(&before_);
  }

 private:
  pthread_attr_t before_;
};

TEST_CASE("questions that came together are put to the user together") {
  constexpr size_t kAll = BlockFetcher::kConnections + BlockService::kMostAhead;
  std::mutex mutex;
  std::vector<LinksOptions::Respond> asked;
  size_t heard = 0;
  LinksOptions options = TestLinksOptions();
  options.on_fetch = [&](ProcessId, const std::string&, LinksOptions::Respond respond) {
    const std::lock_guard lock(mutex);
    asked.push_back(std::move(respond));
    // The first ones keep all connections busy until the others wait for one.
    if (++heard != BlockFetcher::kConnections && heard != kAll) return;
    for (const LinksOptions::Respond& answer : asked) answer(Block{"head", {}, nullptr});
    asked.clear();
  };
  TestNode one({kOne}), two({kTwo}, std::move(options));
  Meet(one, two, two.address());
  std::atomic<size_t> answered = 0;
  for (size_t i = 0; i < kAll; ++i) {
    one.links().Fetch(kOne, kTwo, "x", kTestPatience, [&](auto block) {
      if (block.ok()) ++answered;
    });
  }
  CHECK(WaitUntil(kTestPatience, [&] { return answered == kAll; }));
}

TEST_CASE("where the machine gives no more threads connections are refused, and nobody dies") {
  TestNode one({kOne}), two({kTwo});
  Meet(one, two, two.address());
  {
    const NoThreads none;
    const absl::Status status = one.Fetch(kTwo, "x").status();
    CHECK(status.code() == absl::StatusCode::kUnavailable);
    const UniqueFd stranger = ConnectTo(PortOf(two.address()));
    send(stranger.get(), kBlockMagic.data(), kBlockMagic.size(), MSG_NOSIGNAL);
    char byte;
    CHECK(recv(stranger.get(), &byte, 1, 0) <= 0);
  }
  CHECK(one.Fetch(kTwo, "x").ok());
}

}  // namespace slow_blocks_test
}  // namespace sheaf
