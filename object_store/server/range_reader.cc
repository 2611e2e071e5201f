// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "object_store/server/range_reader.h"

#include <utility>

namespace sheaf {

void RangeReader::Read(std::shared_ptr<ObjectRecord> record, uint64_t from, uint64_t bytes,
                       Done done) {
  if (!line_.empty() && waiting_bytes_ + bytes > options_.most_waiting_bytes)
    return done(absl::UnavailableError("the disk has much to read"));
  waiting_bytes_ += bytes;
  line_.push_back(
      {std::move(record), from, bytes, deps_.clock.Now() + options_.patience, std::move(done)});
  BeginNext();
}

void RangeReader::BeginNext() {
  while (!line_.empty()) {
    const uint64_t bytes = line_.front().bytes;
    if (held_bytes_ != 0 && held_bytes_ + bytes > options_.most_bytes) return;
    Waiting next = std::move(line_.front());
    line_.pop_front();
    waiting_bytes_ -= bytes;
    if (next.record->freed) {
      next.done(absl::NotFoundError("it was freed"));
    } else if (next.record->disk.file == 0 || next.until < deps_.clock.Now()) {
      next.done(absl::UnavailableError("it is in memory again, or was asked for long ago"));
    } else {
      Begin(std::move(next));
    }
  }
}

void RangeReader::Begin(Waiting read) {
  held_bytes_ += read.bytes;
  const std::shared_ptr<std::byte[]> memory =
      std::make_shared_for_overwrite<std::byte[]>(read.bytes);
  auto outcome = std::make_shared<absl::Status>();
  // The file outlives the read: its removal is asked of the same executor, behind it.
  auto work = [&spill = deps_.spill, outcome, memory, disk = read.record->disk, from = read.from,
               bytes = read.bytes] { *outcome = spill.Read(disk, from, {memory.get(), bytes}); };
  deps_.loop.RunElsewhere(
      deps_.disk, std::move(work),
      [this, read = std::move(read), memory, outcome] { OnRead(read, memory, *outcome); });
}

void RangeReader::OnRead(const Waiting& read, std::shared_ptr<std::byte[]> memory,
                         const absl::Status& outcome) {
  if (!outcome.ok()) {
    const bool in_memory = read.record->place == ObjectPlace::kMemory;  // Again, by now.
    const bool freed = read.record->freed;
    if (in_memory) {
      deps_.files.Forget(*read.record);  // Else what is in memory would make way for it.
    } else if (!freed) {
      ++counts_.lost;
      deps_.index.Free(read.record, /*lost=*/true);
    }
    read.done(freed       ? absl::NotFoundError("it was freed")
              : in_memory ? absl::UnavailableError("it is in memory again")
                          : outcome);
    return Release(read.bytes);
  }
  ++counts_.reads;
  counts_.bytes += read.bytes;
  const std::span bytes(reinterpret_cast<const char*>(memory.get()), read.bytes);
  const auto held = deps_.loop.Hold([this, count = read.bytes] { Release(count); });
  auto both =
      std::make_shared<std::pair<std::shared_ptr<std::byte[]>, std::shared_ptr<const void>>>(
          std::move(memory), held);
  read.done(Range{.bytes = bytes, .hold = std::move(both)});
}

void RangeReader::Release(uint64_t bytes) {
  held_bytes_ -= bytes;
  BeginNext();
}

}  // namespace sheaf
