// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "gcs/storage/ballast.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>

#include "base/unique_fd.h"

namespace sheaf {

bool Ballast::Take() {
  if (size_bytes_ == 0) return true;
  const UniqueFd file(open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  struct stat now;
  if (!file.valid() || fstat(file.get(), &now) != 0) return false;
  if (now.st_size >= size_bytes_) return true;
  struct statvfs space;
  if (fstatvfs(file.get(), &space) != 0 ||
      static_cast<int64_t>(space.f_bavail * space.f_frsize) < 2 * size_bytes_) {
    return false;
  }
  if (posix_fallocate(file.get(), 0, size_bytes_) == 0) return true;
  [[maybe_unused]] const int given_back = ftruncate(file.get(), 0);
  return false;
}

bool Ballast::Release() {
  const UniqueFd file(open(path_.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
  struct stat now;
  return file.valid() && fstat(file.get(), &now) == 0 && now.st_size > 0 &&
         ftruncate(file.get(), 0) == 0;
}

bool Ballast::ReleaseSome(int64_t bytes) {
  const UniqueFd file(open(path_.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
  struct stat now;
  return file.valid() && fstat(file.get(), &now) == 0 && now.st_size > 0 &&
         ftruncate(file.get(), std::max<int64_t>(now.st_size - bytes, 0)) == 0;
}

}  // namespace sheaf
