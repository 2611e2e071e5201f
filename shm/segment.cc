// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "shm/segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <boost/interprocess/detail/os_file_functions.hpp>
#include <boost/interprocess/mapped_region.hpp>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace sheaf {
namespace {

namespace bip = boost::interprocess;

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

// 0, or -1 with errno.
int PopulateToWrite(std::byte* begin, size_t bytes) {
  int result;
  do {
    result = madvise(begin, bytes, MADV_POPULATE_WRITE);
  } while (result != 0 && errno == EINTR);
  return result;
}

// What Boost.Interprocess asks of a thing it can map.
struct MemoryFd {
  int fd;
  Access access;
  bip::mapping_handle_t get_mapping_handle() const {
    return bip::ipcdetail::mapping_handle_from_file_handle(fd);
  }
  bip::mode_t get_mode() const {
    return access == Access::kReadOnly ? bip::read_only : bip::read_write;
  }
};

}  // namespace

struct Mapping::Region {
  bip::mapped_region region;
};

Mapping::Mapping() = default;
Mapping::Mapping(Mapping&&) noexcept = default;
Mapping& Mapping::operator=(Mapping&&) noexcept = default;
Mapping::~Mapping() = default;
Mapping::Mapping(std::unique_ptr<Region> region) : region_(std::move(region)) {}

absl::StatusOr<Mapping> Mapping::Map(int fd, size_t offset_bytes, size_t size_bytes, Access access,
                                     void* at) {
  struct stat file;
  if (fstat(fd, &file) != 0 || static_cast<size_t>(file.st_size) < offset_bytes + size_bytes) {
    return absl::InvalidArgumentError(absl::StrCat("a segment of ", file.st_size,
                                                   " bytes has no range of ", size_bytes, " at ",
                                                   offset_bytes));
  }
  try {
    const bip::mode_t mode = access == Access::kReadOnly ? bip::read_only : bip::read_write;
    bip::mapped_region region(MemoryFd{fd, access}, mode, static_cast<bip::offset_t>(offset_bytes),
                              size_bytes, at, MAP_SHARED | (at != nullptr ? MAP_FIXED : 0));
    madvise(region.get_address(), region.get_size(), MADV_DONTDUMP);
    return Mapping(std::unique_ptr<Region>(new Region{std::move(region)}));
  } catch (const bip::interprocess_exception& e) {
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot map ", size_bytes, " bytes: ", e.what()));
  }
}

std::byte* Mapping::data() const {
  return region_ ? static_cast<std::byte*>(region_->region.get_address()) : nullptr;
}
size_t Mapping::size() const { return region_ ? region_->region.get_size() : 0; }

absl::Status Mapping::Protect(size_t offset_bytes, size_t size_bytes, Access access) {
  const int protection = access == Access::kReadOnly ? PROT_READ : PROT_READ | PROT_WRITE;
  if (mprotect(data() + offset_bytes, size_bytes, protection) != 0) {
    return absl::ErrnoToStatus(errno, "mprotect");
  }
  return absl::OkStatus();
}

absl::Status Mapping::DontFork() {
  if (madvise(data(), size(), MADV_DONTFORK) != 0)
    return absl::ErrnoToStatus(errno, "MADV_DONTFORK");
  return absl::OkStatus();
}

void Mapping::AdviseHugePages() { madvise(data(), size(), MADV_HUGEPAGE); }

absl::Status Mapping::Populate(size_t offset_bytes, size_t size_bytes) {
  const int result = PopulateToWrite(data() + offset_bytes, size_bytes);
  const int error = errno;
  // The pages belong to the segment; here only their number in this process's page table goes.
  madvise(data() + offset_bytes, size_bytes, MADV_DONTNEED);
  if (result == 0) return absl::OkStatus();
  if (error == EINVAL) return absl::UnimplementedError("no MADV_POPULATE_WRITE");
  return absl::ResourceExhaustedError(
      absl::StrCat("cannot populate ", size_bytes, " bytes: ", std::strerror(error)));
}

void EnterPages(std::byte* begin, size_t bytes) {
  const size_t skipped = reinterpret_cast<uintptr_t>(begin) % kPageBytes;
  (void)PopulateToWrite(begin - skipped, RoundUpToPage(bytes + skipped));
}

namespace {

constexpr size_t kMoveAlignment = 2 * 1024 * 1024;

// Addresses without access, aligned. Null: there are none.
std::byte* Reserve(size_t size_bytes) {
  const size_t padded = size_bytes + kMoveAlignment;
  void* found =
      mmap(nullptr, padded, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (found == MAP_FAILED) return nullptr;
  std::byte* start = static_cast<std::byte*>(found);
  const size_t skip = -reinterpret_cast<uintptr_t>(start) % kMoveAlignment;
  if (skip != 0) munmap(start, skip);
  munmap(start + skip + size_bytes, padded - skip - size_bytes);
  return start + skip;
}

}  // namespace

absl::StatusOr<MovableMapping> MovableMapping::Map(int fd, size_t offset_bytes, size_t size_bytes) {
  struct stat file;
  if (fstat(fd, &file) != 0 || static_cast<size_t>(file.st_size) < offset_bytes ||
      static_cast<size_t>(file.st_size) - offset_bytes < size_bytes ||
      size_bytes % kPageBytes != 0) {
    return absl::InvalidArgumentError(absl::StrCat("a segment of ", file.st_size,
                                                   " bytes has no range of ", size_bytes, " at ",
                                                   offset_bytes));
  }
  MovableMapping mapping;
  mapping.size_ = size_bytes;
  mapping.address_ = Reserve(size_bytes);
  if (mapping.address_ == nullptr ||
      mmap(mapping.address_, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd,
           static_cast<off_t>(offset_bytes)) == MAP_FAILED) {
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot map ", size_bytes, " bytes: ", std::strerror(errno)));
  }
  madvise(mapping.address_, size_bytes, MADV_DONTDUMP);
  if (madvise(mapping.address_, size_bytes, MADV_DONTFORK) != 0) {
    return absl::ErrnoToStatus(errno, "MADV_DONTFORK");
  }
  return mapping;
}

MovableMapping::~MovableMapping() {
  if (address_ != nullptr) munmap(address_, size_);
  if (vacant_ != nullptr) munmap(vacant_, size_);
}

absl::Status MovableMapping::Move() {
  if (vacant_ == nullptr) vacant_ = Reserve(size_);
  if (vacant_ == nullptr ||
      mremap(address_, size_, size_, MREMAP_MAYMOVE | MREMAP_FIXED, vacant_) == MAP_FAILED) {
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot move ", size_, " mapped bytes: ", std::strerror(errno)));
  }
  std::byte* before = std::exchange(address_, vacant_);
  // Another thread may have mapped something there in this instant: then it is simply not ours any
  // more.
  void* kept = mmap(before, size_, PROT_NONE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
  if (kept != MAP_FAILED && kept != before) munmap(kept, size_);  // A kernel without NOREPLACE.
  vacant_ = kept == before ? before : nullptr;
  return absl::OkStatus();
}

absl::StatusOr<UniqueFd> MakeSegment(const char* debug_name, size_t size_bytes) {
  UniqueFd fd(memfd_create(debug_name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid() || ftruncate(fd.get(), static_cast<off_t>(size_bytes)) != 0 ||
      fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return absl::ResourceExhaustedError(absl::StrCat("cannot make a segment of ", size_bytes,
                                                     " bytes for ", debug_name, ": ",
                                                     std::strerror(errno)));
  }
  return fd;
}

absl::Status CheckSegment(int fd, size_t size_bytes) {
  struct stat file;
  const int seals = fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
    return absl::InvalidArgumentError("not a memfd sealed against shrinking");
  }
  if (fstat(fd, &file) != 0 || static_cast<size_t>(file.st_size) < size_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("a segment of ", file.st_size, " bytes, want ", size_bytes));
  }
  return absl::OkStatus();
}

}  // namespace sheaf
