// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Blocks that are damaged on their way, each of which is found to be, or that nobody wants; and what
// becomes of their connection.
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <catch2/catch.hpp>
#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/crc32c.h"
#include "base/testing/wait_until_for_test.h"
#include "rpc/blocks/block_fetcher.h"
#include "rpc/blocks/block_wire.h"
#include "rpc/blocks/connection_threads.h"
#include "rpc/links_node_for_test.h"
#include "rpc/proxy_for_test.h"

namespace sheaf {
namespace damaged_blocks_test {

void Say(const UniqueFd& fd, std::string_view bytes) {
  REQUIRE(send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
          static_cast<ssize_t>(bytes.size()));
}

std::string Hear(const UniqueFd& fd, size_t size) {
  std::string bytes(size, '\0');
  REQUIRE(recv(fd.get(), bytes.data(), size, MSG_WAITALL) == static_cast<ssize_t>(size));
  return bytes;
}

// What becomes of each block: its bytes are copied, or kept first, or not looked at.
enum class Use { kCopy, kKeep, kNone };

// A fetcher, and the other ends of its connections in the test's hand. A question is asked over each;
// the first is the test's, so that the next question comes over it too when there can be no more.
class Asked {
 public:
  explicit Asked(Use use, size_t connections = 1) : use_(use) {
    sockaddr_in address = LoopbackAddress(0);
    socklen_t size = sizeof address;
    const UniqueFd listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    REQUIRE(bind(listener.get(), reinterpret_cast<sockaddr*>(&address), size) == 0);
    REQUIRE(listen(listener.get(), 8) == 0);
    getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &size);
    BlockFetcher::Options options;
    options.address = absl::StrCat("127.0.0.1:", ntohs(address.sin_port));
    fetcher_ = std::make_shared<BlockFetcher>(std::move(options), threads_);
    for (size_t i = 0; i < connections; ++i) Ask();
    for (size_t i = 0; i < connections; ++i) {
      const UniqueFd& fd =
          fds_.emplace_back(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
      const timeval patience{kTestPatience / kSecond, 0};
      setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
      Greeting greeting;
      const std::string hello = Hear(fd, kBlockMagic.size() + sizeof greeting);
      std::memcpy(&greeting, hello.data() + kBlockMagic.size(), sizeof greeting);
      Say(fd, AsView(ProofOfAnswerer(key_, 1, true, greeting.nonce)));
    }
  }
  Asked(const Asked&) = delete;
  Asked& operator=(const Asked&) = delete;
  ~Asked() {
    fetcher_->Close("the test is over");
    threads_.AwaitAll();
  }

  void Ask() {
    BlockFetcher::Question question;
    question.request = "please";
    question.ticket = MakeTicket(key_, 1, ++number_, question.request);
    question.key = key_;
    question.peer_dialled_link = true;
    question.deadline = MonotonicNow() + kTestPatience;
    question.done = [this](absl::StatusOr<std::unique_ptr<ReceivedBlock>> block) {
      absl::Status outcome = block.status();
      if (block.ok() && use_ == Use::kKeep) outcome = (*block)->Keep();
      std::string bytes(block.ok() ? (*block)->size() : 0, '\0');
      if (outcome.ok() && use_ != Use::kNone)
        outcome = (*block)->CopyTo({bytes.data(), bytes.size()});
      const std::lock_guard lock(mutex_);
      outcomes_.push_back(outcome);
      bytes_ = bytes;
    };
    REQUIRE(fetcher_->Ask(question));
  }
  const UniqueFd& fd() const { return fds_.front(); }
  // The answer to the oldest question.
  void Answer(std::string_view bytes, BlockCrc crc) {
    BeginAnswer(bytes.size());
    Say(fd(), std::string(bytes).append(BytesOf(crc)));
  }
  void BeginAnswer(uint64_t size) {
    Hear(fd(), sizeof(QuestionHeader) + 6);
    const AnswerHeader header{.code = 0, .text_bytes = 4, .bytes = size};
    Say(fd(), std::string(BytesOf(header)) + "head");
  }
  absl::Status Outcome(size_t which) {
    REQUIRE(WaitUntil(kTestPatience, [&] {
      const std::lock_guard lock(mutex_);
      return outcomes_.size() > which;
    }));
    const std::lock_guard lock(mutex_);
    return outcomes_[which];
  }
  std::string bytes() {
    const std::lock_guard lock(mutex_);
    return bytes_;
  }

 private:
  const Use use_;
  const Digest key_ = SecretBytes();
  uint64_t number_ = 0;
  ConnectionThreads threads_;
  std::shared_ptr<BlockFetcher> fetcher_;
  std::vector<UniqueFd> fds_;
  std::mutex mutex_;
  std::vector<absl::Status> outcomes_;
  std::string bytes_;
};

TEST_CASE("a block whose bytes were changed is refused") {
  Asked asked(GENERATE(Use::kCopy, Use::kKeep));
  const std::string sent(3'000'000, 's');
  std::string changed = sent;
  SECTION("nowhere, and it comes") {
    asked.Answer(sent, Crc32c(sent));
    CHECK(asked.Outcome(0).ToString() == "OK");
    CHECK(asked.bytes() == sent);
    return;
  }
  SECTION("at its beginning") { changed.front() = 'c'; }
  SECTION("in the middle") { changed[changed.size() / 2] ^= 1; }
  SECTION("at its end") { changed.back() = 'c'; }
  asked.Answer(changed, Crc32c(sent));
  CHECK(absl::IsDataLoss(asked.Outcome(0)));
}

TEST_CASE("a connection goes on after a damaged block, and after a short one that nobody wants") {
  const Use use = GENERATE(Use::kCopy, Use::kKeep, Use::kNone);
  Asked asked(use, BlockFetcher::kConnections);
  const std::string sent(300'000, 's');
  for (size_t i = 0; i < 3; ++i) {
    const bool damaged = i != 1;
    asked.Answer(sent, Crc32c(sent) + (damaged ? 1 : 0));
    const absl::Status outcome = asked.Outcome(i);
    CHECK(absl::IsDataLoss(outcome) == (damaged && use != Use::kNone));
    if (!damaged && use != Use::kNone) CHECK(asked.bytes() == sent);
    asked.Ask();
  }
  Hear(asked.fd(), sizeof(QuestionHeader) + 6);
}

TEST_CASE("a connection over which a block comes slowly that nobody wants is given up") {
  Asked asked(Use::kNone, BlockFetcher::kConnections);
  const std::string piece(64 * 1024, 'p');
  const size_t all = (4 << 20) / piece.size();
  asked.BeginAnswer(4 << 20);
  size_t said = 0;
  for (bool stands = true; stands && said < all; ++said) {
    stands = send(asked.fd().get(), piece.data(), piece.size(), MSG_NOSIGNAL) > 0;
    pollfd ends{asked.fd().get(), POLLIN, 0};  // Whoever closes it is heard.
    if (poll(&ends, 1, /*milliseconds=*/100) > 0) stands = false;
  }
  CHECK(said < all / 2);
}

}  // namespace damaged_blocks_test
}  // namespace sheaf
