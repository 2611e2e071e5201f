// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Loaded in front of the C library (LD_PRELOAD) by fault rows 12 and 15: what a disk does to the
// files of the GCS that the process itself cannot see.
//   FAULT_DISK_KEEP=1     after each sync of a file whose name holds "gcs.db", a copy of it is put
//                         beside it as FILE.synced: what a power cut would leave of it at worst
//   FAULT_DISK_FAIL=PATH  when a file is there, the next sync of such a file removes it and fails
//                         with EIO, once
#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>

namespace {

std::string PathOf(int fd) {
  char link[64], path[4096];
  std::snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  const ssize_t size = readlink(link, path, sizeof path);
  return size > 0 ? std::string(path, static_cast<size_t>(size)) : std::string();
}

bool IsOfTheGcs(const std::string& path) {
  return path.find("/gcs.db") != std::string::npos && !path.ends_with("-ballast");
}

// A copy that is whole or not there.
void Keep(const std::string& path) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  const std::string target = path + ".synced", half = path + ".half";
  const int from = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  const int to = open(half.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  char bytes[65536];
  ssize_t got = -1;
  while (from >= 0 && to >= 0 && (got = read(from, bytes, sizeof bytes)) > 0) {
    if (write(to, bytes, static_cast<size_t>(got)) != got) std::abort();
  }
  if (got != 0 || rename(half.c_str(), target.c_str()) != 0) std::abort();
  close(from);
  close(to);
}

using Sync = int (*)(int);

int SyncWith(Sync real, int fd) {
  const std::string path = PathOf(fd);
  if (!IsOfTheGcs(path)) return real(fd);
  const char* fail = std::getenv("FAULT_DISK_FAIL");
  if (fail != nullptr && unlink(fail) == 0) {
    errno = EIO;
    return -1;
  }
  const int result = real(fd);
  if (result == 0 && std::getenv("FAULT_DISK_KEEP") != nullptr) Keep(path);
  return result;
}

}  // namespace

extern "C" {

int fsync(int fd) {
  static const auto real = reinterpret_cast<Sync>(dlsym(RTLD_NEXT, "fsync"));
  return SyncWith(real, fd);
}

int fdatasync(int fd) {
  static const auto real = reinterpret_cast<Sync>(dlsym(RTLD_NEXT, "fdatasync"));
  return SyncWith(real, fd);
}

}  // extern "C"
