// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The arena of a real node: a memfd, sparse until it is populated.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/unique_fd.h"
#include "object_store/arena/store_host.h"
#include "object_store/machine_memory.h"
#include "shm/segment.h"

namespace sheaf {

class SegmentArena final : public ArenaMemory {
 public:
  struct Options {
    uint64_t capacity_bytes = 0;        // Of objects; see DefaultStoreCapacity.
    uint64_t reserve_bytes = 64 << 20;  // Left to others when memory is short.
    std::function<MachineMemory()> memory = [] { return ReadMachineMemory(); };
  };

  // kResourceExhausted: no address space, no descriptor.
  static absl::StatusOr<std::unique_ptr<SegmentArena>> Make(Options options);

  std::byte* data() override { return mapping_.data(); }
  uint64_t size_bytes() const override { return mapping_.size(); }
  absl::Status Populate(uint64_t offset, uint64_t bytes) override;
  void Discard(uint64_t offset, uint64_t bytes) override;

  int fd() const { return fd_.get(); }
  // The kernel gives huge pages for shared memory, to those who ask or to all.
  bool huge_pages() const { return huge_pages_; }

 private:
  SegmentArena(Options options, UniqueFd fd, Mapping mapping);

  const Options options_;
  const UniqueFd fd_;
  Mapping mapping_;
  bool huge_pages_ = false;
  bool huge_on_request_ = false;  // Only through a mapping that asks for them.
};

// 30 % of what this process may use; at least 64 MiB.
uint64_t DefaultStoreCapacity(const MachineMemory& memory);

}  // namespace sheaf
