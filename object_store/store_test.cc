// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Server and clients together: what a put, a get and a free do to everybody.
#include <catch2/catch.hpp>

#include <cstring>

#include "base/random.h"
#include "object_store/store_node_for_test.h"

namespace sheaf {
namespace store_test {

SCENARIO("an object that one process seals is read by another without a copy") {
  StoreNode node(64 * kMiB);
  const ProcessId writer = node.Attach(1);
  const ProcessId reader = node.Attach(2);
  const ObjectId id = IdOf(writer, 1);
  const std::string bytes = Pattern(GENERATE(0, 1, 100'000, 3'000'000), 1);
  const std::vector<ObjectId> nested{IdOf(reader, 8), IdOf(reader, 9)};
  const auto location =
      node.Put(writer, id, bytes, {.attempt = 3, .flags = 0xabc, .nested = nested});
  REQUIRE(location.ok());
  CHECK(location->attempt == 3);
  GIVEN("the location") {
    const auto object = node.store(reader).Get(id, *location);
    REQUIRE(object.ok());
    CHECK(object->bytes.view() == bytes);
    CHECK(reinterpret_cast<uintptr_t>(object->bytes.data()) % 64 == 0);
    CHECK(object->flags == 0xabc);
    CHECK(std::vector<ObjectId>(object->nested.begin(), object->nested.end()) == nested);
  }
  GIVEN("only the id") {
    node.Flush();
    const auto found = node.Lookup(reader, id);
    REQUIRE(found.ok());
    CHECK(*found == *location);
    CHECK(node.store(reader).Get(id, *found)->bytes.view() == bytes);
  }
  GIVEN("a location that names another object, attempt or generation") {
    ObjectLocation wrong = *location;
    CHECK(absl::IsNotFound(node.store(reader).Get(IdOf(writer, 2), wrong).status()));
    wrong.attempt = 2;
    CHECK(absl::IsNotFound(node.store(reader).Get(id, wrong).status()));
    wrong = *location;
    ++wrong.generation;
    CHECK(absl::IsNotFound(node.store(reader).Get(id, wrong).status()));
    wrong = *location;
    wrong.slot = UINT32_MAX - 1;
    CHECK(absl::IsNotFound(node.store(reader).Get(id, wrong).status()));
    CHECK(node.store(reader).stats().views == 0);
  }
}

SCENARIO("a process finds what others freed when it is told that it has it") {
  StoreNode node(64 * kMiB);
  const ProcessId owner = node.Attach(1);
  const ProcessId writer = node.Attach(2);
  const std::string bytes = Pattern(4 * kMiB, 1);
  std::vector<ObjectLocation> made;
  for (uint64_t i = 0; i < 8; ++i) {
    const auto location = node.Put(writer, IdOf(owner, i), bytes);
    REQUIRE(location.ok());
    made.push_back(*location);
  }
  node.Flush();
  for (uint64_t i = 0; i < 8; ++i) node.store(owner).Free(IdOf(owner, i), made[i]);
  node.Flush();
  const Nanos before = node.clock.Now();
  REQUIRE(node.Put(writer, IdOf(owner, 8), bytes).ok());
  CHECK(node.clock.Now() == before);
}

SCENARIO("a process that has reserved makes its first small objects without asking") {
  StoreNode node(64 * kMiB);
  const ProcessId writer = node.Attach(1);
  const ObjectSpec spec{.id = IdOf(writer, 1), .size_bytes = 1000};
  CHECK(absl::IsUnavailable(node.store(writer).Create(spec).status()));
  node.store(writer).CancelCreate(spec.id);
  const ProcessId provident = node.Attach(2);
  node.store(provident).Reserve();
  node.store(provident).Reserve();  // Asked for once.
  node.Settle();
  CHECK(node.store(provident).stats().requests == 2);
  CHECK(node.store(provident).stats().held_bytes == 64 * 1024);
  CHECK(node.store(provident).Create({.id = IdOf(provident, 1), .size_bytes = 1000}).ok());
}

SCENARIO("nobody sees an object before it is sealed") {
  StoreNode node(64 * kMiB);
  const ProcessId writer = node.Attach(1);
  const ProcessId reader = node.Attach(2);
  const ObjectId id = IdOf(writer, 1);
  auto buffer = node.Create(writer, {.id = id, .size_bytes = 1000});
  REQUIRE(buffer.ok());
  CHECK(absl::IsNotFound(node.Lookup(reader, id).status()));
  const ObjectLocation guess{kTestNode, 0, 0, 0};
  CHECK(absl::IsNotFound(node.store(reader).Get(id, guess).status()));
  const ObjectLocation sealed = node.store(writer).Seal(*std::move(buffer));
  CHECK(node.store(reader).Get(id, sealed).ok());
  node.Advance(10 * kMillisecond);
  CHECK(node.Lookup(reader, id).ok());  // Though it was never announced: the slot says it.
}

SCENARIO("puts in a row ask the raylet a few times only") {
  StoreNode node(64 * kMiB);
  const ProcessId writer = node.Attach(1);
  for (int i = 0; i < 1000; ++i) {
    REQUIRE(node.Put(writer, IdOf(writer, i), Pattern(1000, i)).ok());
  }
  CHECK(node.store(writer).stats().requests < 12);
}

SCENARIO(
    "a freed object's bytes stay while a view lives, and its memory is used again afterwards") {
  StoreNode node(16 * kMiB);
  const ProcessId writer = node.Attach(1);
  const ProcessId reader = node.Attach(2);
  const size_t size = GENERATE(10'000, 6'000'000);
  const std::string bytes = Pattern(size, 1);
  const auto location = node.Put(writer, IdOf(writer, 1), bytes);
  REQUIRE(location.ok());
  auto object = node.store(reader).Get(IdOf(writer, 1), *location);
  REQUIRE(object.ok());
  Buffer part = object->bytes.Slice(5, 100);
  node.store(writer).Free(IdOf(writer, 1), *location);
  node.Flush();
  THEN("new readers do not find it") {
    CHECK(absl::IsNotFound(node.store(writer).Get(IdOf(writer, 1), *location).status()));
    CHECK(absl::IsNotFound(node.Lookup(reader, IdOf(writer, 1)).status()));
    CHECK_FALSE(node.server->Contains(IdOf(writer, 1)));
  }
  THEN("its bytes do not change while the store is filled and emptied around it") {
    for (int i = 2; i < 40; ++i) {
      const auto other = node.Put(writer, IdOf(writer, i), Pattern(size, i));
      REQUIRE(other.ok());
      node.store(writer).Free(IdOf(writer, i), *other);
      node.Flush();
    }
    CHECK(object->bytes.view() == bytes);
    CHECK(node.server->Stats().pinned_bytes >= size);
    AND_THEN("a slice pins as the whole does") {
      object = absl::NotFoundError("dropped");
      node.Advance(kSecond);
      CHECK(node.server->Stats().pinned_bytes >= size);
      CHECK(part.view() == bytes.substr(5, 100));
      part = Buffer();
      node.Advance(kSecond);
      CHECK(node.server->Stats().pinned_bytes == 0);
    }
  }
}

SCENARIO(
    "put, free, put of a large object uses the same warm memory, without a message in between") {
  StoreNode node(64 * kMiB);
  const ProcessId writer = node.Attach(1);
  uint64_t requests = 0;
  for (int i = 1; i <= 20; ++i) {
    const auto location = node.Put(writer, IdOf(writer, i), Pattern(8 * kMiB, i));
    REQUIRE(location.ok());
    const auto object = node.store(writer).Get(IdOf(writer, i), *location);
    CHECK(object->bytes.view() == Pattern(8 * kMiB, i));
    node.store(writer).Free(IdOf(writer, i), *location);
    if (i % 2 == 0) node.Flush();  // The answer to the free need not come first.
    if (i == 2) requests = node.store(writer).stats().requests;
  }
  CHECK(node.store(writer).stats().requests <= requests + 10);
  CHECK(node.store(writer).stats().held_bytes <= 17 * kMiB);
}

SCENARIO("put and free of objects that share extents uses the same warm memory") {
  StoreNode node(256 * kMiB);
  const ProcessId writer = node.Attach(1);
  const std::string bytes = Pattern(800'000, 1);
  // Few enough that their number brings no word of them to the raylet.
  for (int i = 1; i <= 200; ++i) {
    const auto location = node.Put(writer, IdOf(writer, i), bytes);
    REQUIRE(location.ok());
    node.store(writer).Free(IdOf(writer, i), *location);
    node.Settle();
  }
  CHECK(node.store(writer).stats().requests <= 8);
  CHECK(node.store(writer).stats().held_bytes <= 32 * kMiB);
}

SCENARIO("a buffer that is dropped unsealed gives its memory back") {
  StoreNode node(16 * kMiB);
  const ProcessId writer = node.Attach(1);
  const size_t size = GENERATE(1000, 5'000'000);
  for (int i = 0; i < 200; ++i) {
    auto buffer = node.Create(writer, {.id = IdOf(writer, i), .size_bytes = size});
    REQUIRE(buffer.ok());
    std::memset(buffer->data(), 1, buffer->size());
  }
  CHECK(node.server->Stats().objects == 0);
  CHECK(node.store(writer).stats().requests < 5);
}

SCENARIO("views outlive the client they came from") {
  StoreNode node(16 * kMiB);
  const ProcessId writer = node.Attach(1);
  const ProcessId reader = node.Attach(2);
  const auto location = node.Put(writer, IdOf(writer, 1), Pattern(5000, 1));
  Buffer view = node.store(reader).Get(IdOf(writer, 1), *location)->bytes;
  node.Kill(reader, /*views_too=*/false);
  node.clients.at(reader).segment.reset();
  node.store(writer).Free(IdOf(writer, 1), *location);
  node.Flush();
  node.Advance(kSecond);
  CHECK(node.server->Stats().pinned_bytes > 0);
  CHECK(view.view() == Pattern(5000, 1));
  view = Buffer();
  node.Advance(kSecond);
  CHECK(node.server->Stats().pinned_bytes == 0);
}

SCENARIO("of two attempts of a task the newer result counts") {
  StoreNode node(16 * kMiB);
  const ProcessId first = node.Attach(1);
  const ProcessId second = node.Attach(2);
  const ObjectId id = IdOf(first, 1);
  const auto old_copy = node.Put(first, id, "old", {.attempt = 0});
  node.Flush();
  const auto new_copy = node.Put(second, id, "new", {.attempt = 1});
  node.Flush();
  const auto found = node.Lookup(first, id);
  REQUIRE(found.ok());
  CHECK(*found == *new_copy);
  CHECK_FALSE(node.store(first).Get(id, *old_copy).ok());
  CHECK(node.observer.gone == std::vector{id});
  WHEN("the old attempt is freed late") {
    node.store(first).Free(id, *old_copy);
    node.Flush();
    THEN("the new one stays") { CHECK(node.server->Contains(id)); }
  }
  WHEN("an even older copy is sealed late") {
    const auto late = node.Put(first, id, "late", {.attempt = 0});
    node.Flush();
    THEN("it is dropped") {
      CHECK_FALSE(node.store(second).Get(id, *late).ok());
      CHECK(*node.Lookup(first, id) == *new_copy);
    }
  }
}

SCENARIO("a dead process leaves its sealed objects and nothing else") {
  StoreNode node(64 * kMiB);
  const ProcessId writer = node.Attach(1);
  const ProcessId owner = node.Attach(2);
  const uint64_t used_before = node.server->Stats().used_bytes;
  std::vector<ObjectLocation> kept;
  for (int i = 0; i < 50; ++i) {
    const auto location =
        node.Put(writer, IdOf(owner, i), Pattern(i % 5 == 0 ? 2'000'000 : 70'000, i));
    REQUIRE(location.ok());
    kept.push_back(*location);
  }
  auto unsealed = node.Create(writer, {.id = IdOf(owner, 1000), .size_bytes = 5'000'000});
  auto unsealed_small = node.Create(writer, {.id = IdOf(owner, 1001), .size_bytes = 5'000});
  node.Kill(writer);  // It had announced nothing: its slots say what it sealed.
  CHECK(node.server->Stats().objects == 50);
  CHECK(node.server->Stats().granted_bytes == 0);
  for (int i = 0; i < 50; ++i) {
    const auto object = node.store(owner).Get(IdOf(owner, i), kept[i]);
    REQUIRE(object.ok());
    CHECK(object->bytes.view() == Pattern(i % 5 == 0 ? 2'000'000 : 70'000, i));
  }
  for (int i = 0; i < 50; ++i) node.store(owner).Free(IdOf(owner, i), kept[i]);
  node.Flush();
  node.Advance(kSecond);
  CHECK(node.server->Stats().objects == 0);
  CHECK(node.server->Stats().used_bytes == used_before);
}

SCENARIO("of a dead owner's objects the referenced ones are adopted") {
  StoreNode node(16 * kMiB);
  const ProcessId owner = node.Attach(1);
  const ProcessId borrower = node.Attach(2);
  const auto kept = node.Put(owner, IdOf(owner, 1), "kept");
  node.Put(owner, IdOf(owner, 2), "dropped").value();
  node.Put(borrower, IdOf(borrower, 1), "not his").value();
  node.Kill(owner);
  const auto adopted = node.server->Adopt(owner, [&](ObjectId id) { return id == IdOf(owner, 1); });
  CHECK(adopted == std::vector{IdOf(owner, 1)});
  CHECK(node.store(borrower).Get(IdOf(owner, 1), *kept)->bytes.view() == "kept");
  CHECK(node.server->Stats().objects == 2);
  node.server->Free(IdOf(owner, 1));
  node.server->EndTurn();
  CHECK(node.server->Stats().objects == 1);
}

SCENARIO("an object whose header was scribbled over is found again, and its writer is named") {
  StoreNode node(16 * kMiB);
  const ProcessId writer = node.Attach(1);
  const ProcessId reader = node.Attach(2);
  const ObjectId id = IdOf(writer, 1);
  const std::array inner = {IdOf(writer, 2)};
  const auto location = node.Put(writer, id, Pattern(5000, 1), {.nested = inner});
  REQUIRE(location.ok());
  node.Flush();
  // As the writer could, through its own mapping.
  auto* header = reinterpret_cast<unsigned char*>(node.arena->data() + kTableOffset +
                                                  location->slot * sizeof(Slot));
  size_t mended = 0;
  for (size_t at = 0; at < offsetof(Slot, unused); ++at) {
    CAPTURE(at);
    if (at > 0 && at < 4) continue;  // Between the state and the generation lies nothing.
    header[at] ^= 0x81;
    REQUIRE(node.Lookup(reader, id).ok());
    CHECK(node.observer.violations.size() == ++mended);
    CHECK(node.observer.violations.back().first == writer);
    const auto object = node.store(reader).Get(id, *location);
    REQUIRE(object.ok());
    CHECK(object->bytes.view() == Pattern(5000, 1));
    CHECK(std::vector(object->nested.begin(), object->nested.end()) ==
          std::vector(inner.begin(), inner.end()));
  }
  REQUIRE(node.Lookup(reader, id).ok());
  CHECK(node.observer.violations.size() == mended);
}

SCENARIO("a frame that makes no sense harms nobody") {
  StoreNode node(16 * kMiB);
  const ProcessId honest = node.Attach(1);
  const ProcessId wild = node.Attach(2);
  const auto location = node.Put(honest, IdOf(honest, 1), Pattern(5000, 1));
  node.Flush();
  const uint64_t used = node.server->Stats().used_bytes;
  SeededRandom random(GENERATE(range(0, 20)));
  for (int i = 0; i < 500; ++i) {
    std::string body(random.Below(64), '\0');
    for (char& byte : body) byte = static_cast<char>(random.OneIn(3) ? random.Next() : 0);
    node.Inject(wild, FrameKind(128 + random.Below(32)), body);
  }
  const ObjectName theft{IdOf(honest, 1), *location};
  node.Inject(wild, kStoreFree, AsBytes(theft));
  node.Inject(wild, kStoreExtentReturn,
              AsBytes(ExtentRange{node.arena->size_bytes() - kMiB, kMiB}));
  CHECK(node.store(honest).Get(IdOf(honest, 1), *location)->bytes.view() == Pattern(5000, 1));
  CHECK_FALSE(node.observer.violations.empty());
  for (const auto& [process, what] : node.observer.violations) CHECK(process == wild);
  node.Kill(wild);
  node.Advance(kSecond);
  CHECK(node.server->Stats().used_bytes == used);
}

}  // namespace store_test
}  // namespace sheaf
