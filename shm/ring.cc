// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "shm/ring.h"

#include <cstring>

namespace sheaf {
namespace {

constexpr uint64_t kMask = kRingBytes - 1;
static_assert((kRingBytes & kMask) == 0);

constexpr uint64_t RecordBytes(uint64_t body_bytes) {
  return (sizeof(RingRecord) + body_bytes + 7) & ~uint64_t{7};
}

}  // namespace

bool RingWriter::HasRoom(uint64_t bytes) {
  if (tail_ + bytes - head_ <= kRingBytes) return true;
  const uint64_t head = control_->head.load(std::memory_order_acquire);
  // A reader cannot have consumed what was never published: such a cursor counts as no progress.
  if (head > tail_ || tail_ - head > kRingBytes) return false;
  head_ = head;
  return tail_ + bytes - head_ <= kRingBytes;
}

char* RingWriter::Reserve(FrameKind kind, size_t body_bytes, bool more) {
  const uint64_t bytes = RecordBytes(body_bytes);
  const uint64_t position = tail_ & kMask;
  const uint64_t to_end = kRingBytes - position;
  uint64_t skip = 0;
  if (bytes > to_end) {
    skip = to_end;
  } else if (position >= kPageBytes && control_->head.load(std::memory_order_acquire) == tail_) {
    skip = to_end;  // Empty: start over in the first page, which is warm.
  }
  if (!HasRoom(skip + bytes)) return nullptr;
  if (skip != 0) {
    const RingRecord jump{static_cast<uint32_t>(skip - sizeof(RingRecord)), 0, 0};
    std::memcpy(data_ + position, &jump, sizeof jump);
    tail_ += skip;
  }
  const RingRecord record{static_cast<uint32_t>(body_bytes), static_cast<uint16_t>(kind),
                          static_cast<uint16_t>(more)};
  std::byte* at = data_ + (tail_ & kMask);
  std::memcpy(at, &record, sizeof record);
  tail_ += bytes;
  return reinterpret_cast<char*>(at + sizeof record);
}

RingReader::Result RingReader::Next(Frame* frame, bool* more) {
  while (true) {
    if (head_ == tail_) {
      tail_ = control_->tail.load(std::memory_order_acquire);
      if (head_ == tail_) return Result::kEmpty;
      if (tail_ - head_ > kRingBytes || (tail_ & 7) != 0) return Result::kMalformed;
    }
    RingRecord record;
    const uint64_t position = head_ & kMask;
    std::memcpy(&record, data_ + position, sizeof record);  // Copied once: the writer may scribble.
    const uint64_t bytes = RecordBytes(record.body_bytes);
    if (bytes > tail_ - head_ || bytes > kRingBytes - position) return Result::kMalformed;
    head_ += bytes;
    if (record.kind == static_cast<uint16_t>(FrameKind::kNone)) continue;
    if (record.body_bytes > kMaxRecordBody) return Result::kMalformed;
    frame->kind = static_cast<FrameKind>(record.kind);
    frame->body = {reinterpret_cast<const char*>(data_ + position + sizeof record), record.body_bytes};
    *more = record.more != 0;
    return Result::kRecord;
  }
}

bool RingReader::Release() {
  control_->head.store(head_, std::memory_order_release);
  if (control_->writer_waits.load(std::memory_order_relaxed) == 0) [[likely]] return false;
  control_->writer_waits.store(0, std::memory_order_relaxed);
  return true;
}

RingEnds OpenRingPair(std::byte* segment, bool first) {
  auto* controls = reinterpret_cast<RingControl*>(segment);
  std::byte* data = segment + kRingDataOffset;
  const int out = first ? 0 : 2;
  const int in = first ? 2 : 0;
  return {RingWriter(&controls[out], data + out * kRingBytes),
          RingWriter(&controls[out + 1], data + (out + 1) * kRingBytes),
          RingReader(&controls[in], data + in * kRingBytes),
          RingReader(&controls[in + 1], data + (in + 1) * kRingBytes)};
}

}  // namespace sheaf
