// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "object_store/server/spill.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/crc32c.h"
#include "base/failpoint.h"
#include "base/status_macros.h"
#include "base/unique_fd.h"

namespace sheaf {
namespace {

constexpr char kPrefix[] = "objects-";

// So much is on its way to the disk while the next is written, and is waited for then: who waits
// for room sees a slow disk go on, and no file fills the machine's memory with dirty pages.
constexpr uint64_t kStride = 4 << 20;

absl::Status DiskError(int error, const std::string& what) {
  const std::string words = absl::StrCat(what, ": ", std::strerror(error));
  if (error == ENOSPC || error == EDQUOT || error == EFBIG)
    return absl::ResourceExhaustedError(words);
  return absl::UnknownError(words);
}

uint32_t Checksum(std::span<const std::byte> bytes) {
  return Crc32c({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

std::vector<uint32_t> ChecksumsOf(std::span<const std::byte> bytes) {
  std::vector<uint32_t> crcs;
  crcs.reserve((bytes.size() + SpillRecord::kBlockBytes - 1) / SpillRecord::kBlockBytes);
  for (size_t at = 0; at < bytes.size(); at += SpillRecord::kBlockBytes)
    crcs.push_back(
        Checksum(bytes.subspan(at, std::min<size_t>(SpillRecord::kBlockBytes, bytes.size() - at))));
  return crcs;
}

absl::Status ReadAll(int fd, const std::string& path, uint64_t offset, std::span<std::byte> to) {
  for (size_t at = 0; at < to.size();) {
    const ssize_t count =
        pread(fd, to.data() + at, to.size() - at, static_cast<off_t>(offset + at));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return absl::DataLossError(absl::StrCat(path, ": ", std::strerror(errno)));
    if (count == 0) return absl::DataLossError(absl::StrCat(path, " is too short"));
    at += static_cast<size_t>(count);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<FileSpill>> FileSpill::Open(Options options) {
  if (mkdir(options.directory.c_str(), 0700) != 0 && errno != EEXIST) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot make ", options.directory));
  }
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(options.directory, error)) {
    std::error_code ignored;
    if (entry.path().filename().string().starts_with(kPrefix)) {
      std::filesystem::remove(entry.path(), ignored);
    }
  }
  if (error)
    return absl::ErrnoToStatus(error.value(), absl::StrCat("cannot read ", options.directory));
  return std::unique_ptr<FileSpill>(new FileSpill(std::move(options)));
}

std::string FileSpill::PathOf(uint64_t file) const {
  return absl::StrCat(options_.directory, "/", kPrefix, file);
}

absl::StatusOr<std::vector<SpillRecord>> FileSpill::Write(
    uint64_t file, std::span<const std::span<const std::byte>> pieces) {
  SHEAF_RETURN_IF_ERROR(SHEAF_FAILPOINT_STATUS("store.spill.begin"));
  uint64_t total = 0;
  std::vector<SpillRecord> records;
  for (const auto& piece : pieces) {
    records.push_back(
        {.file = file, .offset = total, .bytes = piece.size(), .crcs = ChecksumsOf(piece)});
    total += piece.size();
  }
  struct statvfs disk;
  if (statvfs(options_.directory.c_str(), &disk) == 0 &&
      uint64_t{disk.f_bavail} * disk.f_frsize < total + options_.min_free_bytes) {
    return absl::ResourceExhaustedError(absl::StrCat("less than ", options_.min_free_bytes,
                                                     " bytes would be left on the disk of ",
                                                     options_.directory));
  }
  const std::string path = PathOf(file);
  const UniqueFd fd(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!fd.valid()) return DiskError(errno, path);
  absl::Status written = WriteAll(fd.get(), pieces);
  if (written.ok() && fdatasync(fd.get()) != 0) written = DiskError(errno, path);
  if (!written.ok()) {
    unlink(path.c_str());
    return written;
  }
  // The copy in the page cache would take the memory that spilling is to make free.
  posix_fadvise(fd.get(), 0, 0, POSIX_FADV_DONTNEED);
  return records;
}

absl::Status FileSpill::WriteAll(int fd, std::span<const std::span<const std::byte>> pieces) {
  uint64_t begun = 0;  // Of the file, a multiple of kStride: what the disk was told to take.
  uint64_t filled = 0;
  const auto sync = [&](uint64_t at, unsigned how) {
    if (sync_file_range(fd, static_cast<off_t>(at), kStride, how) == 0) return absl::OkStatus();
    if (errno == ENOSYS || errno == EINVAL || errno == ESPIPE) return absl::OkStatus();
    return DiskError(errno, options_.directory);  // fdatasync may not say it again.
  };
  for (const auto& piece : pieces) {
    SHEAF_RETURN_IF_ERROR(SHEAF_FAILPOINT_STATUS("store.spill.write"));
    for (size_t at = 0; at < piece.size();) {
      const size_t most = std::min<size_t>(piece.size() - at, begun + kStride - filled);
      const ssize_t count = write(fd, piece.data() + at, most);
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) return DiskError(errno, options_.directory);
      at += static_cast<size_t>(count);
      filled += static_cast<size_t>(count);
      if (filled != begun + kStride) continue;
      SHEAF_RETURN_IF_ERROR(sync(begun, SYNC_FILE_RANGE_WRITE));
      if (begun != 0) {
        SHEAF_RETURN_IF_ERROR(sync(begun - kStride, SYNC_FILE_RANGE_WAIT_BEFORE |
                                                        SYNC_FILE_RANGE_WRITE |
                                                        SYNC_FILE_RANGE_WAIT_AFTER));
        written_.fetch_add(kStride, std::memory_order_relaxed);
      }
      begun = filled;
    }
  }
  return absl::OkStatus();
}

absl::Status FileSpill::Read(const SpillRecord& record, uint64_t from, std::span<std::byte> to) {
  const std::string path = PathOf(record.file);
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) return absl::DataLossError(absl::StrCat(path, ": ", std::strerror(errno)));
  std::vector<std::byte> cut;  // A block of which only a part is wanted.
  for (size_t done = 0; done < to.size();) {
    const uint64_t block = (from + done) / SpillRecord::kBlockBytes;
    const uint64_t begin = block * SpillRecord::kBlockBytes;
    const uint64_t bytes = std::min(SpillRecord::kBlockBytes, record.bytes - begin);
    const uint64_t skipped = from + done - begin;
    const size_t wanted = std::min<size_t>(bytes - skipped, to.size() - done);
    std::span<std::byte> place = to.subspan(done, wanted);
    if (wanted != bytes) {
      cut.resize(bytes);
      place = cut;
    }
    SHEAF_RETURN_IF_ERROR(ReadAll(fd.get(), path, record.offset + begin, place));
    if (Checksum(place) != record.crcs[block]) {
      return absl::DataLossError(absl::StrCat(path, ": wrong checksum at ", record.offset + begin));
    }
    if (wanted != bytes) std::memcpy(to.data() + done, place.data() + skipped, wanted);
    done += wanted;
  }
  return absl::OkStatus();
}

void FileSpill::Remove(uint64_t file) { unlink(PathOf(file).c_str()); }

}  // namespace sheaf
