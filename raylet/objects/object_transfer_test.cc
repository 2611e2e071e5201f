// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Objects on their way between nodes: the real stores, pullers and servers of several nodes in one
// thread, joined by a network that the test bends.
#include <catch2/catch.hpp>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "object_store/store_node_for_test.h"
#include "raylet/objects/fake_block_source.h"
#include "raylet/objects/object_puller.h"
#include "raylet/objects/object_server.h"

namespace sheaf {
namespace {

constexpr uint64_t kChunk = 64 * 1024;

struct Network;

// A node: a store, and who fetches for it and serves from it.
struct Place final : BlockSource {
  Place(Network& network, NodeNumber number, uint64_t capacity)
      : network(network),
        number(number),
        store(capacity, {.node = number}),
        puller(Options(number), {.clock = store.clock,
                                 .store = *store.server,
                                 .blocks = *this,
                                 .loop = store.loop,
                                 .copier = copier}),
        server({.clock = store.clock, .store = *store.server, .puller = puller, .copier = copier}) {
    process = store.Attach(1);
  }
  static ObjectPullerOptions Options(NodeNumber number) {
    ObjectPullerOptions options;
    options.node = number;
    options.chunk_bytes = kChunk;
    return options;
  }
  void Fetch(NodeNumber node, std::string request, Nanos timeout, Done done) override;

  ObjectLocation Put(ObjectId id, std::string_view bytes, uint32_t attempt = 0,
                     std::span<const ObjectId> nested = {}) {
    ObjectSpec spec;
    spec.attempt = attempt;
    spec.nested = nested;
    spec.flags = 5;
    auto location = store.Put(process, id, bytes, spec);
    REQUIRE(location.ok());
    store.Flush();
    return *location;
  }
  std::string Read(ObjectId id) {
    const auto location = store.Lookup(process, id);
    if (!location.ok()) return std::string(location.status().message());
    const auto object = store.store(process).Get(id, *location);
    REQUIRE(object.ok());
    return std::string(object->bytes.view());
  }
  // nullopt: not finished.
  std::optional<LookupOutcome> Outcome(ObjectId id) {
    for (const auto& finished : puller.TakeFinished()) outcomes[finished.id] = finished.outcome;
    const auto found = outcomes.find(id);
    return found == outcomes.end() ? std::nullopt : std::optional(found->second);
  }

  Network& network;
  const NodeNumber number;
  InlineExecutor copier;
  StoreNode store;
  ObjectPuller puller;
  ObjectServer server;
  ProcessId process;
  std::map<ObjectId, LookupOutcome> outcomes;
};

struct Network {
  struct Request {
    NodeNumber from, to;
    std::string body;
    Nanos timeout;
    BlockSource::Done done;
  };

  Place& Add(NodeNumber number, uint64_t capacity = 32 * kMiB) {
    return *(places[number] = std::make_unique<Place>(*this, number, capacity));
  }
  // Answers one request; false: none waits.
  bool Step() {
    if (requests.empty()) return false;
    Request request = std::move(requests.front());
    requests.pop_front();
    ++carried;
    if (carried % 7 == 0 && lose_each_seventh) {
      request.done(absl::DeadlineExceededError("lost"));
      return true;
    }
    if (cut.contains({request.from, request.to}) || !places.contains(request.to)) {
      request.done(absl::UnavailableError("no connection"));
      return true;
    }
    served[request.to] += 1;
    places.at(request.to)
        ->server.OnFetch(request.from, request.body, [this, request](absl::StatusOr<Block> block) {
          if (!block.ok()) return request.done(block.status());
          std::string bytes(block->bytes.data(), block->bytes.size());
          if (damage > 0 && !bytes.empty()) {
            --damage;
            bytes[bytes.size() / 2] ^= 1;
          }
          if (truncate > 0 && !bytes.empty()) {
            --truncate;
            bytes.pop_back();
          }
          request.done(std::make_unique<OwnedBlock>(block->head, std::move(bytes)));
        });
    return true;
  }
  // Until nothing moves; then time passes, `limit` at most, while somebody has something to do.
  void Run(Nanos limit = 60 * kSecond) {
    for (Nanos passed = 0; passed <= limit; passed += 10 * kMillisecond) {
      for (bool moved = true; moved;) {
        moved = false;
        for (auto& [number, place] : places) place->store.Settle();
        while (Step()) moved = true;
      }
      bool busy = false;
      for (auto& [number, place] : places) {
        busy |= place->puller.NextTick() != kForever ||
                place->store.server->Stats().waiting_requests != 0;
      }
      if (!busy) return;
      for (auto& [number, place] : places) {
        place->store.Advance(10 * kMillisecond);
        place->puller.Tick();
        place->server.Tick();
      }
    }
  }

  std::deque<Request> requests;
  std::map<NodeNumber, std::unique_ptr<Place>> places;
  std::set<std::pair<NodeNumber, NodeNumber>> cut;
  std::map<NodeNumber, int> served;  // Requests that each answered.
  int carried = 0;
  bool lose_each_seventh = false;
  int damage = 0, truncate = 0;  // So many answers.
};

void Place::Fetch(NodeNumber node, std::string request, Nanos timeout, Done done) {
  network.requests.push_back({number, node, std::move(request), timeout, std::move(done)});
}

const ObjectId kObject = IdOf({1, 1}, 1);

TEST_CASE("an object is brought from another node, whole and with the references inside it") {
  Network network;
  Place &one = network.Add(1), &two = network.Add(2);
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
  Network network;
  Place &one = network.Add(1), &two = network.Add(2);
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
  Network network;
  Place &one = network.Add(1), &two = network.Add(2);
  const ObjectLocation at = one.Put(kObject, Pattern(10 * kChunk, 1));
  for (int i = 0; i < 50; ++i) two.puller.Pull(kObject, at, 10 * kChunk);
  network.Run();
  CHECK(two.Outcome(kObject) == LookupOutcome::kFound);
  CHECK(two.puller.stats().pulls == 1);
  CHECK(two.puller.stats().bytes == 10 * kChunk);
  CHECK(network.carried == 10);
}

TEST_CASE("what was lost, damaged or cut short is fetched again, and nothing else") {
  Network network;
  Place &one = network.Add(1), &two = network.Add(2);
  const std::string bytes = Pattern(40 * kChunk + 17, 2);
  const ObjectLocation at = one.Put(kObject, bytes);
  SECTION("lost answers") { network.lose_each_seventh = true; }
  SECTION("damaged bytes") { network.damage = 2; }
  SECTION("truncated bytes") { network.truncate = 2; }
  two.puller.Pull(kObject, at, bytes.size());
  network.Run();
  REQUIRE(two.Outcome(kObject) == LookupOutcome::kFound);
  CHECK(two.Read(kObject) == bytes);
  CHECK(two.puller.stats().bytes == bytes.size());
  CHECK(two.puller.stats().failed_fetches > 0);
}

TEST_CASE("a pull that is cut in the middle goes on where it was") {
  Network network;
  Place &one = network.Add(1), &two = network.Add(2);
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
  Network network;
  Place &one = network.Add(1), &two = network.Add(2);
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

TEST_CASE("a node that is dead is no source") {
  Network network;
  Place &one = network.Add(1), &two = network.Add(2), &three = network.Add(3);
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
  Network network;
  Place &one = network.Add(1), &two = network.Add(2);
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
  Network network;
  Place &one = network.Add(1, 4 * kMiB), &two = network.Add(2);
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
  Network network;
  Place &one = network.Add(1, 4 * kMiB), &two = network.Add(2);
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
  Network network;
  Place &one = network.Add(1, 32 * kMiB), &two = network.Add(2, 4 * kMiB);
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
  Network network;
  Place &one = network.Add(1), &two = network.Add(2);
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
  Network network;
  Place& root = network.Add(1);
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
  Network network;
  Place& one = network.Add(1);
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
      done(std::make_unique<OwnedBlock>(head.SerializeAsString(), bytes));
    }
    proto::BlockHead head;
    std::string bytes = "0123456789";
  } liar;
  StoreNode store(8 * kMiB);
  InlineExecutor copier;
  ObjectPuller puller(Place::Options(kTestNode), {.clock = store.clock,
                                                  .store = *store.server,
                                                  .blocks = liar,
                                                  .loop = store.loop,
                                                  .copier = copier});
  liar.head.set_size_bytes(10);
  SECTION("a wrong checksum") { liar.head.set_crc(1); }
  SECTION("fewer bytes than it says") { liar.head.set_size_bytes(11); }
  SECTION("a size beyond all bounds") { liar.head.set_size_bytes(UINT64_MAX); }
  SECTION("references beyond all bounds") { liar.head.set_nested_count(UINT32_MAX); }
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
  store.Advance(kSecond);
  CHECK(store.server->Stats().used_bytes == 0);
  CHECK(!store.server->Contains(kObject));
}

}  // namespace
}  // namespace sheaf
