// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Parts of objects on their way between nodes (docs/design/parts.md), over a network that loses, cuts and
// damages.
#include <catch2/catch.hpp>
#include <filesystem>
#include <string>
#include <vector>

#include "base/random.h"
#include "raylet/objects/transfer_network_for_test.h"

namespace sheaf {
namespace part_transfer_test {

const ObjectId kObject = IdOf({1, 1}, 1);
const ObjectId kPart = IdOf({2, 1}, 7);

PartWanted PartOf(const ObjectLocation& hint, uint64_t offset, uint64_t bytes,
                  ObjectId name = kPart) {
  return {.id = name, .of = kObject, .hint = hint, .offset = offset, .bytes = bytes};
}

struct TwoNodes {
  TransferNetwork network;
  TransferNode& one = network.Add(1);
  TransferNode& two = network.Add(2);
  const std::string bytes = Pattern(6 * kChunk + 17, 3);

  void Pull(const PartWanted& part, std::vector<NodeNumber> places = {1}) {
    two.puller.PullPart(part, places);
    network.Run();
  }
};

TEST_CASE("a part alone is brought, in as many chunks as it has") {
  TwoNodes t;
  const ObjectLocation at = t.one.Put(kObject, t.bytes, 4, std::vector{IdOf({1, 1}, 8)});
  const auto [offset, length] =
      GENERATE(std::pair<uint64_t, uint64_t>{0, 1}, std::pair<uint64_t, uint64_t>{17, 1000},
               std::pair<uint64_t, uint64_t>{kChunk - 1, 2 * kChunk},
               std::pair<uint64_t, uint64_t>{0, 6 * kChunk + 17});
  t.Pull(PartOf(at, offset, length));
  REQUIRE(t.two.Outcome(kPart) == LookupOutcome::kFound);
  CHECK(t.two.Read(kPart) == t.bytes.substr(offset, length));
  CHECK_FALSE(t.two.store.server->Contains(kObject));
  CHECK(t.two.store.server->Describe(kPart)->nested.empty());
  CHECK(t.two.puller.stats().bytes == length);
  CHECK(t.network.carried == static_cast<int>((length + kChunk - 1) / kChunk));
}

TEST_CASE("what was lost, damaged or cut short of a part is fetched again, and nothing else") {
  TwoNodes t;
  const ObjectLocation at = t.one.Put(kObject, t.bytes);
  SECTION("lost answers") { t.network.lose_each_seventh = true; }
  SECTION("damaged bytes") { t.network.damage = 2; }
  SECTION("truncated bytes") { t.network.truncate = 2; }
  t.Pull(PartOf(at, 5, 5 * kChunk));
  REQUIRE(t.two.Outcome(kPart) == LookupOutcome::kFound);
  CHECK(t.two.Read(kPart) == t.bytes.substr(5, 5 * kChunk));
  CHECK(t.two.puller.stats().bytes == 5 * kChunk);
}

TEST_CASE("why there is no part") {
  TwoNodes t;
  ObjectLocation at = t.one.Put(kObject, t.bytes, 4);
  SECTION("the object is shorter") {
    t.Pull(PartOf(at, 6 * kChunk, 18));
    CHECK(t.two.Outcome(kPart) == LookupOutcome::kOutOfRange);
  }
  SECTION("another attempt is there, be it shorter or not") {
    at.attempt = 5;
    t.Pull(PartOf(at, 0, 10 * kChunk));
    CHECK(t.two.Outcome(kPart) == LookupOutcome::kNotFound);
  }
  SECTION("the object was freed") {
    t.one.store.server->Free(kObject);
    t.Pull(PartOf(at, 0, 1));
    CHECK(t.two.Outcome(kPart) == LookupOutcome::kNotFound);
  }
  SECTION("its node died") {
    t.network.cut.insert({2, 1});
    t.two.puller.PullPart(PartOf(at, 0, 1), std::vector<NodeNumber>{1});
    t.network.Run(kSecond);
    CHECK(t.two.Outcome(kPart) == std::nullopt);
    t.two.puller.NodeGone(1);
    t.network.Run();
    CHECK(t.two.Outcome(kPart) == LookupOutcome::kNotFound);
  }
  CHECK_FALSE(t.two.store.server->Contains(kPart));
  CHECK(t.two.puller.stats().active_bytes == 0);
}

TEST_CASE("another node takes over when one is lost between the chunks") {
  TwoNodes t;
  TransferNode& three = t.network.Add(3);
  const ObjectLocation at = t.one.Put(kObject, t.bytes, 2);
  three.puller.Pull(kObject, at, t.bytes.size());
  t.network.Run();
  REQUIRE(three.Outcome(kObject) == LookupOutcome::kFound);
  t.two.puller.PullPart(PartOf(at, 3, 5 * kChunk), std::vector<NodeNumber>{1, 3});
  for (int i = 0; i < 3; ++i) {
    t.two.store.Settle();
    t.network.Step();
  }
  t.network.cut.insert({2, 1});
  t.two.puller.NodeGone(1);
  t.network.Run();
  REQUIRE(t.two.Outcome(kPart) == LookupOutcome::kFound);
  CHECK(t.two.Read(kPart) == t.bytes.substr(3, 5 * kChunk));
}

TEST_CASE("without a hint all chunks are of the attempt of the first") {
  TwoNodes t;
  TransferNode& three = t.network.Add(3);
  t.one.Put(kObject, t.bytes, 1);
  three.Put(kObject, Pattern(6 * kChunk + 17, 9), 2);
  t.Pull(PartOf({}, 0, 5 * kChunk), {1, 3});
  REQUIRE(t.two.Outcome(kPart) == LookupOutcome::kFound);
  const std::string read = t.two.Read(kPart);
  CHECK((read == t.bytes.substr(0, 5 * kChunk) ||
         read == Pattern(6 * kChunk + 17, 9).substr(0, 5 * kChunk)));
}

TEST_CASE("of what is on disk the part alone is read, also for its own node") {
  TransferNetwork network;
  TransferNode &one = network.Add(1, 4 * kMiB), &two = network.Add(2);
  const std::string bytes = Pattern(3 * kMiB, 2);
  const ObjectLocation at = one.Put(kObject, bytes);
  const ObjectId other = IdOf({1, 1}, 2);
  one.Put(other, Pattern(2 * kMiB, 4));
  REQUIRE(one.store.server->Stats().spills == 1);
  TransferNode& reader = GENERATE(true, false) ? one : two;
  const ObjectId part = IdOf({reader.number, 1}, 7);
  reader.puller.PullPart(PartOf(at, kMiB + 5, kMiB, part), std::vector<NodeNumber>{1});
  network.Run();
  REQUIRE(reader.Outcome(part) == LookupOutcome::kFound);
  CHECK(reader.Read(part) == bytes.substr(kMiB + 5, kMiB));
  CHECK(one.store.server->Stats().restores == 0);
  CHECK(one.store.server->Stats().range_bytes == kMiB);
  CHECK(absl::IsUnavailable(one.store.server->Locate(kObject).status()));  // On disk still.
  WHEN("its file is damaged it is lost there") {
    for (const auto& file :
         std::filesystem::directory_iterator(one.store.directory.path() + "/spill"))
      std::filesystem::resize_file(file.path(), 10);
    reader.puller.PullPart(PartOf(at, 0, 5, IdOf({reader.number, 1}, 8)),
                           std::vector<NodeNumber>{1});
    network.Run();
    CHECK(reader.Outcome(IdOf({reader.number, 1}, 8)) == LookupOutcome::kDataLoss);
    CHECK_FALSE(one.store.server->Contains(kObject));
  }
}

TEST_CASE("one that is cancelled leaves nothing") {
  TwoNodes t;
  const ObjectLocation at = t.one.Put(kObject, t.bytes);
  const uint64_t before = t.two.store.server->Stats().used_bytes;
  t.two.puller.PullPart(PartOf(at, 0, 5 * kChunk), std::vector<NodeNumber>{1});
  for (int i = GENERATE(0, 1, 3); i > 0; --i) {
    t.two.store.Settle();
    t.network.Step();
  }
  t.two.puller.Cancel(kPart);
  t.network.Run();
  CHECK_FALSE(t.two.store.server->Contains(kPart));
  CHECK(t.two.puller.stats().active_bytes == 0);
  t.two.store.Advance(kSecond);
  CHECK(t.two.store.server->Stats().used_bytes <= before + kGranuleBytes);
}

TEST_CASE("parts leave room for whole objects, and for parts of other nodes") {
  TwoNodes t;
  TransferNode& three = t.network.Add(3);
  const ObjectLocation at = t.one.Put(kObject, t.bytes);
  for (uint64_t i = 0; i < 100; ++i)
    t.two.puller.PullPart(PartOf(at, i, 1, IdOf({2, 1}, 100 + i)), std::vector<NodeNumber>{1});
  t.two.store.Settle();
  const size_t of_one_node = ObjectPullerOptions().most_pulls / 8;
  CHECK(t.network.requests.size() == of_one_node);
  const ObjectId other = IdOf({3, 1}, 1);
  t.two.puller.PullPart({.id = kPart, .of = other, .hint = three.Put(other, "abc"), .bytes = 1},
                        std::vector<NodeNumber>{3});
  const ObjectId whole = IdOf({1, 1}, 50);
  t.two.puller.Pull(whole, t.one.Put(whole, "whole"), 5);
  t.two.store.Settle();
  CHECK(t.network.requests.size() == of_one_node + 2);
  t.network.Run();
  CHECK(t.two.Outcome(kPart) == LookupOutcome::kFound);
  CHECK(t.two.Outcome(whole) == LookupOutcome::kFound);
  for (uint64_t i = 0; i < 100; ++i)
    CHECK(t.two.Read(IdOf({2, 1}, 100 + i)) == t.bytes.substr(i, 1));
}

}  // namespace part_transfer_test
}  // namespace sheaf
