// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Objects on their way between nodes, over a network that loses, cuts and damages.
#include <atomic>
#include <catch2/catch.hpp>
#include <set>
#include <string>
#include <thread>

#include "base/testing/wait_until_for_test.h"
#include "raylet/objects/transfer_network_for_test.h"

namespace sheaf {
namespace object_transfer_test {

const ObjectId kObject = IdOf({1, 1}, 1);

TEST_CASE("an object is brought from another node, whole and with the references inside it") {
  TransferNetwork network;
  TransferNode &one = network.Add(1), &two = network.Add(2);
  const size_t size = GENERATE(0, 1, 100, 65536, 65537, 1000000, 5000000);
  const std::string bytes = Pattern(size, 3);
  const std::vector<ObjectId> nested = {IdOf({1, 1}, 8), IdOf({1, 1}, 9)};
  const ObjectLocation at = one.Put(kObject, bytes, 4, nested);
  two.puller.Pull(kObject, at, size);
  network.Run();
  REQUIRE(two.Outcome(kObject) == LookupOutcome::kFound);
  CHECK(two.Read(kObject) == bytes);
  const auto location = two.store.Lookup(two.process, kObject);
  REQUIRE(location.ok());
  CHECK(location->node == 2);
  CHECK(location->attempt == 4);
  const auto copy = two.store.store(two.process).Get(kObject, *location);
  REQUIRE(copy.ok());
  CHECK(copy->flags == 5);
  CHECK(std::vector(copy->nested.begin(), copy->nested.end()) == nested);
  CHECK(two.store.server->Describe(kObject)->nested == nested);
  CHECK(two.puller.stats().failed_fetches == 0);
  CHECK(one.store.server->Stats().objects == 1);
}

TEST_CASE("an object that its writer has not announced is found by its place") {
  TransferNetwork network;
  TransferNode &one = network.Add(1), &two = network.Add(2);
  one.store.Settle();
  one.store.server->Tick();
  for (const ObjectId id : {kObject, IdOf({1, 1}, 77)}) {  // For the second not all slots are read.
    ObjectSpec spec;
    spec.id = id;
    const auto at = one.store.Put(one.process, id, "quiet", spec);  // No Flush.
    REQUIRE(at.ok());
    CHECK(at->generation == 0);  // Of a slot that is used for the first time.
    two.puller.Pull(id, *at, 5);
    network.Run();
    CHECK(two.Outcome(id) == LookupOutcome::kFound);
    CHECK(two.Read(id) == "quiet");
  }
}

TEST_CASE("many who ask for the same object share one pull") {
  TransferNetwork network;
  TransferNode &one = network.Add(1), &two = network.Add(2);
  const ObjectLocation at = one.Put(kObject, Pattern(10 * kChunk, 1));
  for (int i = 0; i < 50; ++i) two.puller.Pull(kObject, at, 10 * kChunk);
  network.Run();
  CHECK(two.Outcome(kObject) == LookupOutcome::kFound);
  CHECK(two.puller.stats().pulls == 1);
  CHECK(two.puller.stats().bytes == 10 * kChunk);
  CHECK(network.carried == 10);
}

TEST_CASE("what was lost, damaged or cut short is fetched again, and nothing else") {
  TransferNetwork network;
  TransferNode &one = network.Add(1), &two = network.Add(2);
  const std::string bytes = Pattern(40 * kChunk + 17, 2);
  const ObjectLocation at = one.Put(kObject, bytes);
  SECTION("lost answers") { network.lose_each_seventh = true; }
  SECTION("damaged bytes") { network.damage = 2; }
  SECTION("truncated bytes") { network.truncate = 2; }
  SECTION("bytes that stop coming, which says nothing of the object") {
    // More than the damaged answers after which a source is given up.
    network.interrupt = static_cast<int>(ObjectPullerOptions().most_damaged) + 2;
  }
  const bool interrupted = network.interrupt > 0;
  two.puller.Pull(kObject, at, bytes.size());
  network.Run();
  CHECK((!interrupted || two.puller.stats().damaged == 0));
  REQUIRE(two.Outcome(kObject) == LookupOutcome::kFound);
  CHECK(two.Read(kObject) == bytes);
  CHECK(two.puller.stats().bytes == bytes.size());
  CHECK(two.puller.stats().failed_fetches > 0);
}

TEST_CASE("a pull that is cut in the middle goes on where it was") {
  TransferNetwork network;
  TransferNode &one = network.Add(1), &two = network.Add(2);
  const std::string bytes = Pattern(40 * kChunk, 2);
  const ObjectLocation at = one.Put(kObject, bytes);
  two.puller.Pull(kObject, at, bytes.size());
  for (int i = 0; i < 20; ++i) network.Step();
  network.cut.insert({2, 1});
  network.Run(5 * kSecond);
  CHECK(two.Outcome(kObject) == std::nullopt);
  const uint64_t used = two.store.server->Stats().used_bytes;
  const uint64_t before = two.puller.stats().bytes;
  CHECK(before >= 15 * kChunk);
  network.cut.clear();
  network.Run();
  CHECK(two.Outcome(kObject) == LookupOutcome::kFound);
  CHECK(two.puller.stats().bytes == bytes.size());
  CHECK(two.store.server->Stats().used_bytes == used);  // No memory twice.
  CHECK(two.Read(kObject) == bytes);
}

TEST_CASE("a source that stays away ends the pull in time, and its room is free again") {
  TransferNetwork network;
  TransferNode &one = network.Add(1), &two = network.Add(2);
  const ObjectLocation at = one.Put(kObject, Pattern(40 * kChunk, 2));
  two.puller.Pull(kObject, at, 40 * kChunk);
  SECTION("from the beginning") {}
  SECTION("in the middle") {
    for (int i = 0; i < 10; ++i) network.Step();
  }
  network.cut.insert({2, 1});
  network.Run(29 * kSecond);
  CHECK(two.Outcome(kObject) == std::nullopt);
  network.Run(3 * kSecond);
  CHECK(two.Outcome(kObject) == LookupOutcome::kNotFound);
  CHECK(two.store.server->Stats().used_bytes == 0);
  CHECK(two.puller.stats().active_bytes == 0);
}

// A block of which nothing more comes, until somebody has interrupted it and lets it go.
class StuckBlock final : public ReceivedBlock {
 public:
  StuckBlock(std::string head, uint64_t size, std::atomic<int>& state)
      : head_(std::move(head)), size_(size), state_(state) {}
  const std::string& head() const override { return head_; }
  uint64_t size() const override { return size_; }
  absl::Status CopyTo(std::span<char>) override {
    state_ = kWriting;
    WaitUntil(20 * kSecond, [this] { return state_ == kLetGo; });
    return absl::UnavailableError("interrupted");
  }
  void Interrupt() override { state_ = kInterrupted; }

  enum : int { kWriting = 1, kInterrupted, kLetGo };

 private:
  const std::string head_;
  const uint64_t size_;
  std::atomic<int>& state_;
};

TEST_CASE("a write that is under way is broken off, and says nothing to who asks meanwhile") {
  TransferNetwork network;
  TransferNode &one = network.Add(1), &two = network.Add(2);
  const std::string bytes = Pattern(3 * kChunk, 2);
  const ObjectLocation at = one.Put(kObject, bytes);
  two.puller.Pull(kObject, at, bytes.size());
  REQUIRE(network.Step());
  two.store.Settle();
  REQUIRE(!network.requests.empty());
  const TransferNetwork::Request request = std::move(network.requests.front());
  network.requests.pop_front();
  std::string head;
  one.server.OnFetch(2, request.body, [&](absl::StatusOr<Block> block) { head = block->head; });
  std::atomic<int> state{0};
  std::thread writer([&] { request.done(std::make_unique<StuckBlock>(head, kChunk, state)); });
  CHECK(WaitUntil(20 * kSecond, [&] { return state == StuckBlock::kWriting; }));
  two.puller.Cancel(kObject);
  CHECK(state == StuckBlock::kInterrupted);
  CHECK(two.store.server->Stats().used_bytes > 0);  // Not given up under the writer's hands.
  two.puller.Pull(kObject, at, bytes.size());       // Somebody else.
  state = StuckBlock::kLetGo;
  writer.join();
  two.store.Settle();
  const std::vector<ObjectPuller::Finished> ended = two.puller.TakeFinished();
  REQUIRE(ended.size() == 1);
  CHECK(ended[0].outcome != LookupOutcome::kFound);
  CHECK(ended[0].stalled);  // So that it asks again.
  CHECK(two.store.server->Stats().used_bytes == 0);
  two.puller.Pull(kObject, at, bytes.size());
  network.Run();
  CHECK(two.Outcome(kObject) == LookupOutcome::kFound);
  CHECK(two.Read(kObject) == bytes);
}

TEST_CASE("a pull lasts as long as a chunk is being written, however slowly") {
  TransferNetwork network;
  TransferNode &one = network.Add(1), &two = network.Add(2);
  const std::string bytes = Pattern(3 * kChunk, 2);
  const ObjectLocation at = one.Put(kObject, bytes);
  two.puller.Pull(kObject, at, bytes.size());
  REQUIRE(network.Step());
  two.store.Settle();
  REQUIRE(!network.requests.empty());
  const TransferNetwork::Request request = std::move(network.requests.front());
  network.requests.pop_front();
  std::string head;
  one.server.OnFetch(2, request.body, [&](absl::StatusOr<Block> block) { head = block->head; });
  std::atomic<int> state{0};
  std::thread writer([&] { request.done(std::make_unique<StuckBlock>(head, kChunk, state)); });
  CHECK(WaitUntil(20 * kSecond, [&] { return state == StuckBlock::kWriting; }));
  network.Run(100 * kSecond);
  CHECK(two.Outcome(kObject) == std::nullopt);
  CHECK(state == StuckBlock::kWriting);
  state = StuckBlock::kLetGo;
  writer.join();
  network.Run();
  CHECK(two.Outcome(kObject) == LookupOutcome::kFound);
  CHECK(two.Read(kObject) == bytes);
}

TEST_CASE("a node that is dead is no source") {
  TransferNetwork network;
  TransferNode &one = network.Add(1), &two = network.Add(2), &three = network.Add(3);
  const std::string bytes = Pattern(40 * kChunk, 2);
  const ObjectLocation at = one.Put(kObject, bytes);
  two.puller.Pull(kObject, at, bytes.size());
  for (int i = 0; i < 10; ++i) network.Step();
  SECTION("and the last one ends the pull") {
    network.cut.insert({2, 1});
    two.puller.NodeGone(1);
    network.Run();
    CHECK(two.Outcome(kObject) == LookupOutcome::kNotFound);
    CHECK(two.store.server->Stats().used_bytes == 0);
  }
  SECTION("but another copy serves as well") {
    const ObjectLocation other = three.Put(kObject, bytes);
    network.cut.insert({2, 1});
    two.puller.NodeGone(1);
    two.puller.Pull(kObject, other, bytes.size());
    network.Run();
    CHECK(two.Outcome(kObject) == LookupOutcome::kFound);
    CHECK(two.Read(kObject) == bytes);
    CHECK(two.puller.stats().bytes == bytes.size());
  }
}

TEST_CASE("attempts do not mix") {
  TransferNetwork network;
  TransferNode &one = network.Add(1), &two = network.Add(2);
  const std::string first = Pattern(20 * kChunk, 1), second = Pattern(20 * kChunk, 2);
  ObjectLocation at = one.Put(kObject, first, 0);
  SECTION("what is there is another attempt: not found") {
    at.attempt = 1;
    two.puller.Pull(kObject, at, first.size());
    network.Run();
    CHECK(two.Outcome(kObject) == LookupOutcome::kNotFound);
  }
  SECTION("a later one replaces the pull of the earlier one") {
    two.puller.Pull(kObject, at, first.size());
    for (int i = 0; i < 8; ++i) network.Step();
    const ObjectLocation later = one.Put(kObject, second, 1);
    two.puller.Pull(kObject, later, second.size());
    network.Run();
    CHECK(two.Outcome(kObject) == LookupOutcome::kFound);
    CHECK(two.Read(kObject) == second);
    CHECK(two.store.server->Describe(kObject)->attempt == 1);
  }
  SECTION("a copy of an earlier one makes way") {
    two.puller.Pull(kObject, at, first.size());
    network.Run();
    const ObjectLocation later = one.Put(kObject, second, 1);
    two.puller.Pull(kObject, later, second.size());
    network.Run();
    CHECK(two.Read(kObject) == second);
    two.store.Advance(kSecond);
    CHECK(two.store.server->Stats().objects == 1);
  }
  SECTION("any will do when none is known") {
    two.puller.Pull(kObject, {.node = 1}, 0);
    network.Run();
    CHECK(two.Outcome(kObject) == LookupOutcome::kFound);
    CHECK(two.Read(kObject) == first);
  }
}

TEST_CASE("bytes are not freed, moved or spilled while they are being sent") {
  TransferNetwork network;
  TransferNode &one = network.Add(1, 4 * kMiB), &two = network.Add(2);
  const std::string bytes = Pattern(3 * kMiB, 2);
  const ObjectLocation at = one.Put(kObject, bytes);
  proto::BlockRequest request;
  request.set_id(kObject.Binary());
  request.set_length(bytes.size());
  absl::StatusOr<Block> block = absl::UnknownError("");
  one.server.OnFetch(2, request.SerializeAsString(),
                     [&](absl::StatusOr<Block> answer) { block = std::move(answer); });
  REQUIRE(block.ok());
  SECTION("freed meanwhile") {
    one.store.store(one.process).Free(kObject, at);
    one.store.Flush();
    one.store.Advance(kSecond);
  }
  SECTION("memory wanted meanwhile") {
    one.store.clients.at(one.process).store->Flush();
    ObjectSpec spec;
    spec.id = IdOf({1, 1}, 2);
    spec.size_bytes = 2 * kMiB;
    spec.wait = kSecond;
    CHECK(absl::IsResourceExhausted(one.store.Create(one.process, spec).status()));
  }
  CHECK(std::string_view(block->bytes.data(), block->bytes.size()) == bytes);
  block = absl::UnknownError("");
  one.store.Advance(kSecond);
  const auto room = one.store.Put(one.process, IdOf({1, 1}, 3), Pattern(2 * kMiB, 4));
  CHECK(room.ok());
  (void)two;
}

TEST_CASE("what is on disk at its node is restored and sent") {
  TransferNetwork network;
  TransferNode &one = network.Add(1, 4 * kMiB), &two = network.Add(2);
  const std::string bytes = Pattern(3 * kMiB, 2);
  const ObjectLocation at = one.Put(kObject, bytes);
  one.Put(IdOf({1, 1}, 2), Pattern(3 * kMiB, 4));
  REQUIRE(one.store.server->Stats().spills == 1);
  two.puller.Pull(kObject, at, bytes.size());
  network.Run();
  CHECK(two.Outcome(kObject) == LookupOutcome::kFound);
  CHECK(two.Read(kObject) == bytes);
}

TEST_CASE("pulls wait for memory") {
  TransferNetwork network;
  TransferNode &one = network.Add(1, 32 * kMiB), &two = network.Add(2, 4 * kMiB);
  SECTION("others are spilled for them") {
    for (uint64_t i = 1; i <= 6; ++i) {
      const ObjectId id = IdOf({1, 1}, i);
      two.puller.Pull(id, one.Put(id, Pattern(kMiB, i)), kMiB);
    }
    network.Run();
    for (uint64_t i = 1; i <= 6; ++i) {
      CHECK(two.Outcome(IdOf({1, 1}, i)) == LookupOutcome::kFound);
      CHECK(two.Read(IdOf({1, 1}, i)) == Pattern(kMiB, i));
    }
  }
  SECTION("in vain: a typed answer, and no memory is kept") {
    const ObjectId pinned = IdOf({2, 1}, 1);
    const auto at = two.store.Put(two.process, pinned, Pattern(3 * kMiB, 1));
    REQUIRE(at.ok());
    const auto view = two.store.store(two.process).Get(pinned, *at);
    REQUIRE(view.ok());
    const uint64_t used = two.store.server->Stats().used_bytes;
    two.puller.Pull(kObject, one.Put(kObject, Pattern(2 * kMiB, 3)), 2 * kMiB);
    network.Run();
    CHECK(two.Outcome(kObject) == LookupOutcome::kFull);
    CHECK(two.store.server->Stats().used_bytes == used);
  }
  SECTION("larger than the store: at once") {
    two.puller.Pull(kObject, one.Put(kObject, Pattern(8 * kMiB, 3)), 8 * kMiB);
    network.Run(kSecond);
    CHECK(two.Outcome(kObject) == LookupOutcome::kFull);
  }
}

TEST_CASE("small copies lie side by side and leave nothing behind") {
  TransferNetwork network;
  TransferNode &one = network.Add(1), &two = network.Add(2);
  for (uint64_t i = 1; i <= 100; ++i) {
    const ObjectId id = IdOf({1, 1}, i);
    two.puller.Pull(id, one.Put(id, Pattern(1000, i)), 1000);
  }
  network.Run();
  CHECK(two.store.server->Stats().objects == 100);
  CHECK(two.store.server->Stats().used_bytes <= kMiB);
  for (uint64_t i = 1; i <= 100; ++i) {
    CHECK(two.Read(IdOf({1, 1}, i)) == Pattern(1000, i));
  }
  for (uint64_t i = 1; i <= 100; ++i) two.store.server->Free(IdOf({1, 1}, i));
  two.store.Advance(kSecond);
  CHECK(two.store.server->Stats().used_bytes == 0);
}

TEST_CASE("nodes that pull the same object serve each other") {
  TransferNetwork network;
  TransferNode& root = network.Add(1);
  const std::string bytes = Pattern(60 * kChunk, 5);
  const ObjectLocation at = root.Put(kObject, bytes);
  constexpr NodeNumber kReaders = 4;
  for (NodeNumber i = 2; i < 2 + kReaders; ++i) {
    network.Add(i).puller.Pull(kObject, at, bytes.size());
  }
  SECTION("undisturbed") {}
  SECTION("with losses") { network.lose_each_seventh = true; }
  SECTION("one of them dies") {
    for (int i = 0; i < 60; ++i) network.Step();
    network.places.at(5)->puller.Cancel(kObject);
    for (NodeNumber i = 2; i < 5; ++i) {
      network.cut.insert({i, 5});
      network.places.at(i)->puller.NodeGone(5);
    }
  }
  network.Run();
  for (NodeNumber i = 2; i < 5; ++i) {
    CHECK(network.places.at(i)->Outcome(kObject) == LookupOutcome::kFound);
    CHECK(network.places.at(i)->Read(kObject) == bytes);
    CHECK(network.places.at(i)->puller.stats().bytes == bytes.size());
  }
  // Far fewer than one chunk for each reader.
  CHECK(network.served.at(1) < 60 * 3);
}

TEST_CASE("a request that cannot be read is refused") {
  TransferNetwork network;
  TransferNode& one = network.Add(1);
  one.Put(kObject, "abc");
  std::vector<absl::StatusOr<Block>> answers;
  const auto ask = [&](const std::string& body) {
    one.server.OnFetch(2, body, [&](absl::StatusOr<Block> block) { answers.push_back(block); });
    return answers.back();
  };
  CHECK(absl::IsInvalidArgument(ask("\xff\xff\xff").status()));
  proto::BlockRequest request;
  CHECK(absl::IsInvalidArgument(ask(request.SerializeAsString()).status()));
  request.set_id(kObject.Binary());
  request.set_length(UINT64_MAX);
  CHECK(absl::IsInvalidArgument(ask(request.SerializeAsString()).status()));
  request.set_length(1 << 20);
  request.set_offset(UINT64_MAX);
  REQUIRE(ask(request.SerializeAsString()).ok());
  CHECK(answers.back()->bytes.empty());
  request.set_offset(1);
  CHECK(ask(request.SerializeAsString())->bytes.size() == 2);
  request.set_slot(UINT32_MAX);
  request.set_generation(3);
  CHECK(ask(request.SerializeAsString())->bytes.size() == 2);
  CHECK(one.server.stats().blocks == 3);
}

TEST_CASE("answers that lie end in an error, never in wrong bytes") {
  struct Liar final : BlockSource {
    void Fetch(NodeNumber, std::string, Nanos, Done done) override {
      done(std::make_unique<OwnedBlock>(head.SerializeAsString(), bytes, is_cut, crc));
    }
    bool is_cut = false;
    std::optional<uint32_t> crc;
    proto::BlockHead head;
    std::string bytes = "0123456789";
  } liar;
  StoreNode store(8 * kMiB);
  InlineExecutor copier;
  ObjectPuller puller(TransferNode::Options(kTestNode), {.clock = store.clock,
                                                         .store = *store.server,
                                                         .blocks = liar,
                                                         .loop = store.loop,
                                                         .copier = copier});
  liar.head.set_size_bytes(10);
  SECTION("a wrong checksum") { liar.crc = 1; }
  SECTION("fewer bytes than it says") { liar.head.set_size_bytes(11); }
  SECTION("a size beyond all bounds") { liar.head.set_size_bytes(UINT64_MAX); }
  SECTION("references beyond all bounds") { liar.head.set_nested_count(UINT32_MAX); }
  SECTION("more bytes than were asked for, which are not waited for") {
    liar.bytes.resize(kChunk + 1);
    liar.is_cut = true;
  }
  SECTION("NOT_YET for ever") { liar.head.set_outcome(proto::BlockHead::NOT_YET); }
  puller.Pull(kObject, {.node = 1}, 10);
  std::vector<ObjectPuller::Finished> finished;
  for (int i = 0; i < 5000 && finished.empty(); ++i) {
    store.Settle();
    store.Advance(10 * kMillisecond);
    puller.Tick();
    finished = puller.TakeFinished();
  }
  REQUIRE(finished.size() == 1);
  CHECK(finished[0].outcome != LookupOutcome::kFound);
  CHECK(((!liar.is_cut && !liar.crc) || puller.stats().damaged > 0));
  store.Advance(kSecond);
  CHECK(store.server->Stats().used_bytes == 0);
  CHECK(!store.server->Contains(kObject));
}

}  // namespace object_transfer_test
}  // namespace sheaf
