// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Spilled objects in files of one directory, on any file system. A file holds the bytes of one
// batch of objects, one behind the other; where each lies and the checksums of its blocks is what
// SpillRecord says. The files mean nothing to a later raylet, so a new one removes them.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "object_store/arena/store_host.h"

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
  absl::Status Read(const SpillRecord& record, uint64_t from, std::span<std::byte> to) override;
  void Remove(uint64_t file) override;
  uint64_t BytesWritten() const override { return written_.load(std::memory_order_relaxed); }

  std::string PathOf(uint64_t file) const;

 private:
  explicit FileSpill(Options options) : options_(std::move(options)) {}
  absl::Status WriteAll(int fd, std::span<const std::span<const std::byte>> pieces);

  const Options options_;
  std::atomic<uint64_t> written_{0};
};

}  // namespace sheaf
