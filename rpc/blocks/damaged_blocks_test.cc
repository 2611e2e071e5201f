// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Blocks that are damaged on their way: each is found to be.
#include <netinet/in.h>
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
namespace {

void Say(const UniqueFd& fd, std::string_view bytes) {
  REQUIRE(send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
          static_cast<ssize_t>(bytes.size()));
}

std::string Hear(const UniqueFd& fd, size_t size) {
  std::string bytes(size, '\0');
  REQUIRE(recv(fd.get(), bytes.data(), size, MSG_WAITALL) == static_cast<ssize_t>(size));
  return bytes;
}

// A fetcher, and the other end of its one connection in the test's hand.
class Asked {
 public:
  explicit Asked(bool keep) : keep_(keep) {
    sockaddr_in address = LoopbackAddress(0);
    socklen_t size = sizeof address;
    const UniqueFd listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    REQUIRE(bind(listener.get(), reinterpret_cast<sockaddr*>(&address), size) == 0);
    REQUIRE(listen(listener.get(), 1) == 0);
    getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &size);
    BlockFetcher::Options options;
    options.address = absl::StrCat("127.0.0.1:", ntohs(address.sin_port));
    fetcher_ = std::make_shared<BlockFetcher>(std::move(options), threads_);
    Ask();
    fd_ = UniqueFd(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    const timeval patience{kTestPatience / kSecond, 0};
    setsockopt(fd_.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    Greeting greeting;
    const std::string hello = Hear(fd_, kBlockMagic.size() + sizeof greeting);
    std::memcpy(&greeting, hello.data() + kBlockMagic.size(), sizeof greeting);
    Say(fd_, AsView(ProofOfAnswerer(key_, 1, true, greeting.nonce)));
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
      if (block.ok() && keep_) outcome = (*block)->Keep();
      std::string bytes(block.ok() ? (*block)->size() : 0, '\0');
      if (outcome.ok()) outcome = (*block)->CopyTo({bytes.data(), bytes.size()});
      const std::lock_guard lock(mutex_);
      outcomes_.push_back(outcome);
      bytes_ = bytes;
    };
    REQUIRE(fetcher_->Ask(question));
  }
  // The answer to the oldest question.
  void Answer(std::string_view bytes, BlockCrc crc) {
    Hear(fd_, sizeof(QuestionHeader) + 6);
    const AnswerHeader header{.code = 0, .text_bytes = 4, .bytes = bytes.size()};
    std::string all(BytesOf(header));
    all.append("head").append(bytes).append(BytesOf(crc));
    Say(fd_, all);
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
  const bool keep_;  // Before the bytes are copied.
  const Digest key_ = SecretBytes();
  uint64_t number_ = 0;
  ConnectionThreads threads_;
  std::shared_ptr<BlockFetcher> fetcher_;
  UniqueFd fd_;
  std::mutex mutex_;
  std::vector<absl::Status> outcomes_;
  std::string bytes_;
};

TEST_CASE("a block whose bytes were changed is refused") {
  Asked asked(/*keep=*/GENERATE(false, true));
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

}  // namespace
}  // namespace sheaf
