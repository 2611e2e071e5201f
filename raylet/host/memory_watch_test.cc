// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "raylet/host/memory_watch.h"

#include <sys/mman.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstring>

#include "base/fake_clock.h"
#include "object_store/machine_memory.h"
#include "raylet/host/proc_files.h"
#include "shm/segment.h"

namespace sheaf {
namespace memory_watch_test {

constexpr int64_t kGiB = int64_t{1} << 30;
constexpr MemoryUse kShort{16 * kGiB, kGiB / 2};
constexpr MemoryUse kPlenty{16 * kGiB, 8 * kGiB};

WorkerMemory Worker(uint32_t number, int64_t bytes, Nanos started_at, bool retriable = true) {
  return {{1, number}, bytes, started_at, retriable, ""};
}

ProcessId VictimOf(const std::vector<WorkerMemory>& workers, const MemoryUse& use = kShort) {
  const auto verdict = JudgeMemory({}, use, workers);
  return verdict ? verdict->victim : ProcessId{};
}

struct FakeReader final : MemoryReader {
  MemoryUse ReadUse() override { return use; }
  std::vector<WorkerMemory> ReadWorkers() override {
    ++reads;
    return workers;
  }
  MemoryUse use;
  std::vector<WorkerMemory> workers;
  int reads = 0;
};

SCENARIO("nobody goes while there is memory, or when no worker is the cause") {
  CHECK(VictimOf({Worker(1, 7 * kGiB, 1)}, kPlenty) == ProcessId{});
  CHECK(VictimOf({Worker(1, 7 * kGiB, 1)}, {0, 0}) == ProcessId{});
  CHECK(VictimOf({}) == ProcessId{});
  // The arena fills the memory, or somebody else.
  CHECK(VictimOf({Worker(1, 10 << 20, 1)}) == ProcessId{});
}

SCENARIO(
    "the largest worker goes, of equals the newest, and what can be run again before what cannot") {
  CHECK(VictimOf({Worker(1, 2 * kGiB, 1), Worker(2, 6 * kGiB, 2), Worker(3, kGiB, 3)}) ==
        ProcessId{1, 2});
  CHECK(VictimOf({Worker(1, 6 * kGiB, 1), Worker(2, 6 * kGiB - (100 << 20), 9),
                  Worker(3, 6 * kGiB, 2)}) == ProcessId{1, 2});
  CHECK(VictimOf({Worker(1, 6 * kGiB, 1, false), Worker(2, 2 * kGiB, 2)}) == ProcessId{1, 2});
  CHECK(VictimOf({Worker(1, 6 * kGiB, 1, false), Worker(2, 10 << 20, 2)}) == ProcessId{1, 1});
}

SCENARIO("the evidence names the figures") {
  std::vector<WorkerMemory> workers = {Worker(1, 6 * kGiB, 1), Worker(2, 512 << 20, 1)};
  workers[0].running = "train";
  const auto verdict = JudgeMemory({}, kShort, workers);
  REQUIRE(verdict);
  CHECK(verdict->evidence.starts_with(
      "out of memory: 15.5 GiB of 16.0 GiB were in use (the limit is 95 %), and this worker, "
      "running train, had "
      "6.0 GiB of its own; the node's other 1 workers had 512 MiB together."));
}

SCENARIO("the watch kills one at a time and gives its memory time to come back") {
  FakeClock clock;
  FakeReader reader;
  std::vector<ProcessId> killed;
  MemoryWatch watch({}, clock, reader, [&](ProcessId process, const proto::Death& death) {
    CHECK(death.cause() == proto::Death::OUT_OF_MEMORY);
    killed.push_back(process);
  });
  reader.workers = {Worker(1, 6 * kGiB, 1), Worker(2, 5 * kGiB, 2)};
  reader.use = kPlenty;
  CHECK(watch.Look() - clock.Now() == 250 * kMillisecond);
  CHECK(reader.reads == 0);
  reader.use = kShort;
  const auto look = [&] {
    CHECK(watch.Look() - clock.Now() == 50 * kMillisecond);
    clock.Advance(50 * kMillisecond);
  };
  look();
  CHECK(killed.empty());
  look();
  CHECK(killed == std::vector<ProcessId>{{1, 1}});
  look();
  CHECK(killed.size() == 1);
  clock.Advance(500 * kMillisecond);
  reader.workers = {Worker(2, 5 * kGiB, 2)};
  look();  // One has ended since the last.
  CHECK(killed.size() == 1);
  look();
  CHECK(killed == std::vector<ProcessId>{{1, 1}, {1, 2}});
}

SCENARIO("after the kernel has ended somebody, a worker's child perhaps, the watch waits as well") {
  FakeClock clock;
  FakeReader reader;
  int killed = 0;
  MemoryWatch watch({}, clock, reader, [&](ProcessId, const proto::Death&) { ++killed; });
  reader.workers = {Worker(1, 6 * kGiB, 1)};
  reader.use = kPlenty;
  watch.Look();
  reader.use = kShort;
  reader.use.kernel_kills = 1;
  for (int i = 0; i < 10; ++i) {
    watch.Look();
    clock.Advance(50 * kMillisecond);
  }
  CHECK(killed == 0);
  for (int i = 0; i < 2; ++i) {
    watch.Look();
    clock.Advance(50 * kMillisecond);
  }
  CHECK(killed == 1);
}

SCENARIO("while a worker ends, or has just ended, its memory may be on its way back") {
  FakeClock clock;
  FakeReader reader;
  int killed = 0;
  MemoryWatch watch({}, clock, reader, [&](ProcessId, const proto::Death&) { ++killed; });
  const auto look = [&] {
    watch.Look();
    clock.Advance(50 * kMillisecond);
  };
  reader.use = kShort;
  reader.workers = {Worker(1, 6 * kGiB, 1), Worker(2, 5 * kGiB, 2)};
  look();
  reader.workers[0].anonymous_bytes = 0;  // The kernel has killed it.
  for (int i = 0; i < 20; ++i) look();
  reader.workers.erase(reader.workers.begin());
  look();
  CHECK(killed == 0);
  SECTION("and it comes back") {
    reader.use = kPlenty;
    look();
    reader.use = kShort;
    look();
    CHECK(killed == 0);
    look();
    CHECK(killed == 1);
  }
  SECTION("and it does not") {
    look();
    CHECK(killed == 1);
  }
}

#ifndef SHEAF_TSAN  // Whose shadow of the arena is anonymous memory.
SCENARIO("anonymous memory of a real process leaves the arena out") {
  const int64_t before = AnonymousBytes(getpid());
  CHECK(before > 0);
  constexpr size_t kBytes = 64 << 20;
  const UniqueFd segment = *MakeSegment("arena", kBytes);
  const Mapping arena = *Mapping::Map(segment.get(), 0, kBytes, Access::kReadWrite);
  std::memset(arena.data(), 1, kBytes);
  CHECK(AnonymousBytes(getpid()) - before < 8 << 20);
  void* const own =
      mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  std::memset(own, 1, kBytes);
  CHECK(AnonymousBytes(getpid()) - before > 56 << 20);
  munmap(own, kBytes);
  CHECK(AnonymousBytes(1 << 29) == 0);
}
#endif

}  // namespace memory_watch_test
}  // namespace sheaf
