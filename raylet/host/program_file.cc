// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "raylet/host/program_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "rpc/security/hmac.h"

namespace sheaf {
namespace {

constexpr uint64_t kReadAtOnce = uint64_t{1} << 20;

// Different on every machine and after every boot. Empty where there is none: then files of two
// raylets are never held to be the same one.
const std::string& BootId() {
  static const std::string id = [] {
    std::string line;
    std::ifstream file("/proc/sys/kernel/random/boot_id");
    std::getline(file, line);
    return line;
  }();
  return id;
}

}  // namespace

absl::StatusOr<ProgramFile> ExamineProgram(int fd) {
  struct stat info{};
  if (fstat(fd, &info) != 0) return absl::ErrnoToStatus(errno, "fstat of a program");
  if (!S_ISREG(info.st_mode)) return absl::FailedPreconditionError("it is no regular file");
  ProgramFile file{.size_bytes = static_cast<uint64_t>(info.st_size), .identity = {}};
  if (!BootId().empty()) {
    file.identity = absl::StrCat(BootId(), ":", info.st_dev, ":", info.st_ino, ":", info.st_size,
                                 ":", info.st_mtim.tv_sec, ".", info.st_mtim.tv_nsec, ":",
                                 info.st_ctim.tv_sec, ".", info.st_ctim.tv_nsec);
  }
  return file;
}

absl::StatusOr<std::string> DigestOfProgram(int fd, uint64_t size_bytes) {
  RunningSha256 sum;
  for (uint64_t offset = 0; offset < size_bytes; offset += kReadAtOnce) {
    SHEAF_ASSIGN_OR_RETURN(const std::string bytes, ReadProgram(fd, offset, kReadAtOnce));
    sum.Add(bytes);
  }
  return std::string(AsView(sum.Finish()));
}

absl::StatusOr<std::string> ReadProgram(int fd, uint64_t offset, uint64_t length) {
  std::string bytes(length, '\0');
  size_t have = 0;
  while (have < length) {
    const ssize_t got =
        pread(fd, bytes.data() + have, length - have, static_cast<off_t>(offset + have));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return absl::ErrnoToStatus(errno, "cannot read a program");
    if (got == 0) break;
    have += static_cast<size_t>(got);
  }
  bytes.resize(have);
  return bytes;
}

}  // namespace sheaf
