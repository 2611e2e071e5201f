// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "raylet/logs/event_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace sheaf {

absl::Status EventFile::Open() {
  file_.Reset(
      open(options_.path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600));
  struct stat info;
  if (!file_.valid() || fstat(file_.get(), &info) != 0)
    return absl::ErrnoToStatus(errno, options_.path);
  bytes_ = info.st_size;
  return absl::OkStatus();
}

absl::Status EventFile::Append(std::string_view lines) {
  struct stat info;
  // Somebody may have moved it away, or deleted it.
  if (file_.valid() && (fstat(file_.get(), &info) != 0 || info.st_nlink == 0)) file_.Reset();
  if (!file_.valid()) SHEAF_RETURN_IF_ERROR(Open());
  size_t written = 0;
  while (written < lines.size()) {
    const ssize_t n = write(file_.get(), lines.data() + written, lines.size() - written);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      const absl::Status why = absl::ErrnoToStatus(n < 0 ? errno : ENOSPC, options_.path);
      // Nobody is to read half a line.
      if (written > 0 && ftruncate(file_.get(), bytes_) != 0) file_.Reset();
      return why;
    }
    written += static_cast<size_t>(n);
  }
  bytes_ += static_cast<int64_t>(lines.size());
  if (bytes_ > options_.max_bytes) Rotate();
  return absl::OkStatus();
}

void EventFile::Rotate() {
  const auto name = [this](int number) {
    return number == 0 ? options_.path : absl::StrCat(options_.path, ".", number);
  };
  for (int number = options_.backups; number > 0; --number)
    rename(name(number - 1).c_str(), name(number).c_str());
  file_.Reset();
}

}  // namespace sheaf
