// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "object_store/server/room_queue.h"

#include <catch2/catch.hpp>

#include "object_store/server/store_parts_for_test.h"

namespace sheaf::store_parts_test {
namespace room_queue_test {

// One who waits, and what became of it.
struct Waiter {
  std::shared_ptr<RoomRequest> request = std::make_shared<RoomRequest>();
  std::vector<ExtentRange> granted;
  std::vector<StoreRefusalReason> refused;
};

std::shared_ptr<Waiter> Ask(Parts& parts, uint64_t bytes, Nanos wait = kSecond,
                            ProcessId process = {}) {
  auto waiter = std::make_shared<Waiter>();
  RoomRequest& request = *waiter->request;
  request.process = process;
  request.number = 9;
  request.bytes = bytes;
  request.since = parts.clock.Now();
  request.deadline = request.since + wait;
  std::weak_ptr<Waiter> weak = waiter;
  request.granted = [weak](ExtentRange range) { weak.lock()->granted.push_back(range); };
  request.refused = [weak](StoreRefusalReason why) { weak.lock()->refused.push_back(why); };
  parts.room.Add(waiter->request);
  return waiter;
}

TEST_CASE("room that is free is given at once") {
  Parts parts;
  const auto waiter = Ask(parts, 2 * kG);
  REQUIRE(waiter->granted.size() == 1);
  CHECK(waiter->granted[0].bytes == 2 * kG);
  CHECK(parts.room.empty());
  CHECK(parts.asked_for_unused == 0);
}

SCENARIO("who finds no room waits in turn") {
  Parts parts;
  Extent* all = parts.Fill();
  const auto first = Ask(parts, 16 * kG);
  const auto second = Ask(parts, 16 * kG);
  CHECK(parts.room.size() == 2);
  CHECK(parts.asked_for_unused > 0);
  CHECK(parts.asked_for_bytes == 16 * kG);
  CHECK(parts.room.ShortSince() == parts.clock.Now());
  WHEN("room for one comes free") {
    parts.extents.End(all);
    const auto rest =
        parts.allocator.Allocate({.bytes = parts.allocator.LongestRun(false) - 20 * kG});
    REQUIRE(rest);
    parts.room.Serve();
    CHECK(first->granted.size() == 1);
    CHECK(second->granted.empty());
    THEN("a much smaller one overtakes the other, a slightly smaller one does not") {
      CHECK(Ask(parts, 3 * kG)->granted.empty());
      CHECK(Ask(parts, 2 * kG)->granted.size() == 1);
      CHECK(second->granted.empty());
    }
    THEN("all overtake it where nothing has come free for a while, nor is on its way") {
      const auto third = Ask(parts, 3 * kG);
      const auto pass = [&](Nanos time, bool room_comes) {
        parts.room_comes = room_comes;
        parts.clock.Advance(time);
        parts.room.Serve();
      };
      pass(200 * kMillisecond, /*room_comes=*/true);
      CHECK(third->granted.empty());
      pass(0, /*room_comes=*/false);
      CHECK(third->granted.empty());
      pass(100 * kMillisecond, /*room_comes=*/false);
      CHECK(third->granted.size() == 1);
      CHECK(second->granted.empty());
    }
  }
  WHEN("the first is cancelled") {
    parts.room.Cancel(first->request);
    parts.extents.End(all);
    parts.room.Serve();
    CHECK(first->granted.empty());
    CHECK(first->refused.empty());
    CHECK(second->granted.size() == 1);
  }
  WHEN("they have waited for too long") {
    parts.clock.Advance(kSecond);
    parts.room.Expire(parts.clock.Now(), SpillProgress(kSecond, 1));
    CHECK(first->refused == std::vector{StoreRefusalReason::kFull});
    CHECK(second->refused == std::vector{StoreRefusalReason::kFull});
    CHECK(parts.room.ShortSince() == kForever);
  }
  WHEN("they have waited for too long, and the disk takes nothing") {
    SpillProgress disk(kSecond, 1);
    disk.OnEnd(parts.clock.Now(), /*complete=*/false);
    parts.clock.Advance(kSecond);
    parts.room.Expire(parts.clock.Now(), disk);
    CHECK(first->refused == std::vector{StoreRefusalReason::kOutOfDisk});
  }
}

SCENARIO("small objects make do with less where nothing more will come") {
  Parts parts;
  parts.Fill();
  Extent* hole = nullptr;
  parts.table.ForEachExtentOf(kB, [&](Extent& extent) { hole = &extent; });
  const uint64_t at = hole->range.offset;
  parts.table.RemoveExtent(hole);
  parts.allocator.Free({at, kG}, /*populated=*/true);
  parts.room_comes = GENERATE(false, true);
  const auto waiter = std::make_shared<Waiter>();
  waiter->request->bytes = 8 * kG;
  waiter->request->least_bytes = kG;
  waiter->request->granted = [&](ExtentRange range) { waiter->granted.push_back(range); };
  parts.room.Add(waiter->request);
  CHECK(waiter->granted.size() == (parts.room_comes ? 0 : 1));
  waiter->request->granted = nullptr;
}

SCENARIO("a range without memory is populated before it is given") {
  Parts parts;
  REQUIRE(parts.population.GiveBack(parts.capacity()) > 0);
  while (parts.memory.RunOne()) {
  }
  const auto waiter = Ask(parts, 4 * kG, kSecond, kA);
  CHECK(waiter->granted.empty());
  CHECK(waiter->request->populating);
  WHEN("there is memory") {
    parts.memory.RunAll();
    CHECK(waiter->granted.size() == 1);
    CHECK(parts.room.empty());
  }
  WHEN("it is cancelled meanwhile") {
    const uint64_t free_before = parts.allocator.free_bytes();
    parts.room.OnProcessDied(kA);
    CHECK(parts.room.size() == 1);
    parts.memory.RunAll();
    CHECK(waiter->granted.empty());
    CHECK(parts.room.empty());
    CHECK(parts.allocator.free_bytes() == free_before + 4 * kG);
  }
  WHEN("the machine has none") {
    parts.arena.next_populate = absl::ResourceExhaustedError("no memory");
    parts.memory.RunOne();
    parts.arena.next_populate = absl::OkStatus();
    CHECK(waiter->granted.empty());
    THEN("what has memory is made free instead, and after a while the machine is asked again") {
      CHECK(parts.asked_for_unused > 0);
      parts.clock.Advance(500 * kMillisecond);
      parts.room.Serve();
      parts.memory.RunAll();
      CHECK(waiter->granted.size() == 1);
    }
  }
}

TEST_CASE("a request of a process is found by its number until it is over") {
  Parts parts;
  Extent* all = parts.Fill();
  const auto waiter = Ask(parts, kG, kSecond, kA);
  CHECK(parts.room.Find(kA, 9) == waiter->request);
  CHECK(parts.room.Find(kA, 8) == nullptr);
  CHECK(parts.room.Find(kB, 9) == nullptr);
  parts.extents.End(all);
  parts.room.Serve();
  CHECK(parts.room.Find(kA, 9) == nullptr);
}

}  // namespace room_queue_test
}  // namespace sheaf::store_parts_test
