// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Files of spilled objects, and what the store does when memory is short.
#include "object_store/server/spill.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include <fstream>

#include "base/failpoint.h"
#include "object_store/store_node_for_test.h"

namespace sheaf {
namespace spill_test {

std::span<const std::byte> BytesOf(const std::string& text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

SCENARIO("a spill file gives back what was written, or says that it cannot") {
  ScratchDirectory directory;
  const std::string path = directory.path() + "/spill";
  auto spill = FileSpill::Open({.directory = path, .min_free_bytes = 0});
  REQUIRE(spill.ok());
  const std::string one = Pattern(1000, 1);
  const std::string two = Pattern(300'000, 2);
  const std::vector pieces{BytesOf(one), BytesOf(two)};
  const auto records = (*spill)->Write(5, pieces);
  REQUIRE(records.ok());
  const std::string file = (*spill)->PathOf(5);
  struct stat attributes;
  REQUIRE(stat(file.c_str(), &attributes) == 0);
  CHECK((attributes.st_mode & 0777) == 0600);
  REQUIRE(stat(path.c_str(), &attributes) == 0);
  CHECK((attributes.st_mode & 0777) == 0700);
  std::string back(two.size(), '\0');
  const auto read = [&] {
    return (*spill)->Read((*records)[1], 0, std::as_writable_bytes(std::span(back)));
  };
  THEN("whole") {
    REQUIRE(read().ok());
    CHECK(back == two);
  }
  THEN("a flipped bit is data loss") {
    std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
    stream.seekp(150'000);
    stream.put(static_cast<char>(two[149'000] ^ 4));
    stream.close();
    CHECK(absl::IsDataLoss(read()));
  }
  THEN("a truncated file is data loss") {
    REQUIRE(truncate(file.c_str(), 200'000) == 0);
    CHECK(absl::IsDataLoss(read()));
  }
  THEN("a deleted file is data loss") {
    (*spill)->Remove(5);
    CHECK(absl::IsDataLoss(read()));
  }
  THEN("a later raylet removes it") {
    REQUIRE(FileSpill::Open({.directory = path, .min_free_bytes = 0}).ok());
    CHECK(access(file.c_str(), F_OK) != 0);
  }
}

SCENARIO("a long file says how far it has come to the disk before it is complete") {
  ScratchDirectory directory;
  auto spill = FileSpill::Open({.directory = directory.path(), .min_free_bytes = 0});
  REQUIRE(spill.ok());
  const std::string first = Pattern(3 * kMiB + 5, 1), second = Pattern(14 * kMiB, 2);
  const std::span<const std::byte> pieces[] = {std::as_bytes(std::span(first)),
                                               std::as_bytes(std::span(second))};
  const auto records = (*spill)->Write(1, pieces);
  REQUIRE(records.ok());
  CHECK((*spill)->BytesWritten() == 12 * kMiB);  // Of 17, all strides but the one under way.
  std::string back(second.size(), '\0');
  CHECK((*spill)->Read((*records)[1], 0, std::as_writable_bytes(std::span(back))).ok());
  CHECK(back == second);
}

SCENARIO("a full disk is said to be full, and no part of a file stays") {
  ScratchDirectory directory;
  auto spill =
      FileSpill::Open({.directory = directory.path(), .min_free_bytes = uint64_t{1} << 62});
  const std::string bytes(1000, 'x');
  const std::vector pieces{BytesOf(bytes)};
  CHECK(absl::IsResourceExhausted((*spill)->Write(1, pieces).status()));
  CHECK(access((*spill)->PathOf(1).c_str(), F_OK) != 0);
}

// Puts objects of `size` bytes until twice the store is put, and returns their locations.
std::vector<ObjectLocation> Overfill(StoreNode& node, ProcessId writer, size_t size) {
  std::vector<ObjectLocation> locations;
  const uint64_t capacity = node.server->Stats().capacity_bytes;
  for (uint64_t put = 0; put < 2 * capacity; put += size) {
    const uint64_t i = locations.size();
    const auto location = node.Put(writer, IdOf(writer, i), Pattern(size, i));
    INFO(i << " " << location.status());
    REQUIRE(location.ok());
    locations.push_back(*location);
  }
  return locations;
}

SCENARIO("what does not fit is spilled and comes back when asked for") {
  StoreNode node(16 * kMiB);
  const ProcessId writer = node.Attach(1);
  const ProcessId reader = node.Attach(2);
  const size_t size = GENERATE(100'000, 1'500'000);
  const std::vector<ObjectLocation> locations = Overfill(node, writer, size);
  node.Flush();
  CHECK(node.server->Stats().spilled_bytes > 0);
  CHECK(node.server->Stats().objects == locations.size());
  uint64_t restored = 0;
  for (size_t i = 0; i < locations.size(); ++i) {
    const ObjectId id = IdOf(writer, i);
    auto object = node.store(reader).Get(id, locations[i]);
    if (!object.ok()) {
      ++restored;
      const auto found = node.Lookup(reader, id);
      INFO(found.status());
      REQUIRE(found.ok());
      object = node.store(reader).Get(id, *found);
    }
    REQUIRE(object.ok());
    REQUIRE(object->bytes.view() == Pattern(size, i));
  }
  CHECK(restored > 0);
  AND_WHEN("all are freed") {
    for (size_t i = 0; i < locations.size(); ++i)
      node.store(writer).Free(IdOf(writer, i), locations[i]);
    node.Flush();
    node.Advance(kSecond);
    THEN("no object and no file is left") {
      CHECK(node.server->Stats().objects == 0);
      CHECK(node.server->Stats().spilled_bytes == 0);
      CHECK(std::filesystem::is_empty(node.directory.path() + "/spill"));
    }
  }
}

SCENARIO("small objects come back side by side, not a granule each") {
  StoreNode node(16 * kMiB);
  const ProcessId writer = node.Attach(1);
  const ProcessId reader = node.Attach(2);
  constexpr size_t kSmall = 8000;
  const std::vector<ObjectLocation> locations = Overfill(node, writer, kSmall);
  node.Flush();
  // A granule each would be 25 MiB, more than the store has, and all are looked at at once.
  constexpr size_t kCount = 400;
  std::vector<Buffer> views;
  for (uint64_t i = 0; i < locations.size() && views.size() < kCount; ++i) {
    const ObjectId id = IdOf(writer, i);
    if (node.store(reader).Get(id, locations[i]).ok()) continue;  // In memory.
    const auto found = node.Lookup(reader, id);
    INFO(i << ", " << views.size() << " are back: " << found.status());
    REQUIRE(found.ok());
    views.push_back(node.store(reader).Get(id, *found)->bytes);
    REQUIRE(views.back().view() == Pattern(kSmall, i));
  }
  CHECK(views.size() == kCount);
  CHECK(node.server->Stats().restores >= kCount);
  WHEN("they are freed") {
    views.clear();
    for (size_t i = 0; i < locations.size(); ++i)
      node.store(writer).Free(IdOf(writer, i), locations[i]);
    node.Flush();
    node.Advance(kSecond);
    CHECK(node.server->Stats().objects == 0);
    CHECK(node.server->Stats().spilled_bytes == 0);
  }
}

SCENARIO("what is on disk is not looked at when more has to go there") {
  StoreNode node(16 * kMiB);
  ObjectTable table(node.arena->data(), ArenaShape::For(16 * kMiB), 1);
  std::vector<std::shared_ptr<ObjectRecord>> records;
  for (uint64_t i = 0; i < 1000; ++i) {
    records.push_back(std::make_shared<ObjectRecord>());
    records.back()->info.id = ObjectId::Make({1, 1}, i + 1);
    table.Insert(records.back());
    if (i < 990) table.SetPlace(*records.back(), ObjectPlace::kDisk);
  }
  const auto visited = [&] {
    std::vector<ObjectRecord*> seen;
    table.ForEachLeastUsed([&](const std::shared_ptr<ObjectRecord>& record) {
      seen.push_back(record.get());
      return true;
    });
    return seen;
  };
  CHECK(visited().size() == 10);
  table.Touch(*records[0]);
  CHECK(visited().size() == 10);
  table.SetPlace(*records[0], ObjectPlace::kMemory);
  REQUIRE(visited().size() == 11);
  CHECK(visited().back() == records[0].get());
  table.Remove(*records[0]);
  CHECK(visited().size() == 10);
}

SCENARIO("a viewed object is never spilled; when all are viewed, the store says that it is full") {
  StoreNode node(16 * kMiB);
  const ProcessId writer = node.Attach(1);
  const ProcessId reader = node.Attach(2);
  std::vector<Buffer> views;
  absl::Status refused;
  const Nanos begin = node.clock.Now();
  for (int i = 0; refused.ok() && i < 20; ++i) {
    const auto location =
        node.Put(writer, IdOf(writer, i), Pattern(2 * kMiB, i), {.wait = 3 * kSecond});
    if (!location.ok()) {
      refused = location.status();
      break;
    }
    views.push_back(node.store(reader).Get(IdOf(writer, i), *location)->bytes);
  }
  CHECK(absl::IsResourceExhausted(refused));
  CHECK(StoreErrorKind(refused) == ErrorKind::kObjectStoreFull);
  CHECK(node.clock.Now() - begin < 4 * kSecond);
  CHECK(views.size() >= 7);
  for (size_t i = 0; i < views.size(); ++i) CHECK(views[i].view() == Pattern(2 * kMiB, i));
  CHECK(absl::IsResourceExhausted(
      node.Put(writer, IdOf(writer, 99), Pattern(17 * kMiB, 0)).status()));
  WHEN("a view is dropped") {
    views.pop_back();
    THEN("there is room again") {
      CHECK(node.Put(writer, IdOf(writer, 100), Pattern(2 * kMiB, 100)).ok());
    }
  }
}

SCENARIO("while the disk is full nothing is lost, and when there is room puts go on") {
  StoreNode node(16 * kMiB, {}, /*min_free_disk_bytes=*/uint64_t{1} << 62);
  const ProcessId writer = node.Attach(1);
  std::vector<ObjectLocation> locations;
  absl::Status refused;
  for (int i = 0; i < 20; ++i) {
    const auto location =
        node.Put(writer, IdOf(writer, i), Pattern(2 * kMiB, i), {.wait = 3 * kSecond});
    if (!location.ok()) {
      refused = location.status();
      break;
    }
    locations.push_back(*location);
  }
  CHECK(StoreErrorKind(refused) == ErrorKind::kOutOfDisk);
  for (size_t i = 0; i < locations.size(); ++i) {
    CHECK(node.store(writer).Get(IdOf(writer, i), locations[i])->bytes.view() ==
          Pattern(2 * kMiB, i));
  }
  REQUIRE(ArmFailpoints("store.spill.write:error@1", 0).ok());  // Broken in another way, once.
  node.Put(writer, IdOf(writer, 50), Pattern(2 * kMiB, 50), {.wait = kSecond}).IgnoreError();
  REQUIRE(ArmFailpoints("", 0).ok());
}

SCENARIO("who waits for room waits as long as a slow disk goes on, and no longer than is said") {
  StoreNode node(16 * kMiB);
  const ProcessId writer = node.Attach(1);
  uint64_t sequence = 0;
  for (int i = 0; i < 7; ++i) {
    REQUIRE(node.Put(writer, IdOf(writer, ++sequence), Pattern(2 * kMiB, i)).ok());
  }
  node.disk_stopped = true;
  struct Wait {
    ObjectId id;
    absl::Status outcome = absl::UnavailableError("it waits");
    Nanos took = 0;
  };
  std::vector<Wait> waits;
  const Nanos begin = node.clock.Now();
  const auto ask = [&](Wait& wait, size_t bytes) {
    if (!absl::IsUnavailable(wait.outcome)) return;
    auto buffer =
        node.store(writer).Create({.id = wait.id, .size_bytes = bytes, .wait = 3 * kSecond});
    wait.outcome = buffer.status();
    wait.took = node.clock.Now() - begin;
    if (buffer.ok()) node.store(writer).Seal(*std::move(buffer));
  };
  const auto begin_waits = [&](int count) {
    for (int i = 0; i < count; ++i) waits.push_back({.id = IdOf(writer, ++sequence)});
  };
  // `period`: of one file of the disk; 0: it hangs.
  const auto pass = [&](Nanos duration, Nanos period, size_t bytes) {
    for (Nanos passed = 0; passed < duration; passed += 100 * kMillisecond) {
      for (Wait& wait : waits) ask(wait, bytes);
      node.Flush();
      if (period != 0 && passed % period == period - 100 * kMillisecond) node.disk.RunOne();
      node.Advance(100 * kMillisecond);
    }
  };
  GIVEN("several who wait at once, each for a file that takes most of their time") {
    begin_waits(5);
    pass(14 * kSecond, 2 * kSecond, 2 * kMiB);
    THEN("all get room") {
      for (const Wait& wait : waits) CHECK(wait.outcome == absl::OkStatus());
      CHECK(waits.back().took > 6 * kSecond);
    }
  }
  GIVEN("a disk that hangs") {
    begin_waits(3);
    pass(7 * kSecond, 0, 2 * kMiB);
    THEN("they are refused, once their time is over behind the last that it did") {
      CHECK(waits[0].outcome == absl::OkStatus());  // There was room for one more.
      for (size_t i = 1; i < waits.size(); ++i) {
        CHECK(StoreErrorKind(waits[i].outcome) == ErrorKind::kObjectStoreFull);
        CHECK(waits[i].took >= 3 * kSecond);
        CHECK(waits[i].took <= 4 * kSecond);
      }
    }
  }
  GIVEN("a disk that goes on for others only") {
    // 14 MiB in one piece never come together: a viewed object lies in the middle.
    begin_waits(1);
    node.disk_stopped = false;
    const ObjectId middle = IdOf(writer, 4);
    const auto where = node.Lookup(writer, middle);
    REQUIRE(where.ok());
    const auto view = node.store(writer).Get(middle, *where);
    REQUIRE(view.ok());
    for (Nanos passed = 0; passed < 40 * kSecond; passed += 500 * kMillisecond) {
      ask(waits[0], 14 * kMiB);
      node.Put(writer, IdOf(writer, ++sequence), Pattern(kMiB, 2), {.wait = kSecond}).IgnoreError();
      node.Advance(500 * kMillisecond);
    }
    THEN("its wait has an end all the same") {
      CHECK(StoreErrorKind(waits[0].outcome) == ErrorKind::kObjectStoreFull);
      CHECK(waits[0].took > 6 * kSecond);  // The disk did go on.
      CHECK(waits[0].took <= 31 * kSecond);
    }
  }
  node.disk_stopped = false;
  node.Settle();
}

SCENARIO("a write to disk that fails midway is tried again, with the copy in memory kept") {
  StoreNode node(16 * kMiB);
  const ProcessId writer = node.Attach(1);
  REQUIRE(ArmFailpoints("store.spill.write:error@1,store.spill.write:error@2", 0).ok());
  const std::vector<ObjectLocation> locations = Overfill(node, writer, 2 * kMiB);
  REQUIRE(ArmFailpoints("", 0).ok());
  for (size_t i = 0; i < locations.size(); ++i) {
    auto object = node.store(writer).Get(IdOf(writer, i), locations[i]);
    if (!object.ok())
      object = node.store(writer).Get(IdOf(writer, i), *node.Lookup(writer, IdOf(writer, i)));
    CHECK(object->bytes.view() == Pattern(2 * kMiB, i));
  }
}

SCENARIO("an object whose spilled copy is damaged is lost with a typed error, never wrong") {
  StoreNode node(16 * kMiB);
  const ProcessId writer = node.Attach(1);
  const std::vector<ObjectLocation> locations = Overfill(node, writer, 2 * kMiB);
  const int damage = GENERATE(0, 1, 2);
  for (const auto& entry : std::filesystem::directory_iterator(node.directory.path() + "/spill")) {
    const std::string path = entry.path().string();
    if (damage == 0) std::filesystem::resize_file(path, 100);
    if (damage == 1) std::filesystem::remove(path);
    if (damage == 2) {
      std::fstream stream(path, std::ios::in | std::ios::out | std::ios::binary);
      const auto size = std::filesystem::file_size(path);
      for (uint64_t at = kMiB; at < size; at += 2 * kMiB) stream.seekp(at).write("wrong", 5);
    }
  }
  int lost = 0;
  for (size_t i = 0; i < locations.size(); ++i) {
    auto object = node.store(writer).Get(IdOf(writer, i), locations[i]);
    if (object.ok()) {
      CHECK(object->bytes.view() == Pattern(2 * kMiB, i));
      continue;
    }
    const auto found = node.Lookup(writer, IdOf(writer, i));
    if (found.ok()) {  // Spilled after the damage was done, to make room for a restoration.
      CHECK(node.store(writer).Get(IdOf(writer, i), *found)->bytes.view() == Pattern(2 * kMiB, i));
      continue;
    }
    CHECK(absl::IsDataLoss(found.status()));
    CHECK(StoreErrorKind(found.status()) == ErrorKind::kObjectLost);
    ++lost;
  }
  CHECK(lost > 0);
  CHECK(node.observer.lost.size() == static_cast<size_t>(lost));
  CHECK(node.Put(writer, IdOf(writer, 500), "still alive").ok());
}

SCENARIO("an object that is freed while it is written, or restored, leaves nothing") {
  StoreNode node(16 * kMiB);
  const ProcessId writer = node.Attach(1);
  std::vector<ObjectLocation> locations;
  for (int i = 0; i < 7; ++i) {
    locations.push_back(node.Put(writer, IdOf(writer, i), Pattern(2 * kMiB, i)).value());
  }
  node.disk_stopped = true;
  auto pending = node.store(writer).Create({.id = IdOf(writer, 10), .size_bytes = 4 * kMiB});
  node.Flush();
  REQUIRE(node.disk.waiting() > 0);  // It would be written now.
  for (int i = 0; i < 7; ++i) node.store(writer).Free(IdOf(writer, i), locations[i]);
  node.Flush();
  node.disk_stopped = false;
  REQUIRE(node.Put(writer, IdOf(writer, 10), Pattern(4 * kMiB, 10)).ok());
  node.Flush();
  node.Advance(kSecond);
  CHECK(node.server->Stats().objects == 1);
  CHECK(std::filesystem::is_empty(node.directory.path() + "/spill"));
}

SCENARIO("an object that is viewed while it is written to disk stays in memory") {
  StoreNode node(16 * kMiB);
  const ProcessId writer = node.Attach(1);
  std::vector<ObjectLocation> locations;
  for (int i = 0; i < 7; ++i) {
    locations.push_back(node.Put(writer, IdOf(writer, i), Pattern(2 * kMiB, i)).value());
  }
  node.disk_stopped = true;
  REQUIRE(absl::IsUnavailable(
      node.store(writer).Create({.id = IdOf(writer, 10), .size_bytes = 4 * kMiB}).status()));
  node.Flush();
  REQUIRE(node.disk.waiting() > 0);
  std::vector<Buffer> views;
  for (int i = 0; i < 7; ++i)
    views.push_back(node.store(writer).Get(IdOf(writer, i), locations[i])->bytes);
  node.disk_stopped = false;
  const auto put = node.Put(writer, IdOf(writer, 10), Pattern(4 * kMiB, 10), {.wait = kSecond});
  CHECK(absl::IsResourceExhausted(put.status()));
  for (int i = 0; i < 7; ++i) CHECK(views[i].view() == Pattern(2 * kMiB, i));
  views.clear();
  CHECK(node.Put(writer, IdOf(writer, 11), Pattern(4 * kMiB, 11)).ok());
}

SCENARIO("lack of memory is an error of the put, not a signal") {
  StoreNode node(64 * kMiB);
  const ProcessId writer = node.Attach(1);
  const auto first = node.Put(writer, IdOf(writer, 1), Pattern(8 * kMiB, 1));
  REQUIRE(first.ok());
  node.memory = {.limit_bytes = 100 << 20,
                 .available_bytes = 1 << 20};  // From now on there is none.
  WHEN("others can be spilled, their memory is used") {
    for (int i = 2; i < 10; ++i) {
      const auto location =
          node.Put(writer, IdOf(writer, i), Pattern(6 * kMiB, i), {.wait = 5 * kSecond});
      INFO(location.status());
      CHECK(location.ok());
    }
    CHECK(node.server->Stats().spilled_bytes > 0);
  }
  WHEN("all is viewed, the put is refused in time") {
    const Buffer view = node.store(writer).Get(IdOf(writer, 1), *first)->bytes;
    const auto second =
        node.Put(writer, IdOf(writer, 2), Pattern(30 * kMiB, 2), {.wait = 2 * kSecond});
    CHECK(StoreErrorKind(second.status()) == ErrorKind::kObjectStoreFull);
    CHECK(view.view() == Pattern(8 * kMiB, 1));
  }
}

SCENARIO("memory that nobody used for long goes back to the machine") {
  StoreNode node(64 * kMiB);
  const ProcessId writer = node.Attach(1);
  CHECK(node.server->Stats().populated_bytes == 4 * kMiB);
  const auto location = node.Put(writer, IdOf(writer, 1), Pattern(32 * kMiB, 1));
  node.store(writer).Free(IdOf(writer, 1), *location);
  node.Flush();
  CHECK(node.server->Stats().populated_bytes >= 32 * kMiB);
  for (int second = 0; second < 30; ++second) node.Advance(kSecond);
  CHECK(node.server->Stats().used_bytes == 0);
  CHECK(node.server->Stats().populated_bytes <= 5 * kMiB);
}

SCENARIO("a stopped process keeps idle extents from nobody") {
  StoreNode node(16 * kMiB);
  const ProcessId stopped = node.Attach(1);
  const ProcessId other = node.Attach(2);
  const auto location = node.Put(stopped, IdOf(stopped, 1), Pattern(14 * kMiB, 1));
  node.store(stopped).Free(IdOf(stopped, 1), *location);
  node.Flush();
  node.clients.at(stopped).stopped = true;
  CHECK(node.store(stopped).stats().held_bytes >= 14 * kMiB);
  CHECK(node.Put(other, IdOf(other, 1), Pattern(14 * kMiB, 2)).ok());
  AND_WHEN("it goes on") {
    node.clients.at(stopped).stopped = false;
    THEN("it has lost that extent and asks for another") {
      CHECK(node.Put(stopped, IdOf(stopped, 2), Pattern(14 * kMiB, 3)).ok());
      const auto first = node.Lookup(other, IdOf(other, 1));
      REQUIRE(first.ok());
      CHECK(node.store(other).Get(IdOf(other, 1), *first)->bytes.view() == Pattern(14 * kMiB, 2));
    }
  }
}

}  // namespace spill_test
}  // namespace sheaf
