// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "shm/ring.h"

#include <sys/mman.h>

#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/random.h"
#include "shm/doorbell.h"

namespace sheaf {
namespace {

using Result = RingReader::Result;

// One ring whose data is a heap block of exactly its size, so that AddressSanitizer sees a step
// outside.
struct TestRing {
  TestRing() : control(std::make_unique<RingControl>()), data(new uint64_t[kRingBytes / 8]{}) {}
  std::byte* bytes() { return reinterpret_cast<std::byte*>(data.get()); }
  RingWriter Writer() { return RingWriter(control.get(), bytes()); }
  RingReader Reader() { return RingReader(control.get(), bytes()); }

  std::unique_ptr<RingControl> control;
  std::unique_ptr<uint64_t[]> data;
};

// `size` bytes that `seed` determines.
std::string Content(uint64_t seed, size_t size) {
  SeededRandom random(seed);
  std::string text(size, '\0');
  for (char& c : text) c = static_cast<char>(random.Next());
  return text;
}

bool Put(RingWriter& writer, std::string_view body, bool more = false) {
  char* at = writer.Reserve(FrameKind::kPushTask, body.size(), more);
  if (at == nullptr) return false;
  std::memcpy(at, body.data(), body.size());
  return true;
}

bool PutPublished(RingWriter& writer, std::string_view body) {
  const bool fits = Put(writer, body);
  if (fits) writer.Publish();
  return fits;
}

std::string Take(RingReader& reader) {
  Frame frame;
  bool more = false;
  REQUIRE(reader.Next(&frame, &more) == Result::kRecord);
  return std::string(frame.body);
}

Result Look(RingReader& reader) {
  Frame frame;
  bool more = false;
  return reader.Next(&frame, &more);
}

}  // namespace

SCENARIO("a record is seen whole, once, and only after it was published") {
  TestRing ring;
  RingWriter writer = ring.Writer();
  RingReader reader = ring.Reader();
  CHECK(Look(reader) == Result::kEmpty);
  REQUIRE(Put(writer, "first", true));
  REQUIRE(Put(writer, "second"));
  CHECK_FALSE(reader.Pending());
  CHECK(Look(reader) == Result::kEmpty);
  writer.Publish();
  CHECK(reader.Pending());
  Frame frame;
  bool more = false;
  REQUIRE(reader.Next(&frame, &more) == Result::kRecord);
  CHECK(frame.kind == FrameKind::kPushTask);
  CHECK(frame.body == "first");
  CHECK(more);
  REQUIRE(reader.Next(&frame, &more) == Result::kRecord);
  CHECK(frame.body == "second");
  CHECK_FALSE(more);
  CHECK(Look(reader) == Result::kEmpty);
  CHECK_FALSE(reader.Pending());
}

SCENARIO("records of every length from 0 to 64 KiB arrive as they were sent, 8-byte aligned") {
  TestRing ring;
  RingWriter writer = ring.Writer();
  RingReader reader = ring.Reader();
  const std::string content = Content(1, kMaxRecordBody);
  for (size_t size = 0; size <= kMaxRecordBody; size += size < 300 ? 1 : 997) {
    REQUIRE(PutPublished(writer, content.substr(0, size)));
    Frame frame;
    bool more = false;
    REQUIRE(reader.Next(&frame, &more) == Result::kRecord);
    REQUIRE(frame.body == std::string_view(content).substr(0, size));
    REQUIRE(reinterpret_cast<uintptr_t>(frame.body.data()) % 8 == 0);
    reader.Release();
  }
  REQUIRE(PutPublished(writer, content));
  CHECK(Take(reader) == content);
}

SCENARIO("a ring that always holds something goes round, and no record is torn at the end") {
  TestRing ring;
  RingWriter writer = ring.Writer();
  RingReader reader = ring.Reader();
  SeededRandom random(7);
  uint64_t written = 0, read = 0;
  uint64_t bytes = 0;
  while (bytes < 20 * kRingBytes) {
    while (written - read < 3) {
      const std::string content = Content(written, random.Below(30'000));
      REQUIRE(PutPublished(writer, content));
      bytes += content.size();
      ++written;
    }
    Frame frame;
    bool more = false;
    REQUIRE(reader.Next(&frame, &more) == Result::kRecord);
    REQUIRE(frame.body == Content(read, frame.body.size()));
    REQUIRE(frame.body.data() >= reinterpret_cast<char*>(ring.bytes()));
    REQUIRE(frame.body.data() + frame.body.size() <=
            reinterpret_cast<char*>(ring.bytes()) + kRingBytes);
    ++read;
    reader.Release();
  }
}

SCENARIO("a quiet ring stays in its first two pages") {
  TestRing ring;
  RingWriter writer = ring.Writer();
  RingReader reader = ring.Reader();
  const std::string body(64, 'x');
  for (int i = 0; i < 10'000; ++i) {
    REQUIRE(PutPublished(writer, body));
    Frame frame;
    bool more = false;
    REQUIRE(reader.Next(&frame, &more) == Result::kRecord);
    REQUIRE(frame.body.data() < reinterpret_cast<char*>(ring.bytes()) + 2 * kPageBytes);
    reader.Release();
  }
}

SCENARIO("a full ring refuses, and takes again what was given back") {
  TestRing ring;
  RingWriter writer = ring.Writer();
  RingReader reader = ring.Reader();
  const std::string body(1000, 'x');
  size_t written = 0;
  while (PutPublished(writer, body)) ++written;
  CHECK(written == kRingBytes / RecordBytes(1000));
  for (size_t i = 0; i < written / 2; ++i) CHECK(Take(reader) == body);
  CHECK_FALSE(PutPublished(writer, body));  // Taken, not released.
  reader.Release();
  size_t again = 0;
  while (PutPublished(writer, body)) ++again;
  CHECK(again >= written / 2 - 1);  // The rest of the ring's end may be jumped over.
  for (size_t i = written / 2; i < written + again; ++i) CHECK(Take(reader) == body);
  CHECK(Look(reader) == Result::kEmpty);
}

SCENARIO("the longest record fits into an empty ring wherever its cursor stands") {
  const std::string longest(kMaxRecordBody, 'x');
  for (size_t before = 0; before < kRingBytes; before += 8 * 509) {
    TestRing ring;
    RingWriter writer = ring.Writer();
    RingReader reader = ring.Reader();
    for (size_t moved = 0; moved < before; moved += 4072) {
      REQUIRE(PutPublished(writer, std::string(4064, 'y')));
      REQUIRE(Put(writer, "z"));  // Keeps the ring from being empty, so that the cursor moves on.
      Take(reader);
      reader.Release();
      writer.Publish();
      Take(reader);
    }
    reader.Release();
    REQUIRE(PutPublished(writer, longest));
    CHECK(Take(reader) == longest);
  }
}

SCENARIO("a writer without room is rung once, when some was made") {
  TestRing ring;
  RingWriter writer = ring.Writer();
  RingReader reader = ring.Reader();
  const std::string body(1000, 'x');
  while (PutPublished(writer, body)) {
  }
  CHECK(writer.RoomWasMade());
  writer.AskForRoom();
  CHECK_FALSE(writer.RoomWasMade());
  CHECK_FALSE(PutPublished(writer, body));
  Take(reader);
  CHECK(reader.held_bytes() == RecordBytes(1000));
  CHECK(reader.Release());
  CHECK(reader.held_bytes() == 0);
  CHECK(writer.RoomWasMade());
  CHECK_FALSE(reader.Release());
}

SCENARIO("a reader finds every malformed record and cursor, and does not come back to it") {
  TestRing ring;
  RingWriter writer = ring.Writer();
  RingReader reader = ring.Reader();
  auto scribble = [&](uint64_t position, RingRecord record, uint64_t tail) {
    std::memcpy(ring.bytes() + position, &record, sizeof record);
    ring.control->tail.store(tail);
  };
  SECTION("more published than the ring holds") { ring.control->tail.store(kRingBytes + 8); }
  SECTION("a tail that no record ends at") { scribble(0, {1, 1, 0}, 17); }
  SECTION("a tail that goes back") {
    PutPublished(writer, "x");
    Take(reader);
    ring.control->tail.store(8);
  }
  SECTION("a record longer than what is published") { scribble(0, {100, 1, 0}, 64); }
  SECTION("a record longer than any") {
    scribble(0, {static_cast<uint32_t>(kMaxRecordBody + 1), 1, 0}, kRingBytes);
  }
  SECTION("a length that overflows 32 bits") { scribble(0, {UINT32_MAX, 1, 0}, kRingBytes); }
  SECTION("a jump past the end") {
    scribble(0, {static_cast<uint32_t>(kRingBytes), 0, 0}, kRingBytes);
  }
  SECTION("a jump that does not lead to the start") { scribble(0, {8, 0, 0}, 64); }
  SECTION("a jump with nothing behind it") {
    scribble(0, {static_cast<uint32_t>(kRingBytes - 8), 0, 0}, kRingBytes);
  }
  SECTION("zeros") { ring.control->tail.store(64); }
  CHECK(Look(reader) == Result::kMalformed);
  ring.control->tail.store(0);
  CHECK(Look(reader) == Result::kMalformed);
}

SCENARIO("a jump that leads to another jump is malformed") {
  TestRing ring;
  RingReader reader = ring.Reader();
  const RingRecord first{static_cast<uint32_t>(60'000), 1, 0};
  const auto used = static_cast<uint32_t>(RecordBytes(60'000));
  std::memcpy(ring.bytes(), &first, sizeof first);
  ring.control->tail.store(used);
  CHECK(Look(reader) == Result::kRecord);
  reader.Release();
  const RingRecord jump{static_cast<uint32_t>(kRingBytes - used - 8), 0, 0};
  const RingRecord again{8, 0, 0};
  std::memcpy(ring.bytes() + used, &jump, sizeof jump);
  std::memcpy(ring.bytes(), &again, sizeof again);
  ring.control->tail.store(kRingBytes + 16);
  CHECK(Look(reader) == Result::kMalformed);
}

SCENARIO("a writer takes a wrong head for no progress") {
  TestRing ring;
  RingWriter writer = ring.Writer();
  const std::string body(1000, 'x');
  while (PutPublished(writer, body)) {
  }
  const uint64_t tail = ring.control->tail.load();
  for (uint64_t head : {tail + 8, UINT64_MAX, tail - kRingBytes - 8}) {
    ring.control->head.store(head);
    CHECK_FALSE(PutPublished(writer, body));
  }
  ring.control->head.store(tail);
  CHECK(PutPublished(writer, body));
}

// A peer that writes random words anywhere, with a taste for plausible ones.
SCENARIO("random scribbles over cursors and records crash neither end and lead neither outside") {
  for (uint64_t seed = 1; seed <= 20'000; ++seed) {
    CAPTURE(seed);
    SeededRandom random(seed);
    static TestRing ring;  // The bytes of the rounds before are further garbage.
    ring.control = std::make_unique<RingControl>();
    RingWriter writer = ring.Writer();
    RingReader reader = ring.Reader();
    const char* const begin = reinterpret_cast<char*>(ring.bytes());
    const char* const end = begin + kRingBytes;
    volatile uint64_t sum = 0;
    for (uint64_t step = random.Below(40); step != 0; --step) {
      const uint64_t tail = ring.control->tail.load();
      switch (random.Below(9)) {
        case 0:
          ring.control->tail.store(tail + random.Below(kRingBytes) / 8 * 8);
          break;
        case 1:
          ring.control->tail.store(random.Next() >> random.Below(64));
          break;
        case 2:
          ring.control->head.store(random.Next() >> random.Below(64));
          break;
        case 3:
          ring.control->writer_waits.store(static_cast<uint32_t>(random.Next()));
          break;
        case 4:
          ring.data[random.Below(kRingBytes / 8)] = random.Next() >> random.Below(64);
          break;
        case 5: {  // A likely record near the cursors.
          const RingRecord record{static_cast<uint32_t>(random.Next() >> (32 + random.Below(32))),
                                  static_cast<uint16_t>(random.Below(3)),
                                  static_cast<uint16_t>(random.Below(2))};
          std::memcpy(&ring.data[(tail / 8 + random.Below(64) - 32) % (kRingBytes / 8)], &record,
                      sizeof record);
          break;
        }
        case 6:
        case 7: {
          const size_t size = random.Below(kMaxRecordBody + 1) >> random.Below(17);
          char* at = writer.Reserve(FrameKind::kPushTask, size);
          if (at == nullptr) {
            writer.AskForRoom();
            break;
          }
          REQUIRE((at >= begin && at + size <= end));
          std::memset(at, 1, size);
          writer.Publish();
          break;
        }
        default: {
          Frame frame;
          bool more = false;
          while (reader.Next(&frame, &more) == Result::kRecord) {
            REQUIRE((frame.body.data() >= begin && frame.body.data() + frame.body.size() <= end));
            // AddressSanitizer looks on.
            for (char c : frame.body) sum = sum + static_cast<unsigned char>(c);
          }
          reader.Release();
        }
      }
    }
  }
}

// Both ends as threads over one mapping: what ThreadSanitizer can see.
SCENARIO(
    "a writing and a reading thread agree on every byte, and a writer without room is always "
    "rung") {
  TestRing ring;
  auto bell = std::make_unique<Bell>();
  constexpr uint64_t kFrames = 30'000;
  constexpr Nanos kLost = 5 * kSecond;  // The longest honest wait: the reader's for a processor.
  uint64_t rescued = 0;
  std::thread writing([&] {
    RingWriter writer = ring.Writer();
    SeededRandom sizes(3);
    for (uint64_t i = 0; i < kFrames; ++i) {
      const size_t size = sizes.OneIn(50) ? sizes.Below(kMaxRecordBody) : sizes.Below(200);
      char* at = writer.Reserve(FrameKind::kPushTask, size);
      while (at == nullptr) {
        SetBell(*bell, BellState::kAsleep);
        writer.AskForRoom();
        at = writer.Reserve(FrameKind::kPushTask, size);
        if (at == nullptr && !writer.RoomWasMade()) {
          const Nanos start = MonotonicNow();
          while (bell->state == static_cast<uint32_t>(BellState::kAsleep)) {
            SleepOnBell(*bell, kLongestSleep);
            if (MonotonicNow() - start < kLost) continue;
            ++rescued;
            break;
          }
        }
        SetBell(*bell, BellState::kAwake);
      }
      std::memset(at, static_cast<int>(i), size);
      writer.Publish();
    }
  });
  RingReader reader = ring.Reader();
  SeededRandom sizes(3);
  uint64_t wrong = 0;
  int spins = 0;
  for (uint64_t i = 0; i < kFrames;) {
    Frame frame;
    bool more = false;
    const Result result = reader.Next(&frame, &more);
    REQUIRE(result != Result::kMalformed);
    if (result == Result::kEmpty) {
      if (reader.Release()) RingBell(*bell, Lane::kControl);
      SpinStep(spins++);
      continue;
    }
    const size_t size = sizes.OneIn(50) ? sizes.Below(kMaxRecordBody) : sizes.Below(200);
    wrong += frame.body.size() != size;
    for (char c : frame.body) wrong += c != static_cast<char>(i);
    ++i;
    if (i % 7 == 0 && reader.Release()) RingBell(*bell, Lane::kControl);
  }
  reader.Release();
  writing.join();
  CHECK(wrong == 0);
  CHECK(rescued == 0);
}

SCENARIO("the two ends of a pair meet crosswise, lane by lane") {
  std::unique_ptr<std::byte, decltype(&std::free)> segment(
      static_cast<std::byte*>(std::aligned_alloc(kPageBytes, kRingPairBytes)), &std::free);
  std::memset(segment.get(), 0, kRingPairBytes);
  RingEnds first = OpenRingPair(segment.get(), true);
  RingEnds second = OpenRingPair(segment.get(), false);
  PutPublished(first.work_out, "first work");
  PutPublished(first.control_out, "first control");
  PutPublished(second.work_out, "second work");
  PutPublished(second.control_out, "second control");
  CHECK(Take(first.work_in) == "second work");
  CHECK(Take(first.control_in) == "second control");
  CHECK(Take(second.work_in) == "first work");
  CHECK(Take(second.control_in) == "first control");
}

}  // namespace sheaf
