// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Rows 26 to 28: no memory for objects, no disk to spill them to, and spilled objects that are
// damaged.
#include <fcntl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <iostream>
#include <sstream>

#include "tests/integration/faults/oracle.h"

namespace faults {
namespace {

using Ref = sheaf::ObjectRef<std::vector<uint64_t>>;
using View = sheaf::Array<uint64_t>;

constexpr int64_t kStore = 64 << 20;
constexpr size_t kCount = 500'000;         // 4 MB.
constexpr uint64_t kKeptFree = 256 << 20;  // Of the disk, by the store.

std::vector<uint64_t> StoreMake(uint64_t id) { return Values(id, kCount); }
uint64_t StoreSmall(uint64_t x) { return Mix(x); }

View ViewOf(const Ref& ref) { return sheaf::Get(sheaf::ObjectRef<View>(ref), 30s); }

SHEAF_REMOTE(StoreMake, StoreSmall);

// A /dev/shm of our own that is full: a foreign program has taken it. False: no right to.
class FullSharedMemory {
 public:
  FullSharedMemory() {
    const Scratch namespace_of_our_own(1 << 20);
    ok_ = namespace_of_our_own.ok() && mount("sheaf-fault", "/dev/shm", "tmpfs", 0, "size=1m") == 0;
    if (ok_) full_.emplace("/dev/shm");
  }
  ~FullSharedMemory() {
    full_.reset();
    if (ok_) umount2("/dev/shm", MNT_DETACH);
  }
  bool ok() const { return ok_; }

 private:
  bool ok_ = false;
  std::optional<FullDisk> full_;
};

}  // namespace

TEST_CASE(
    "row 26: what is pinned is twice the store, and /dev/shm is full: StoreFull within the "
    "deadline",
    "[row26]") {
  const FullSharedMemory full;
  if (!full.ok())
    std::cout << "row 26: without a full /dev/shm, for want of the right to mount one" << std::endl;
  NodeOptions options;
  options.store_bytes = kStore;
  Node node(options);
  double slowest = 0;
  int refused = 0;
  const int rounds = Count(2, 30);
  for (int round = 0; round < rounds; ++round) {
    std::vector<View> views;
    std::vector<uint64_t> ids;
    for (uint64_t i = 0; i < 32; ++i) {  // 128 MB in all.
      const uint64_t id = seed + 100 * static_cast<uint64_t>(round) + i;
      const auto begin = Clock::now();
      std::string error;
      auto ref = PutWithin(id, kCount, 200ms, &error);
      slowest = std::max(slowest, Seconds(Clock::now() - begin));
      if (!ref.has_value()) {
        ++refused;
        continue;
      }
      views.push_back(ViewOf(*ref));
      ids.push_back(id);
    }
    CHECK(views.size() >= 8);
    CHECK(views.size() <= 16);
    for (size_t i = 0; i < views.size(); ++i) CHECK(AreValues(views[i].span(), ids[i], kCount));
    // Small work needs no room.
    CHECK(sheaf::Get(sheaf::Task(StoreSmall).Remote(seed), 20s) == Mix(seed));
    views.resize(views.size() / 2);
    std::string error;
    const auto after = PutWithin(seed, kCount, 10s, &error);
    INFO(error);
    CHECK(after.has_value());
  }
  CHECK(slowest < 5);
  node.RequireQuiet();
  std::ostringstream words;
  words << rounds << " times twice the store pinned, " << refused
        << " puts refused with ObjectStoreFull, the slowest after " << slowest
        << " s of 0.2 allowed" << (full.ok() ? ", /dev/shm full all the time" : "");
  Figures("26", words.str());
}

TEST_CASE(
    "row 26: what is held but not viewed is spilled, four times the store, and comes back right",
    "[row26]") {
  NodeOptions options;
  options.store_bytes = kStore;
  Node node(options);
  std::vector<Ref> refs;
  for (uint64_t i = 0; i < 64; ++i) {
    std::string error;
    auto ref = PutWithin(seed + i, kCount, 20s, &error);
    INFO(error);
    REQUIRE(ref.has_value());
    refs.push_back(*ref);
  }
  CHECK(StateOfNode().spilled_bytes > 0);
  for (uint64_t i = 0; i < refs.size(); ++i)
    CHECK(AreValues(ViewOf(refs[i]).span(), seed + i, kCount));
  refs.clear();
  node.RequireQuiet();
}

TEST_CASE(
    "row 27: the disk for spilled objects is full: back-pressure, nothing dropped, and it goes on "
    "when freed",
    "[row27]") {
  const Scratch disk(kKeptFree + (96 << 20));
  if (!disk.ok()) {
    std::cout << "SKIPPED: row 27 needs the right to mount a tmpfs" << std::endl;
    return;
  }
  NodeOptions options;
  options.store_bytes = kStore;
  options.directory = disk.path() + "/sheaf";
  Node node(options);
  int refused = 0;
  const int rounds = Count(1, 10);
  for (int round = 0; round < rounds; ++round) {
    std::vector<Ref> refs;
    const auto put = [&](std::chrono::milliseconds bound) {
      std::string error;
      auto ref = PutWithin(seed + refs.size(), kCount, bound, &error);
      if (ref.has_value()) refs.push_back(*ref);
      return ref.has_value();
    };
    std::optional<FullDisk> full(disk.path());
    while (refs.size() < 100 && put(300ms)) {
    }
    CHECK(refs.size() >= 8);
    CHECK(refs.size() <= 16);  // Memory alone.
    ++refused;
    full.reset();
    const size_t before = refs.size();
    while (refs.size() < 100 && put(3000ms)) {
    }
    CHECK(refs.size() > before + 8);  // And now the disk.
    CHECK(refs.size() < 100);         // Which is full again, of objects.
    // Memory and disk both full: what is on the disk can be read again once most is dropped.
    for (size_t i = 0; i < refs.size(); ++i) {
      if (i % 4 != 1) refs[i] = {};
    }
    for (uint64_t i = 1; i < refs.size(); i += 4)
      CHECK(AreValues(ViewOf(refs[i]).span(), seed + i, kCount));
  }
  node.RequireQuiet();
  std::ostringstream words;
  words << rounds << " times full, " << refused << " times resumed when freed, every object right";
  Figures("27", words.str());
}

TEST_CASE("row 27: writes of spilled objects fail now and then: every object is there", "[row27]") {
  NodeOptions options;
  options.store_bytes = kStore;
  options.failpoints = "store.spill.write:error%0.2:" + std::to_string(seed) +
                       ",store.spill.begin:error%0.1:" + std::to_string(seed);
  Node node(options);
  std::vector<Ref> refs;
  for (uint64_t i = 0; i < 40; ++i) {
    std::string error;
    auto ref = PutWithin(seed + i, kCount, 20s, &error);
    INFO(error);
    REQUIRE(ref.has_value());
    refs.push_back(*ref);
  }
  for (uint64_t i = 0; i < refs.size(); ++i)
    CHECK(AreValues(ViewOf(refs[i]).span(), seed + i, kCount));
  refs.clear();
  node.RequireQuiet();
}

TEST_CASE(
    "row 27: the process that spills is killed in the middle of a write: all waits end, and the "
    "next node is clean",
    "[row27]") {
  const Scratch scratch;
  {
    NodeOptions options;
    options.store_bytes = kStore;
    options.directory = scratch.path() + "/sheaf";
    options.failpoints = "store.spill.write:kill@" + std::to_string(1 + Mix(seed) % 5);
    Node node(options);
    node.ExpectDeath();
    const auto begin = Clock::now();
    std::vector<Ref> refs;
    sheaf::ErrorKind kind = sheaf::ErrorKind::kNone;
    try {
      for (uint64_t i = 0; i < 64; ++i) {
        std::string error;
        auto ref = PutWithin(seed + i, kCount, 20s, &error);
        if (ref.has_value()) refs.push_back(*ref);
      }
    } catch (const sheaf::Error& error) {
      kind = error.kind();
    }
    CHECK(kind == sheaf::ErrorKind::kRayletDied);
    CHECK(Clock::now() - begin < 15s);
  }
  NodeOptions options;
  options.store_bytes = kStore;
  options.directory = scratch.path() + "/sheaf";
  Node node(options);
  CHECK(sheaf::Get(sheaf::Task(StoreSmall).Remote(seed), 20s) == Mix(seed));
  size_t sessions = 0;
  for (const auto& entry : std::filesystem::directory_iterator(options.directory)) {
    sessions += entry.path().filename().string().starts_with("session-");
  }
  CHECK(sessions == 1);  // The dead node's, with what it spilled, is gone.
  node.RequireQuiet();
}

TEST_CASE(
    "row 28: spilled objects are truncated, flipped or deleted: made again, or ObjectLost, never "
    "wrong",
    "[row28]") {
  NodeOptions options;
  options.store_bytes = kStore;
  Node node(options);
  size_t right = 0, lost = 0, again = 0, damaged = 0;
  const int rounds = Count(3, 30);
  for (int round = 0; round < rounds; ++round) {
    std::vector<Ref> put, made;
    const uint64_t base = seed + 1000 * static_cast<uint64_t>(round);
    for (uint64_t i = 0; i < 16; ++i) {
      std::string error;
      auto ref = PutWithin(base + i, kCount, 20s, &error);
      INFO(error);
      REQUIRE(ref.has_value());
      put.push_back(*ref);
      made.push_back(sheaf::Task(StoreMake).Retries(-1).Remote(base + 100 + i));
      sheaf::Wait(std::vector{made.back()}, 1, 30s);
    }
    const std::vector<std::string> files = node.SpillFiles();
    CHECK(!files.empty());
    for (size_t i = 0; i < files.size(); ++i) {
      std::error_code gone;
      const uint64_t size = std::filesystem::file_size(files[i], gone);
      if (gone || size == 0) continue;
      ++damaged;
      switch ((i + static_cast<size_t>(round)) % 3) {
        case 0:
          if (truncate(files[i].c_str(), static_cast<off_t>(size / 2)) != 0) --damaged;
          break;
        case 1: {
          const int fd = open(files[i].c_str(), O_RDWR | O_CLOEXEC);
          char byte = 0;
          const off_t at = static_cast<off_t>(Mix(seed + i) % size);
          if (pread(fd, &byte, 1, at) != 1) --damaged;
          byte = static_cast<char>(byte ^ 0x10);
          if (pwrite(fd, &byte, 1, at) != 1) --damaged;
          close(fd);
          break;
        }
        default:
          unlink(files[i].c_str());
      }
    }
    for (uint64_t i = 0; i < 16; ++i) {
      const auto value = sheaf::TryGet(sheaf::ObjectRef<View>(put[i]), 30s);
      if (value.ok()) {
        ++right;
        CHECK(AreValues(value->span(), base + i, kCount));
      } else {
        ++lost;
        CHECK(value.kind() == sheaf::ErrorKind::kObjectLost);
      }
      const auto remade = sheaf::TryGet(sheaf::ObjectRef<View>(made[i]), 30s);
      INFO((remade.ok() ? std::string("there") : remade.error().message));
      CHECK(remade.ok());
      if (remade.ok()) CHECK(AreValues(remade->span(), base + 100 + i, kCount));
      ++again;
    }
  }
  CHECK(damaged > 0);
  CHECK(sheaf::Get(sheaf::Task(StoreSmall).Remote(seed), 20s) == Mix(seed));
  node.RequireQuiet();
  std::ostringstream words;
  words << damaged << " files damaged; of " << right + lost << " values that were put " << lost
        << " ObjectLost, the others right; " << again
        << " results of tasks there, made again where need be";
  Figures("28", words.str());
}

}  // namespace faults
