// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// A ring whose other end writes anything, cursors included: the reader gives records that lie
// inside, or is malformed for ever.
#include <cstring>
#include <memory>

#include "shm/ring.h"
#include "tests/fuzz/fuzz_target.h"

using namespace sheaf;

// An input: rounds of {cursor step (2 bytes), offset (2 bytes), length (2 bytes), bytes to
// scribble}.
std::vector<std::string> fuzz::Seeds() {
  std::string record;
  const RingRecord head{16, 3, 0};
  record.append(reinterpret_cast<const char*>(&head), sizeof head).append(16, 'x');
  std::string round;
  for (const size_t number : {record.size(), size_t{0}, record.size()}) {
    round.push_back(static_cast<char>(number & 0xff));
    round.push_back(static_cast<char>(number >> 8));
  }
  return {round + record, round + record + round + record};
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static auto* const control = new RingControl;
  static std::byte* const bytes = static_cast<std::byte*>(std::aligned_alloc(4096, kRingBytes));
  static size_t dirty = 0;
  std::memset(bytes, 0, dirty);
  control->tail.store(0);
  control->head.store(0);
  control->writer_waits.store(0);
  dirty = 0;
  RingReader reader(control, bytes);
  fuzz::Input input(data, size);
  while (!input.empty()) {
    const uint64_t step = input.Short();
    const size_t at = input.Short();
    const std::string scribble = input.Bytes(input.Short());
    const size_t fits = std::min(scribble.size(), kRingBytes - at);
    std::memcpy(bytes + at, scribble.data(), fits);
    dirty = std::max(dirty, at + fits);
    control->tail.fetch_add(step);
    Frame frame;
    bool more = false;
    for (int i = 0; i < 1000; ++i) {
      const RingReader::Result result = reader.Next(&frame, &more);
      if (result == RingReader::Result::kMalformed) {
        FUZZ_CHECK(reader.Next(&frame, &more) == RingReader::Result::kMalformed);
        return 0;
      }
      if (result == RingReader::Result::kEmpty) break;
      const auto* begin = reinterpret_cast<const std::byte*>(frame.body.data());
      FUZZ_CHECK(begin >= bytes && begin + frame.body.size() <= bytes + kRingBytes);
      reader.Release();
    }
  }
  return 0;
}
