// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Byte rings between two processes: one writer, one reader, in shared memory that the raylet made
// for the two.
//
// The segment of a ring pair holds four rings, for each direction a work and a control lane:
//   0                 768    4 KiB            + 256 KiB        + 512 KiB  + 768 KiB  1028 KiB
//   | RingControl x 4 | zeros | data of ring 0 | data of ring 1 | ring 2   | ring 3   |
// ring 0, 1: first -> second process, work and control; ring 2, 3: the other way round.
//
// Protocol. `tail` is written by the writer alone, `head` by the reader alone; both count bytes
// since the start and are never reset, position = cursor mod capacity. Writer: fill the bytes
// behind `tail`, then store tail (release). Reader: load tail (acquire), use the bytes, then store
// head (release). A frame is a RingRecord and its body, 8-byte aligned and never wrapped: what does
// not fit before the end is jumped over by a record of kind kNone, which is published together with
// the record after it. A writer that finds the ring empty beyond the first page jumps as well, so
// that a quiet ring touches one page; it looks at most once a page, because each look takes the
// reader's cache line. Room. A writer without room publishes, sets `writer_waits`, fences and tries
// once more before it waits. The reader fences between its store of head and its look at
// `writer_waits`, but only once in kRingBytes / 4 released bytes: less than that is never what a
// writer waits for, since any record fits into three quarters of a ring. So either the writer's
// last try succeeds, or the reader sees the flag, clears it and rings. ring.pml is the model.
// Calls. A reader with many rings does not look at those that were quiet for long: it sets
// `unwatched`, fences and looks once more. A writer looks at the word after it has published and
// fenced; when it is set, it clears it and calls the reader (doorbell.h). So either the reader's
// last look finds the record, or the writer calls. A writer that dies between the two has called
// nobody: of its death the reader hears, and then it looks at all that was published.
// Crash. A writer that dies before it stores tail has written nothing. A reader that dies leaves a
// ring nobody empties. Trust. Each end starts at 0 and keeps its own cursor in private memory, so
// the peer can spoil neither. The reader checks every record against the published bytes; a writer
// reads nothing of the reader's but `head`, and checks that. Both ends treat a wrong cursor as a
// malformed peer, never as a crash.
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "base/frame.h"
#include "shm/segment.h"

namespace sheaf {

struct RingControl {
  alignas(64) std::atomic<uint64_t> tail;          // Bytes published. Writer.
  alignas(64) std::atomic<uint64_t> head;          // Bytes consumed. Reader.
  alignas(64) std::atomic<uint32_t> writer_waits;  // Writer: 1, "I found no room, ring me." The
                                                   // reader clears it.
  std::atomic<uint32_t> unwatched;  // Reader: 1, "I do not look here." The writer clears it.
};
static_assert(sizeof(RingControl) == 192 && std::atomic<uint64_t>::is_always_lock_free);

inline constexpr uint64_t kRingBytes = 256 * 1024;
inline constexpr size_t kRingDataOffset = kPageBytes;
inline constexpr size_t kRingPairBytes = kRingDataOffset + 4 * kRingBytes;

struct RingRecord {
  uint32_t body_bytes;
  uint16_t kind;
  uint16_t more;  // 1: the next record of this ring continues the same frame.
};
static_assert(sizeof(RingRecord) == 8 && std::endian::native == std::endian::little);

// The longest body of one record; longer frames travel in pieces (mailbox.h).
inline constexpr size_t kMaxRecordBody = 64 * 1024;

// What a record takes in the ring.
constexpr uint64_t RecordBytes(uint64_t body_bytes) {
  return (sizeof(RingRecord) + body_bytes + 7) & ~uint64_t{7};
}
// A jump may waste less than one longest record, and any record fits into an empty ring and into
// one whose last quarter is still taken.
static_assert((kRingBytes & (kRingBytes - 1)) == 0 &&
              2 * RecordBytes(kMaxRecordBody) <= kRingBytes / 4 * 3);

class RingWriter {
 public:
  RingWriter() = default;
  // The ring must be new: nobody has written to it yet.
  RingWriter(RingControl* control, std::byte* data) : control_(control), data_(data) {}

  // Room for one record with a body of `body_bytes` <= kMaxRecordBody; fill it, then Publish.
  // nullptr: the ring is full.
  char* Reserve(FrameKind kind, size_t body_bytes, bool more = false) {
    const uint64_t bytes = RecordBytes(body_bytes);
    if (tail_ + bytes > limit_ && !MakeRoom(bytes)) [[unlikely]]
      return nullptr;
    std::byte* at = data_ + (tail_ & (kRingBytes - 1));
    const RingRecord record{static_cast<uint32_t>(body_bytes), static_cast<uint16_t>(kind),
                            static_cast<uint16_t>(more)};
    std::memcpy(at, &record, sizeof record);
    tail_ += bytes;
    return reinterpret_cast<char*>(at + sizeof record);
  }
  // Makes all reserved records visible to the reader.
  void Publish() { control_->tail.store(tail_, std::memory_order_release); }
  // After a Reserve that found no room, and Publish: asks the reader to ring when it has made some.
  // Call Reserve once more afterwards; when that fails too, the ring is sure to come.
  void AskForRoom();
  // After Publish and a FullFence: the reader did not look at this ring, and is to be called.
  bool TakeUnwatched() {
    return control_->unwatched.load(std::memory_order_relaxed) != 0 &&
           control_->unwatched.exchange(0, std::memory_order_seq_cst) != 0;
  }
  // The reader has made room since AskForRoom. A waiting writer looks at this before it sleeps, as
  // it looks at its rings.
  bool RoomWasMade() const { return control_->writer_waits.load(std::memory_order_acquire) == 0; }

 private:
  bool MakeRoom(uint64_t bytes);

  RingControl* control_ = nullptr;
  std::byte* data_ = nullptr;
  uint64_t tail_ = 0;   // Reserved so far, published or not.
  uint64_t limit_ = 0;  // Up to here records fit without a jump, as far as known.
  uint64_t head_ = 0;   // The reader's, as last seen.
};

class RingReader {
 public:
  enum class Result : uint8_t { kEmpty, kRecord, kMalformed };

  RingReader() = default;
  RingReader(RingControl* control, const std::byte* data) : control_(control), data_(data) {}

  bool Pending() const { return control_->tail.load(std::memory_order_acquire) != head_; }
  // The next record; its bytes stay valid until Release. The writer may still scribble over them:
  // read once what is checked. After kMalformed it is kMalformed for ever.
  Result Next(Frame* frame, bool* more) {
    if (head_ == tail_ && !LookAtTail()) return malformed_ ? Result::kMalformed : Result::kEmpty;
    const RingRecord record = RecordAt(head_);
    const uint64_t bytes = RecordBytes(record.body_bytes);
    if (record.kind == 0 || record.body_bytes > kMaxRecordBody || bytes > LongestAt(head_))
        [[unlikely]] {
      return SkipTo(frame, more);
    }
    Take(record, frame, more);
    return Result::kRecord;
  }
  // The last look at the writer's cursor showed more than Next has given. A reader that looks again
  // after each record takes the writer's cache line each time: rather give back and do something
  // else first.
  bool knows_more() const { return head_ != tail_; }
  // Gives the bytes of all records so far back to the writer. Returns true when the writer asked to
  // be rung.
  bool Release() {
    control_->head.store(head_, std::memory_order_release);
    released_ = head_;
    if (head_ - fenced_ >= kRingBytes / 4) FenceRelease();
    if (control_->writer_waits.load(std::memory_order_relaxed) == 0) [[likely]]
      return false;
    control_->writer_waits.store(0, std::memory_order_release);
    return true;
  }
  // Unwatch, a FullFence and a look that finds nothing: from then on the writer calls.
  void Unwatch() { control_->unwatched.exchange(1, std::memory_order_seq_cst); }
  void Watch() { control_->unwatched.store(0, std::memory_order_relaxed); }
  // Bytes taken and not yet released.
  uint64_t held_bytes() const { return head_ - released_; }

 private:
  bool LookAtTail();  // False: nothing new, or malformed_.
  Result SkipTo(Frame* frame, bool* more);
  Result Malformed();
  void FenceRelease();
  // One load: the checks and the use see the same record, whatever the writer does.
  RingRecord RecordAt(uint64_t cursor) const {
    const auto* word = reinterpret_cast<const uint64_t*>(data_ + (cursor & (kRingBytes - 1)));
    return std::bit_cast<RingRecord>(__atomic_load_n(word, __ATOMIC_RELAXED));
  }
  uint64_t LongestAt(uint64_t cursor) const {
    const uint64_t to_end = kRingBytes - (cursor & (kRingBytes - 1));
    return tail_ - cursor < to_end ? tail_ - cursor : to_end;
  }
  void Take(RingRecord record, Frame* frame, bool* more) {
    const std::byte* body = data_ + (head_ & (kRingBytes - 1)) + sizeof record;
    frame->kind = static_cast<FrameKind>(record.kind);
    frame->body = {reinterpret_cast<const char*>(body), record.body_bytes};
    *more = record.more != 0;
    head_ += RecordBytes(record.body_bytes);
  }

  RingControl* control_ = nullptr;
  const std::byte* data_ = nullptr;
  uint64_t head_ = 0;  // Taken so far, released or not.
  uint64_t tail_ = 0;  // The writer's, as last seen and checked.
  uint64_t released_ = 0;
  uint64_t fenced_ = 0;  // head_ at the last FenceRelease.
  bool malformed_ = false;
};

// The four rings of a mapped, new pair, from one end's point of view. Each end calls it once.
struct RingEnds {
  RingWriter work_out, control_out;
  RingReader work_in, control_in;
};
RingEnds OpenRingPair(std::byte* segment, bool first);

}  // namespace sheaf
