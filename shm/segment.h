// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Anonymous shared memory: a memfd, handed to other processes by descriptor, and mappings of it.
// Nothing has a name, so nothing is left behind by a crash.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "base/unique_fd.h"

namespace sheaf {

enum class Access : uint8_t { kReadOnly, kReadWrite };

// One mapped range; unmapped on destruction. Movable, not thread-safe itself (its bytes may be).
class Mapping {
 public:
  Mapping();
  Mapping(Mapping&&) noexcept;
  Mapping& operator=(Mapping&&) noexcept;
  ~Mapping();

  // Maps `size_bytes` (> 0) of `fd` from `offset_bytes`, a multiple of the page size. The mapping
  // is left out of core dumps (a core of a worker holds its own memory, not the node's objects).
  // `at`: nullptr, or an address where `size_bytes` are mapped already and are replaced.
  // kInvalidArgument: the file is shorter than the range. kResourceExhausted: no address space.
  static absl::StatusOr<Mapping> Map(int fd, size_t offset_bytes, size_t size_bytes, Access access,
                                     void* at = nullptr);

  std::byte* data() const;
  size_t size() const;
  // Changes what this process may do with [offset, offset + size), page-aligned.
  absl::Status Protect(size_t offset_bytes, size_t size_bytes, Access access);
  // A forked child does not get this range (its own accesses fault), so it cannot disturb the
  // parent's peers.
  absl::Status DontFork();
  // Asks for huge pages; a hint, which most kernels ignore for shared memory (shmem_enabled).
  void AdviseHugePages();
  // Makes the pages of [offset, offset + size) exist, then drops them from this process's page
  // table (they stay in the segment). kUnimplemented: the kernel cannot (before 5.14).
  // kResourceExhausted: no memory.
  absl::Status Populate(size_t offset_bytes, size_t size_bytes);

 private:
  struct Region;
  explicit Mapping(std::unique_ptr<Region> region);
  std::unique_ptr<Region> region_;
};

// A writable mapping that can take its page table to another address, in 0.1 ms for 512 MiB where
// two mprotects take 25 (both measured): pointers into it are revoked, while the memory stays warm
// for its next use. A forked child does not get it.
class MovableMapping {
 public:
  MovableMapping() = default;
  MovableMapping(MovableMapping&& other) noexcept { Swap(other); }
  MovableMapping& operator=(MovableMapping&& other) noexcept {
    Swap(other);
    return *this;
  }
  ~MovableMapping();

  // As Mapping::Map; aligned to 2 MiB, so that whole page tables can be moved.
  static absl::StatusOr<MovableMapping> Map(int fd, size_t offset_bytes, size_t size_bytes);
  // Afterwards data() is elsewhere, and the old addresses fault until they are data() again.
  // kResourceExhausted: no address space; nothing changed.
  absl::Status Move();

  std::byte* data() const { return address_; }
  size_t size() const { return size_; }

 private:
  void Swap(MovableMapping& other) noexcept {
    std::swap(address_, other.address_);
    std::swap(vacant_, other.vacant_);
    std::swap(size_, other.size_);
  }
  std::byte* address_ = nullptr;
  std::byte* vacant_ = nullptr;  // Where it was before: reserved, without access.
  size_t size_ = 0;
};

// Enters the pages of [begin, begin + bytes), which is mapped writable, into this process's page
// table, as writing to each of them would: that is a fault a page, which costs three times as much.
// A hint: what cannot be done so is left to the faults.
void EnterPages(std::byte* begin, size_t bytes);

// Makes a memfd of `size_bytes`, sparse, sealed against resizing, close-on-exec.
// kResourceExhausted: the kernel refused (descriptors, memory).
absl::StatusOr<UniqueFd> MakeSegment(const char* debug_name, size_t size_bytes);

// kInvalidArgument: `fd` is no memfd sealed against shrinking, or has fewer than `size_bytes`. What
// a process got from another is checked with this before it is mapped: a later truncation would be
// a SIGBUS.
absl::Status CheckSegment(int fd, size_t size_bytes);

inline constexpr size_t kPageBytes = 4096;
constexpr size_t RoundUpToPage(size_t bytes) {
  return (bytes + kPageBytes - 1) & ~(kPageBytes - 1);
}

}  // namespace sheaf
