// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "object_store/server/range_reader.h"

#include <catch2/catch.hpp>

#include <optional>
#include <string_view>

#include "object_store/server/store_parts_for_test.h"

namespace sheaf::store_parts_test {
namespace range_reader_test {

constexpr uint64_t kMost = 1000;

using Answer = std::optional<absl::StatusOr<RangeReader::Range>>;

struct Reading {
  Parts parts;
  RangeReader reader{{.most_bytes = kMost, .most_waiting_bytes = 3 * kMost, .patience = kSecond},
                     {parts.clock, parts.spill, parts.disk, parts.loop, parts.files, parts.index}};
  std::shared_ptr<ObjectRecord> record = parts.SealOnDisk(kA, Id(kA, 1));

  void Read(uint64_t from, uint64_t bytes, Answer* answer) {
    reader.Read(record, from, bytes,
                [answer](absl::StatusOr<RangeReader::Range> range) { *answer = std::move(range); });
  }
};

SCENARIO("a part of an object on disk is read, and the object stays there") {
  Reading reading;
  Parts& parts = reading.parts;
  Answer answer;
  reading.Read(10, 100, &answer);
  WHEN("the disk has it") {
    CHECK_FALSE(answer.has_value());
    parts.disk.RunAll();
    REQUIRE(answer.has_value());
    REQUIRE(answer->ok());
    CHECK(std::string_view((*answer)->bytes.data(), (*answer)->bytes.size()) ==
          std::string(100, '\1'));
    CHECK(reading.record->place == ObjectPlace::kDisk);
    CHECK(reading.reader.counts().bytes == 100);
    CHECK(parts.allocator.free_bytes() == parts.capacity());
  }
  WHEN("its file is gone") {
    parts.spill.files.clear();
    parts.disk.RunAll();
    CHECK(absl::IsDataLoss(answer->status()));
    CHECK(parts.observer.lost == std::vector{Id(kA, 1)});
    CHECK(reading.reader.counts().lost == 1);
  }
  WHEN("it is freed while it is read") {
    parts.index.Free(reading.record);
    parts.spill.files.clear();
    parts.disk.RunAll();
    CHECK(absl::IsNotFound(answer->status()));
    CHECK(parts.observer.lost.empty());
  }
  WHEN("it is back in memory when the disk turns out to have lost it") {
    parts.restorer.Start(reading.record);
    parts.disk.RunAll();
    REQUIRE(reading.record->place == ObjectPlace::kMemory);
    Answer late;
    reading.Read(0, 1, &late);
    parts.spill.files.clear();
    parts.disk.RunAll();
    CHECK(absl::IsUnavailable(late->status()));
    CHECK(parts.observer.lost.empty());
    CHECK(reading.record->disk.file == 0);  // What is in memory must not make way for it.
  }
}

SCENARIO("what is read or held at a time is bounded") {
  Reading reading;
  Parts& parts = reading.parts;
  Answer first, second, third;
  reading.Read(0, kMost - 100, &first);
  reading.Read(0, 200, &second);
  reading.Read(0, kMost + 1, &third);
  parts.disk.RunAll();
  REQUIRE(first.has_value());
  CHECK_FALSE(second.has_value());
  WHEN("the first is let go") {
    first.reset();
    parts.disk.RunAll();
    CHECK(second.has_value());
    CHECK_FALSE(third.has_value());
    AND_WHEN("the next as well, one that is larger than the bound goes alone") {
      second.reset();
      parts.disk.RunAll();
      REQUIRE(third.has_value());
      CHECK((*third)->bytes.size() == kMost + 1);
    }
  }
  WHEN("more comes than may wait") {
    Answer fourth;
    reading.Read(0, 2 * kMost, &fourth);
    CHECK(absl::IsUnavailable(fourth->status()));
  }
  WHEN("they wait for longer than anybody waits for an answer") {
    parts.clock.Advance(2 * kSecond);
    first.reset();
    parts.disk.RunAll();
    CHECK(absl::IsUnavailable(second->status()));
    CHECK(absl::IsUnavailable(third->status()));
    CHECK(reading.reader.counts().reads == 1);
  }
  WHEN("the object is freed while they wait") {
    parts.index.Free(reading.record);
    first.reset();
    parts.disk.RunAll();
    CHECK(absl::IsNotFound(second->status()));
    CHECK(absl::IsNotFound(third->status()));
  }
}

}  // namespace range_reader_test
}  // namespace sheaf::store_parts_test
