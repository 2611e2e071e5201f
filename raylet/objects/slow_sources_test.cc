// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Objects that lie on several nodes, of which one gives its chunks slowly.
#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/testing/wait_until_for_test.h"
#include "raylet/objects/transfer_network_for_test.h"

namespace sheaf {
namespace slow_sources_test {

const ObjectId kObject = IdOf({1, 1}, 1);

struct Trickle {
  std::atomic<uint64_t> arrived{0};
  std::atomic<bool> begun{false}, interrupted{false}, let_go{false};
};

// A block of which hardly anything comes. When it is broken off other bytes are in its place.
class SlowBlock final : public ReceivedBlock {
 public:
  SlowBlock(std::string head, std::string bytes, Trickle& trickle)
      : head_(std::move(head)), bytes_(std::move(bytes)), trickle_(trickle) {}
  const std::string& head() const override { return head_; }
  uint64_t size() const override { return bytes_.size(); }
  absl::Status CopyTo(std::span<char> to) override {
    const absl::Status whole = Keep();
    whole.ok() ? std::memcpy(to.data(), bytes_.data(), to.size())
               : std::memset(to.data(), '?', to.size());
    return whole;
  }
  absl::Status Keep() override {
    trickle_.begun = true;
    WaitUntil(20 * kSecond, [this] { return trickle_.interrupted || trickle_.let_go; });
    return trickle_.let_go ? absl::OkStatus() : absl::UnavailableError("interrupted");
  }
  void Interrupt() override { trickle_.interrupted = true; }
  uint64_t arrived() const override { return trickle_.arrived; }

 private:
  const std::string head_, bytes_;
  Trickle& trickle_;
};

// An object on node 1, and a pull of it by node 2.
struct Slow {
  TransferNetwork network;
  TransferNode& one = network.Add(1);
  TransferNode& two = network.Add(2);
  const std::string bytes = Pattern(12 * kChunk + 5, 2);
  const ObjectLocation at = one.Put(kObject, bytes);
  std::vector<std::unique_ptr<Trickle>> trickles;
  std::vector<std::thread> threads;

  ~Slow() {
    for (const auto& trickle : trickles) trickle->let_go = true;
    for (std::thread& thread : threads) thread.join();
  }
  void Pull() { two.puller.Pull(kObject, at, bytes.size()); }
  // Node 3 has it, too, and node 2 knows.
  void PutOnThree() {
    network.Add(3).Put(kObject, bytes);
    two.puller.Pull(kObject, {.node = 3}, bytes.size());
  }
  // What node 1 was asked it begins to answer.
  size_t AnswerSlowly() {
    const size_t before = trickles.size();
    for (auto request = network.requests.begin(); request != network.requests.end();) {
      if (request->to != 1) {
        ++request;
        continue;
      }
      Trickle& trickle = *trickles.emplace_back(std::make_unique<Trickle>());
      one.server.OnFetch(2, request->body, [&](absl::StatusOr<Block> block) {
        auto slow = std::make_unique<SlowBlock>(
            block->head, std::string(block->bytes.data(), block->bytes.size()), trickle);
        threads.emplace_back(
            [done = request->done, slow = std::move(slow)]() mutable { done(std::move(slow)); });
      });
      CHECK(WaitUntil(20 * kSecond, [&] { return trickle.begun.load(); }));
      trickle.arrived = 1000;
      request = network.requests.erase(request);
    }
    return trickles.size() - before;
  }
  bool Interrupted() const {
    return std::all_of(trickles.begin(), trickles.end(),
                       [](const auto& trickle) { return trickle->interrupted.load(); });
  }
};

TEST_CASE(
    "chunks that come slowly are asked of another source, and what came of them is no matter") {
  Slow t;
  t.Pull();
  t.PutOnThree();
  REQUIRE(t.network.Step());
  t.two.store.Settle();
  REQUIRE(t.AnswerSlowly() > 0);
  t.network.Run(20 * kSecond);
  CHECK(t.Interrupted());
  REQUIRE(t.two.Outcome(kObject) == LookupOutcome::kFound);
  CHECK(t.two.Read(kObject) == t.bytes);
  CHECK(t.network.served.at(1) == 1);
  CHECK(t.two.puller.stats().bytes == t.bytes.size());
}

TEST_CASE("a chunk goes on coming slowly from a source beside which there is none that is faster") {
  Slow t;
  t.Pull();
  SECTION("there is none") {}
  SECTION("the other cannot be reached") {
    t.network.cut.insert({2, 3});
    t.PutOnThree();
  }
  SECTION("the other is dead") {
    t.PutOnThree();
    t.two.puller.NodeGone(3);
  }
  REQUIRE(t.network.Step());
  t.two.store.Settle();
  REQUIRE(t.AnswerSlowly() > 0);
  t.network.Run(100 * kSecond);
  CHECK(t.two.Outcome(kObject) == std::nullopt);
  for (const auto& trickle : t.trickles) trickle->let_go = true;
  for (std::thread& thread : std::exchange(t.threads, {})) thread.join();
  t.network.cut.clear();
  t.network.Run();
  REQUIRE(t.two.Outcome(kObject) == LookupOutcome::kFound);
  CHECK(t.two.Read(kObject) == t.bytes);
}

TEST_CASE("a chunk that is asked of another source in vain is asked of the slow one again") {
  Slow t;
  t.Pull();
  t.PutOnThree();
  REQUIRE(t.network.Step());
  t.two.store.Settle();
  REQUIRE(t.AnswerSlowly() > 0);
  CHECK(t.trickles.size() < 4);  // The others were asked of node 3.
  t.network.Run(kSecond);
  t.network.places.at(3)->store.server->Free(kObject);
  t.network.Run(20 * kSecond);
  CHECK(t.Interrupted());
  REQUIRE(t.two.Outcome(kObject) == LookupOutcome::kFound);
  CHECK(t.two.Read(kObject) == t.bytes);
  CHECK(t.network.served.at(1) > 1);
}

TEST_CASE("the first chunk may take as long as it moves") {
  Slow t;
  t.Pull();
  REQUIRE(t.AnswerSlowly() == 1);
  SECTION("and the pull goes on with it") {
    t.network.Run(100 * kSecond);
    CHECK(t.two.Outcome(kObject) == std::nullopt);
    CHECK_FALSE(t.Interrupted());
    t.trickles.front()->let_go = true;
    std::exchange(t.threads, {}).front().join();
    t.network.Run();
    REQUIRE(t.two.Outcome(kObject) == LookupOutcome::kFound);
    CHECK(t.two.Read(kObject) == t.bytes);
  }
  SECTION("but no longer than somebody wants the object") {
    t.two.puller.Cancel(kObject);
    CHECK(t.Interrupted());
    CHECK(t.two.Outcome(kObject) == LookupOutcome::kNotFound);
  }
  SECTION("and where another node has the object, that one is asked") {
    t.PutOnThree();
    t.network.Run(20 * kSecond);
    CHECK(t.Interrupted());
    REQUIRE(t.two.Outcome(kObject) == LookupOutcome::kFound);
    CHECK(t.two.Read(kObject) == t.bytes);
    CHECK(!t.network.served.contains(1));
  }
}

// Of a node that answers others.
struct InLine : Slow {
  Nanos Now() const { return network.NowOf(2); }
  void AnswersOthersFor(Nanos time) {
    for (Nanos passed = 0; passed < time; passed += 5 * kSecond) {
      network.last_answers[1] = Now() + 1;
      network.Run(5 * kSecond);
    }
  }
  void End(const absl::Status& why) {
    for (const auto& request : std::exchange(network.unanswered, {})) request.done(why);
  }
};

TEST_CASE("a pull lasts as long as its source answers others, who were before it in the line") {
  InLine t;
  t.Pull();
  if (GENERATE(false, true)) {
    REQUIRE(t.network.Step());
    t.two.store.Settle();
  }
  t.network.silent.insert(1);
  t.AnswersOthersFor(100 * kSecond);
  CHECK(t.two.Outcome(kObject) == std::nullopt);
  SECTION("and comes when its turn does") {
    t.network.silent.clear();
    t.network.requests = std::exchange(t.network.unanswered, {});
    t.network.Run();
    REQUIRE(t.two.Outcome(kObject) == LookupOutcome::kFound);
    CHECK(t.two.Read(kObject) == t.bytes);
  }
  SECTION("and no longer") {
    t.network.Run(32 * kSecond);
    CHECK(t.two.Outcome(kObject) == LookupOutcome::kNotFound);
  }
}

TEST_CASE("a pull that was in line has all of its time again when the link is lost") {
  InLine t;
  t.Pull();
  t.network.silent.insert(1);
  t.AnswersOthersFor(25 * kSecond);
  t.End(absl::UnavailableError("the link was lost"));
  t.network.Run(20 * kSecond);
  CHECK(t.two.Outcome(kObject) == std::nullopt);
  t.network.Run(15 * kSecond);
  CHECK(t.two.Outcome(kObject) == LookupOutcome::kNotFound);
}

TEST_CASE("a pull whose source answers others, and never this one, ends in time") {
  InLine t;
  t.Pull();
  t.network.silent.insert(1);
  const Nanos begin = t.Now();
  while (t.Now() < begin + 200 * kSecond && t.two.Outcome(kObject) == std::nullopt) {
    t.AnswersOthersFor(10 * kSecond);
    t.End(absl::DeadlineExceededError("no answer"));
  }
  CHECK(t.two.Outcome(kObject) == LookupOutcome::kNotFound);
  CHECK(t.Now() - begin > 50 * kSecond);
  CHECK(t.Now() - begin < 100 * kSecond);
}

TEST_CASE("a source of which the short end came is not thought to be slow") {
  Slow t;
  t.network.latency = 20 * kMillisecond;
  const ObjectId object = IdOf({1, 1}, 2);
  const std::string bytes = Pattern(2 * kChunk + 5, 4);
  t.two.puller.Pull(object, t.one.Put(object, bytes), bytes.size());
  t.network.Add(3).Put(object, bytes);
  t.two.puller.Pull(object, {.node = 3}, bytes.size());
  t.network.Run(20 * kMillisecond);  // The first chunk.
  REQUIRE(t.AnswerSlowly() == 1);
  for (int i = 0; i < 100 && !t.Interrupted(); ++i) {
    t.network.Run(90 * kMillisecond);
    t.trickles.front()->arrived += 100;
  }
  CHECK(t.network.served.at(3) >= 1);  // The end, before it was asked for more.
  CHECK(t.Interrupted());
  for (std::thread& thread : std::exchange(t.threads, {})) thread.join();
  t.network.Run();
  REQUIRE(t.two.Outcome(object) == LookupOutcome::kFound);
  CHECK(t.two.Read(object) == bytes);
}

}  // namespace slow_sources_test
}  // namespace sheaf
