// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Spilled objects in files of one directory, on any file system. A file holds the bytes of one
// batch of objects, one behind the other; where each lies and its checksum is what SpillRecord
// says. The files mean nothing to a later raylet, so a new one removes them. SpillProgress is what
// the store, which waits for them, knows of the disk.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "object_store/store_host.h"

namespace sheaf {

class FileSpill final : public SpillStorage {
 public:
  struct Options {
    std::string directory;                // Made (0700) if it is missing.
    uint64_t min_free_bytes = 256 << 20;  // Of the file system; less counts as full.
  };

  // Removes the spill files of an earlier raylet. kPermissionDenied and others: the directory
  // cannot be used.
  static absl::StatusOr<std::unique_ptr<FileSpill>> Open(Options options);

  absl::StatusOr<std::vector<SpillRecord>> Write(
      uint64_t file, std::span<const std::span<const std::byte>> pieces) override;
  absl::Status Read(const SpillRecord& record, std::byte* bytes) override;
  void Remove(uint64_t file) override;
  uint64_t BytesWritten() const override { return written_.load(std::memory_order_relaxed); }

  std::string PathOf(uint64_t file) const;

 private:
  explicit FileSpill(Options options) : options_(std::move(options)) {}
  absl::Status WriteAll(int fd, std::span<const std::span<const std::byte>> pieces);

  const Options options_;
  std::atomic<uint64_t> written_{0};
};

// What the store knows of the disk that it spills to: it takes what comes, slowly perhaps, or it
// is full or broken.
class SpillProgress {
 public:
  SpillProgress(Nanos retry_period, int most_waits)
      : retry_period_(retry_period), most_waits_(most_waits) {}

  void OnBegin(Nanos now) {
    if (!failing_) moved_at_ = now;
  }
  // `written`: SpillStorage::BytesWritten().
  void Look(Nanos now, uint64_t written) {
    if (std::exchange(written_, written) != written) moved_at_ = now;
  }
  void OnEnd(Nanos now, bool complete) {
    failing_ = !complete;
    if (complete) moved_at_ = now;
    if (failing_) retry_at_ = now + retry_period_;
  }
  bool failing() const { return failing_; }     // The last file could not be written;
  Nanos retry_at() const { return retry_at_; }  // the next may be then.
  // When one who asked for room at `since`, and may wait until `deadline`, has waited in vain: a
  // slow disk is no full one. Of several who wait at once each gets room behind those before it, so
  // the wait is counted from what came to the disk last; in all it is `most_waits` times as long.
  Nanos EndOfWait(Nanos since, Nanos deadline) const {
    const Nanos wait = deadline - since;
    return std::min(std::max(deadline, moved_at_ + wait), since + most_waits_ * wait);
  }

 private:
  const Nanos retry_period_;
  const int most_waits_;
  bool failing_ = false;
  Nanos retry_at_ = 0;
  Nanos moved_at_ = 0;  // A file was begun, or bytes came to the disk.
  uint64_t written_ = 0;
};

}  // namespace sheaf
