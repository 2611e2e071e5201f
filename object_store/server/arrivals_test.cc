// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "object_store/server/arrivals.h"

#include <catch2/catch.hpp>

#include "object_store/server/store_parts_for_test.h"

namespace sheaf::store_parts_test {
namespace arrivals_test {

constexpr ProcessId kElsewhere{8, 1};

struct Copy {
  Copy(Parts& parts, Arrival arrival, Nanos wait = kSecond) {
    parts.arrivals.Begin(arrival, wait, [this](absl::StatusOr<std::span<char>> given) {
      ++answers;
      room = std::move(given);
    });
  }
  int answers = 0;
  absl::StatusOr<std::span<char>> room = absl::UnknownError("no answer yet");
};

Arrival Of(uint64_t bytes, uint32_t attempt = 0) {
  return {.id = Id(kElsewhere, 1),
          .attempt = attempt,
          .flags = 0,
          .size_bytes = bytes,
          .nested_count = 0};
}

SCENARIO("a copy gets room, and is an object of this node when it has arrived") {
  Parts parts;
  const uint64_t bytes = GENERATE(uint64_t{0}, uint64_t{1000}, 3 * kG);
  Copy copy(parts, Of(bytes));
  REQUIRE(copy.room.ok());
  CHECK(copy.room->size() == bytes);
  CHECK(parts.table.Find(Id(kElsewhere, 1)) == nullptr);
  WHEN("it ends") {
    CHECK(parts.arrivals.End(Id(kElsewhere, 1)).ok());
    const auto record = parts.table.Find(Id(kElsewhere, 1));
    REQUIRE(record != nullptr);
    CHECK(record->info.writer == RayletOf(kNode));
    CHECK(parts.table.Word(record->slot).state == SlotState::kSealed);
    CHECK(parts.observer.sealed == std::vector{Id(kElsewhere, 1)});
    CHECK(parts.arrivals.counts().copies == 1);
    CHECK(parts.arrivals.counts().copied_bytes == bytes);
    CHECK(absl::IsFailedPrecondition(parts.arrivals.End(Id(kElsewhere, 1))));
  }
  WHEN("it is given up") {
    parts.arrivals.Abort(Id(kElsewhere, 1));
    CHECK(parts.allocator.free_bytes() == parts.capacity());
    CHECK(parts.freed.look_again());
    CHECK(absl::IsFailedPrecondition(parts.arrivals.End(Id(kElsewhere, 1))));
  }
  WHEN("it is asked for again meanwhile") {
    CHECK(absl::IsAlreadyExists(Copy(parts, Of(bytes)).room.status()));
  }
}

SCENARIO("the later attempt wins") {
  Parts parts;
  const uint32_t attempt = GENERATE(1u, 2u, 3u);
  REQUIRE(Copy(parts, Of(1000, 2)).room.ok());
  REQUIRE(parts.arrivals.End(Id(kElsewhere, 1)).ok());
  REQUIRE(Copy(parts, Of(1000, attempt)).room.ok());
  CHECK(parts.arrivals.End(Id(kElsewhere, 1)).ok());
  CHECK(parts.table.Find(Id(kElsewhere, 1))->info.attempt == std::max(2u, attempt));
  CHECK(parts.arrivals.counts().copies == (attempt == 3 ? 2 : 1));
}

SCENARIO("a copy waits for room") {
  Parts parts;
  CHECK(absl::IsResourceExhausted(Copy(parts, Of(parts.capacity() + 1)).room.status()));
  Extent* all = parts.Fill();
  Copy copy(parts, Of(kG));
  CHECK(copy.answers == 0);
  CHECK(absl::IsFailedPrecondition(parts.arrivals.End(Id(kElsewhere, 2))));
  WHEN("some comes free") {
    parts.extents.End(all);
    parts.room.Serve();
    CHECK(copy.room.ok());
  }
  WHEN("none comes in time") {
    parts.clock.Advance(kSecond);
    parts.room.Expire(parts.clock.Now(), SpillProgress(kSecond, 1));
    CHECK(absl::IsResourceExhausted(copy.room.status()));
    CHECK(parts.arrivals.counts().refusals == 1);
    THEN("it may be tried again") {
      parts.extents.End(all);
      CHECK(Copy(parts, Of(kG)).room.ok());
    }
  }
  WHEN("it is given up") {
    parts.arrivals.Abort(Id(kElsewhere, 1));
    parts.extents.End(all);
    parts.room.Serve();
    CHECK(copy.answers == 0);
    CHECK(parts.allocator.free_bytes() == parts.capacity());
  }
}

SCENARIO("what is sent on from an arriving copy keeps its room") {
  Parts parts;
  REQUIRE(Copy(parts, Of(3 * kG)).room.ok());
  auto hold = parts.arrivals.Hold(Id(kElsewhere, 1));
  WHEN("it is given up") {
    parts.arrivals.Abort(Id(kElsewhere, 1));
    CHECK(parts.allocator.free_bytes() == parts.capacity() - 3 * kG);
    hold.reset();
    CHECK(parts.allocator.free_bytes() == parts.capacity());
  }
  WHEN("it is sealed and freed") {
    REQUIRE(parts.arrivals.End(Id(kElsewhere, 1)).ok());
    parts.index.Free(parts.table.Find(Id(kElsewhere, 1)));
    parts.freed.Scan(false);
    CHECK(parts.allocator.free_bytes() == parts.capacity() - 3 * kG);
    hold.reset();
    CHECK(parts.freed.look_again());
    parts.freed.Scan(false);
    CHECK(parts.allocator.free_bytes() == parts.capacity());
  }
}

}  // namespace arrivals_test
}  // namespace sheaf::store_parts_test
