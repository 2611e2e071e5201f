// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Byte rings between two processes: one writer, one reader, in shared memory that the raylet made for the two.
//
// A RingPair segment holds four rings, for each direction a work and a control lane:
//   0        256          1 KiB    4 KiB         4 KiB + 256 KiB ...
//   | RingControl x 4 ... | zeros | data of ring 0 | data of ring 1 | ring 2 | ring 3 |
// ring 0, 1: first -> second process, work and control; ring 2, 3: the other way round.
//
// Protocol. `tail` is written by the writer alone, `head` by the reader alone; both count bytes since the start and are
// never reset, position = cursor mod capacity. Writer: fill the bytes behind `tail`, then store tail (release). Reader:
// load tail (acquire), use the bytes, then store head (release). A frame is a RingRecord and its body, 8-byte aligned
// and never wrapped: what does not fit before the end is jumped over by a record of kind kNone. A writer that finds the
// ring empty beyond the first page jumps as well, so that a quiet ring stays in cache.
// Crash. A writer that dies before it stores tail has written nothing. A reader that dies leaves a ring nobody empties.
// Trust. The reader checks every record against the published bytes; a writer never reads what the reader wrote but
// `head`, and checks that. Both ends treat a wrong cursor as a malformed peer, never as a crash.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/frame.h"
#include "shm/segment.h"

namespace sheaf {

struct RingControl {
  alignas(64) std::atomic<uint64_t> tail;          // Bytes published. Writer.
  std::atomic<uint32_t> writer_waits;              // Writer: "I found no room, ring me." Reader clears it.
  alignas(64) std::atomic<uint64_t> head;          // Bytes consumed. Reader.
};
static_assert(sizeof(RingControl) == 128);

inline constexpr uint64_t kRingBytes = 256 * 1024;
inline constexpr size_t kRingDataOffset = kPageBytes;
inline constexpr size_t kRingPairBytes = kRingDataOffset + 4 * kRingBytes;

struct RingRecord {
  uint32_t body_bytes;
  uint16_t kind;
  uint16_t more;  // 1: the next record of this ring continues the same frame.
};
static_assert(sizeof(RingRecord) == 8);

// The longest body of one record; longer frames travel in pieces (mailbox.h).
inline constexpr size_t kMaxRecordBody = 64 * 1024;

class RingWriter {
 public:
  RingWriter() = default;
  RingWriter(RingControl* control, std::byte* data)
      : control_(control), data_(data), tail_(control->tail.load(std::memory_order_relaxed)), head_(0) {}

  // Room for one record with a body of `body_bytes` <= kMaxRecordBody; fill it, then Publish. nullptr: the ring is full.
  char* Reserve(FrameKind kind, size_t body_bytes, bool more = false);
  // Makes all reserved records visible to the reader.
  void Publish() { control_->tail.store(tail_, std::memory_order_release); }
  // Asks the reader to ring when it has made room. It may miss this once in a rare while: look again within 1 ms.
  void AskForRoom() { control_->writer_waits.store(1, std::memory_order_seq_cst); }

 private:
  bool HasRoom(uint64_t bytes);

  RingControl* control_ = nullptr;
  std::byte* data_ = nullptr;
  uint64_t tail_ = 0;  // Reserved so far, published or not.
  uint64_t head_ = 0;  // The reader's, as last seen.
};

class RingReader {
 public:
  enum class Result : uint8_t { kEmpty, kRecord, kMalformed };

  RingReader() = default;
  RingReader(RingControl* control, const std::byte* data)
      : control_(control), data_(data), head_(control->head.load(std::memory_order_relaxed)), tail_(head_) {}

  bool Pending() const { return control_->tail.load(std::memory_order_acquire) != head_; }
  // The next record; its bytes stay valid until Release.
  Result Next(Frame* frame, bool* more);
  // Gives the bytes of all records so far back to the writer. Returns true when the writer asked to be rung.
  bool Release();

 private:
  RingControl* control_ = nullptr;
  const std::byte* data_ = nullptr;
  uint64_t head_ = 0;  // Taken so far, released or not.
  uint64_t tail_ = 0;  // The writer's, as last seen.
};

// The four rings of a mapped pair, from one end's point of view.
struct RingEnds {
  RingWriter work_out, control_out;
  RingReader work_in, control_in;
};
RingEnds OpenRingPair(std::byte* segment, bool first);

}  // namespace sheaf
