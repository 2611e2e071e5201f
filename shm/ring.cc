// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "shm/ring.h"

#include <algorithm>

#include "base/failpoint.h"
#include "shm/doorbell.h"

namespace sheaf {
namespace {

constexpr uint64_t kMask = kRingBytes - 1;

}  // namespace

bool RingWriter::MakeRoom(uint64_t bytes) {
  const uint64_t head = control_->head.load(std::memory_order_acquire);
  // A reader cannot have consumed what was never published: such a cursor counts as no progress.
  if (head <= tail_ && tail_ - head <= kRingBytes) head_ = head;
  const uint64_t position = tail_ & kMask;
  const uint64_t to_end = kRingBytes - position;
  uint64_t skip = 0;
  if (bytes > to_end) {
    skip = to_end;
  } else if (position >= kPageBytes && head_ == tail_ && to_end + bytes <= kRingBytes) {
    skip = to_end;  // Empty: start over in the first page, which is warm.
  }
  if (tail_ + skip + bytes - head_ > kRingBytes) return false;
  if (skip != 0) {
    const RingRecord jump{static_cast<uint32_t>(skip - sizeof(RingRecord)), 0, 0};
    std::memcpy(data_ + position, &jump, sizeof jump);
    tail_ += skip;
  }
  SHEAF_FAILPOINT("shm.make_room");
  limit_ = std::min(head_ + kRingBytes, RoundUpToPage(tail_ + bytes));
  return true;
}

void RingWriter::AskForRoom() {
  control_->writer_waits.exchange(1, std::memory_order_seq_cst);
  FullFence(control_->writer_waits);
}

bool RingReader::LookAtTail() {
  if (malformed_) return false;
  const uint64_t tail = control_->tail.load(std::memory_order_acquire);
  if (tail == head_) return false;
  // `head_` may be ahead of what was released, never behind it.
  if (tail - head_ > kRingBytes || (tail & 7) != 0) {
    malformed_ = true;
    return false;
  }
  tail_ = tail;
  return true;
}

RingReader::Result RingReader::Malformed() {
  malformed_ = true;
  tail_ = head_;
  return Result::kMalformed;
}

RingReader::Result RingReader::SkipTo(Frame* frame, bool* more) {
  RingRecord record = RecordAt(head_);
  const uint64_t bytes = RecordBytes(record.body_bytes);
  // A jump leads to the start, and a record follows it.
  if (record.kind != 0 || bytes != kRingBytes - (head_ & kMask) || bytes >= tail_ - head_)
    return Malformed();
  head_ += bytes;
  record = RecordAt(head_);
  if (record.kind == 0 || record.body_bytes > kMaxRecordBody ||
      RecordBytes(record.body_bytes) > LongestAt(head_)) {
    return Malformed();
  }
  Take(record, frame, more);
  return Result::kRecord;
}

void RingReader::FenceRelease() {
  SHEAF_FAILPOINT("shm.fence");
  FullFence(control_->writer_waits);
  fenced_ = head_;
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
