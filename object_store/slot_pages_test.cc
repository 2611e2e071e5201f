// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Slot pages come back from live processes: the table of objects is everybody's.
#include <catch2/catch.hpp>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/random.h"
#include "object_store/store_node_for_test.h"

namespace sheaf {
namespace slot_pages_test {

constexpr uint32_t kSlots = ArenaShape::For(16 * kMiB).slot_count;

struct Value {
  ObjectId id;
  ObjectLocation location;
};

// Small values of `process` until it is refused, or `most` of them.
std::vector<Value> Fill(StoreNode& node, ProcessId process, uint32_t most = kSlots) {
  std::vector<Value> values;
  for (uint32_t i = 0; i < most; ++i) {
    const ObjectId id = IdOf(process, 1 + i);
    const auto location = node.Put(process, id, "small", {.wait = 100 * kMillisecond});
    if (!location.ok()) {
      CHECK(StoreErrorKind(location.status()) == ErrorKind::kObjectStoreFull);
      break;
    }
    values.push_back({id, *location});
  }
  node.Flush();
  return values;
}

void Free(StoreNode& node, ProcessId process, const Value& value) {
  node.store(process).Free(value.id, value.location);
}

SCENARIO("who fills the table of objects and frees them keeps nobody from putting") {
  StoreNode node(16 * kMiB);
  const ProcessId greedy = node.Attach(1);
  const ProcessId other = node.Attach(2);
  std::vector<Value> values = Fill(node, greedy);
  REQUIRE(values.size() > kSlots * 9 / 10);
  WHEN("all live") {
    THEN("the other hears which limit it is") {
      const auto refused = node.Put(other, IdOf(other, 1), "value", {.wait = 100 * kMillisecond});
      CHECK(StoreErrorKind(refused.status()) == ErrorKind::kObjectStoreFull);
      CHECK(refused.status().message().find(std::to_string(kSlots)) != std::string::npos);
      CHECK(node.server->Stats().waiting_requests == 0);
    }
  }
  WHEN("they are freed") {
    for (const Value& value : values) Free(node, greedy, value);
    node.Flush();
    REQUIRE(node.server->Stats().objects == 0);
    THEN("the other fills the table in its turn, and then the first again") {
      const std::vector<Value> others = Fill(node, other);
      CHECK(others.size() == values.size());
      for (const Value& value : others) Free(node, other, value);
      node.Flush();
      CHECK(Fill(node, greedy).size() == values.size());
    }
    THEN("a large object of the other finds a slot") {
      CHECK(node.Put(other, IdOf(other, 1), Pattern(2 * kMiB, 1)).ok());
    }
  }
  WHEN("the other waits while they are freed, one page of them") {
    const ObjectSpec spec{.id = IdOf(other, 1), .size_bytes = 5, .wait = 10 * kSecond};
    REQUIRE(absl::IsUnavailable(node.store(other).Create(spec).status()));
    node.Settle();
    REQUIRE(absl::IsUnavailable(node.store(other).Create(spec).status()));
    for (const Value& value : values) {
      if (value.location.slot / kSlotsPerPage == 3) Free(node, greedy, value);
    }
    node.Flush();
    node.Advance(200 * kMillisecond);
    if (absl::IsUnavailable(node.store(other).Create(spec).status())) node.Settle();
    THEN("it goes on") { CHECK(node.store(other).Create(spec).ok()); }
  }
  WHEN("it waits, and its fellow dies") {
    REQUIRE(absl::IsUnavailable(
        node.store(other).Create({.id = IdOf(other, 1), .size_bytes = 5}).status()));
    node.Settle();
    node.Kill(other);
    THEN("nothing waits any more") { CHECK(node.server->Stats().waiting_requests == 0); }
  }
  CHECK(node.observer.violations.empty());
}

SCENARIO("a large object takes a slot that came free, though this process has not looked yet") {
  StoreNode node(16 * kMiB);
  const ProcessId process = node.Attach(1);
  const std::vector<Value> values = Fill(node, process, kSlotsPerPage);
  REQUIRE(node.store(process).stats().slots == kSlotsPerPage);
  Free(node, process, values.front());
  node.Flush();
  const ObjectSpec spec{.id = IdOf(process, 10'000), .size_bytes = 2 * kMiB, .wait = kSecond};
  REQUIRE(absl::IsUnavailable(node.store(process).Create(spec).status()));
  const uint64_t before = node.store(process).room_version();
  node.Settle();
  REQUIRE(node.store(process).room_version() != before);  // Else who waits never looks again.
  CHECK(node.store(process).Create(spec).ok());
}

SCENARIO("no reader takes an object of a page's next holder for one of the holder before") {
  StoreNode node(16 * kMiB);
  const ProcessId first = node.Attach(1);
  const ProcessId second = node.Attach(2);
  const ProcessId reader = node.Attach(3);
  const std::vector<Value> values = Fill(node, first);
  // A view of one object of page 1; all others are gone.
  const auto viewed = std::find_if(values.begin(), values.end(), [](const Value& value) {
    return value.location.slot / kSlotsPerPage == 1;
  });
  REQUIRE(viewed != values.end());
  auto object = node.store(reader).Get(viewed->id, viewed->location);
  REQUIRE(object.ok());
  for (const Value& value : values) Free(node, first, value);
  node.Flush();
  std::map<uint32_t, Value> now;
  for (const Value& value : Fill(node, second)) now[value.location.slot] = value;
  CHECK(now.size() == values.size() - kSlotsPerPage);  // The viewed one keeps its page.
  CHECK(object->bytes.view() == "small");
  for (const Value& old : values) {
    const bool found_old = node.store(reader).Get(old.id, old.location).ok();
    if (found_old != (old.id == viewed->id)) FAIL("at slot " << old.location.slot);
    const auto found = now.find(old.location.slot);
    if (found == now.end()) continue;
    if (found->second.location.generation <= old.location.generation) FAIL("an old generation");
  }
  WHEN("the view ends") {
    object = absl::NotFoundError("dropped");
    node.Advance(kSecond);
    THEN("its page comes back, too") {
      CHECK(node.Put(second, IdOf(second, kSlots + 1), "small").ok());
    }
  }
  CHECK(node.observer.violations.empty());
}

SCENARIO("of a process in the middle of its work only what it does not use comes back") {
  StoreNode node(16 * kMiB);
  const ProcessId process = node.Attach(1);
  const ProcessId other = node.Attach(2);
  for (const Value& value : Fill(node, process, 2000)) Free(node, process, value);
  const ObjectLocation large = *node.Put(process, IdOf(process, 5000), Pattern(2 * kMiB, 1));
  auto written = node.Create(process, {.id = IdOf(process, 5001), .size_bytes = 100});
  REQUIRE(written.ok());
  const ObjectLocation warm = *node.Put(process, IdOf(process, 5002), Pattern(2 * kMiB, 2));
  node.store(process).Free(IdOf(process, 5002), warm);  // Its slot stays bound to warm memory.
  node.Flush();
  REQUIRE(node.store(process).stats().slots >= 2000);
  const std::vector<Value> others = Fill(node, other);
  CHECK(node.store(process).stats().slots <= 3 * kSlotsPerPage);
  CHECK(others.size() + node.store(process).stats().slots == kSlots - kSlots / 16);
  std::memset(written->data(), 'x', 100);
  const ObjectLocation location = node.store(process).Seal(*std::move(written));
  CHECK(node.store(other).Get(IdOf(process, 5001), location)->bytes.view() ==
        std::string(100, 'x'));
  CHECK(node.store(other).Get(IdOf(process, 5000), large)->bytes.view() == Pattern(2 * kMiB, 1));
  CHECK(node.Put(process, IdOf(process, 5003), Pattern(2 * kMiB, 3)).ok());
  CHECK(node.observer.violations.empty());
}

SCENARIO("a page that is granted twice is taken once") {
  StoreNode node(16 * kMiB);
  const ProcessId process = node.Attach(1);
  const std::vector<Value> values = Fill(node, process, kSlotsPerPage);
  const ObjectSpec spec{.id = IdOf(process, 1000), .size_bytes = 5};
  REQUIRE(absl::IsUnavailable(node.store(process).Create(spec).status()));
  const SlotGrant again{.request = node.store(process).stats().requests,
                        .first_page = values[0].location.slot / kSlotsPerPage,
                        .pages = 1};
  node.store(process).OnFrame(kStoreSlotGrant, AsBytes(again));
  CHECK(absl::IsInvalidArgument(node.store(process).Create(spec).status()));
  CHECK(node.store(process).stats().slots == kSlotsPerPage);
  for (const Value& value : values)
    CHECK(node.store(process).Get(value.id, value.location)->bytes.view() == "small");
}

SCENARIO("a return of what is not the sender's, or not free, is refused and harms nobody") {
  StoreNode node(16 * kMiB);
  const ProcessId honest = node.Attach(1);
  const ProcessId wild = node.Attach(2);
  const auto location = node.Put(honest, IdOf(honest, 1), "value");
  const auto own = node.Put(wild, IdOf(wild, 1), "value");
  const SlotPages bad = GENERATE_REF(SlotPages{location->slot / kSlotsPerPage, 1},
                                     SlotPages{own->slot / kSlotsPerPage, 1},  // Sealed there.
                                     SlotPages{kSlots / kSlotsPerPage, UINT32_MAX},
                                     SlotPages{UINT32_MAX, 2}, SlotPages{200, 1});
  node.Inject(wild, kStoreSlotReturn, AsBytes(bad));
  REQUIRE(node.observer.violations.size() == 1);
  CHECK(node.observer.violations[0].first == wild);
  CHECK(node.store(wild).Get(IdOf(honest, 1), *location)->bytes.view() == "value");
  CHECK(node.store(honest).Get(IdOf(wild, 1), *own)->bytes.view() == "value");
  CHECK(node.Put(honest, IdOf(honest, 2), "more").ok());
}

SCENARIO(
    "random puts, frees, views, deaths and shortages: every reader sees the object it asked for") {
  StoreNode node(16 * kMiB);
  const uint64_t seed = GENERATE(range(1, 9));
  SeededRandom random(seed);
  struct Object {
    ObjectId id;
    ObjectLocation location;
    uint64_t content = 0;
  };
  struct Process {
    ProcessId id;
    std::vector<Object> objects;
  };
  struct View {
    Buffer bytes;
    uint64_t content = 0;
  };
  std::vector<Process> processes;
  std::vector<Object> freed;  // At their locations nothing else is ever found.
  std::vector<View> views;
  uint32_t number = 0;
  uint64_t sequence = 0;
  const ProcessId reader = node.Attach(++number);
  for (int i = 0; i < 3; ++i) processes.push_back({node.Attach(++number), {}});
  const auto bytes = [](uint64_t content) { return Pattern(40 + content % 400, content); };
  for (int step = 0; step < 150; ++step) {
    Process& process = processes[random.Below(processes.size())];
    switch (random.Below(6)) {
      case 0:
      case 1: {  // A burst, often more than is left of the table.
        for (uint64_t left = random.Below(6000); left > 0; --left) {
          const ObjectId id = IdOf(process.id, ++sequence);
          const auto location =
              node.Put(process.id, id, bytes(sequence), {.wait = 150 * kMillisecond});
          if (!location.ok()) break;
          process.objects.push_back({id, *location, sequence});
        }
        break;
      }
      case 2:
      case 3: {  // All, or all but a few.
        const bool all = random.OneIn(2);
        std::vector<Object> kept;
        for (const Object& object : process.objects) {
          if (!all && random.OneIn(500)) {
            kept.push_back(object);
            continue;
          }
          node.store(process.id).Free(object.id, object.location);
          if (random.OneIn(20)) freed.push_back(object);
        }
        process.objects = std::move(kept);
        break;
      }
      case 4: {
        if (process.objects.empty()) break;
        const Object& object = process.objects[random.Below(process.objects.size())];
        auto view = node.store(reader).Get(object.id, object.location);
        if (!view.ok()) {  // It was moved to disk.
          REQUIRE(absl::IsNotFound(view.status()));
          break;
        }
        views.push_back({std::move(view->bytes), object.content});
        if (views.size() > 10) views.erase(views.begin());
        break;
      }
      default:
        if (!random.OneIn(3)) break;
        node.Kill(process.id);
        node.server->Adopt(process.id, [](ObjectId) { return false; });
        freed.insert(freed.end(), process.objects.begin(), process.objects.end());
        process = {node.Attach(++number), {}};
        break;
    }
    node.Flush();
    if (random.OneIn(4)) node.Advance(150 * kMillisecond);
    for (const View& view : views) REQUIRE(view.bytes.view() == bytes(view.content));
    if (freed.size() > 2000) freed.erase(freed.begin(), freed.end() - 2000);
    REQUIRE(std::all_of(freed.begin(), freed.end(), [&](const Object& object) {
      const auto found = node.store(reader).Get(object.id, object.location);
      return !found.ok() || found->bytes.view() == bytes(object.content);  // It views it still.
    }));
  }
  views.clear();
  for (Process& process : processes) {
    for (const Object& object : process.objects)
      node.store(process.id).Free(object.id, object.location);
  }
  node.Flush();
  node.Advance(kSecond);
  CHECK(node.server->Stats().objects == 0);
  CHECK(Fill(node, node.Attach(++number)).size() == kSlots - kSlots / 16);
  CHECK(node.observer.violations.empty());
}

}  // namespace slot_pages_test
}  // namespace sheaf
