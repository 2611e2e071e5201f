// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Loaded in front of the C library (LD_PRELOAD) by fault rows 12, 15 and 25: what a disk does to
// the files of the GCS, and to spilled objects, that the process itself cannot see.
//   FAULT_DISK_KEEP=1     after each sync of a file whose name holds "gcs.db", a copy of it is put
//                         beside it as FILE.synced: what a power cut would leave of it at worst
//   FAULT_DISK_FAIL=PATH  when a file is there, the next sync of such a file removes it and fails
//                         with EIO, once
//   FAULT_DISK_SLOW=PATH  while a file is there, spilled objects are synced and read at the bytes
//                         per second that it holds; PATH.delayed gets a line for each, the bytes
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>

namespace {

constexpr unsigned kSliceUs = 20'000;

std::string PathOf(int fd) {
  char link[64], path[4096];
  std::snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  const ssize_t size = readlink(link, path, sizeof path);
  return size > 0 ? std::string(path, static_cast<size_t>(size)) : std::string();
}

bool IsOfTheGcs(const std::string& path) {
  return path.find("/gcs.db") != std::string::npos && !path.ends_with("-ballast") &&
         !path.ends_with("-reserve");
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

// As long as a slow disk would take. Ends early when the disk is slow no more.
void TakeTime(int fd, double bytes) {
  const char* slow = std::getenv("FAULT_DISK_SLOW");
  if (slow == nullptr || access(slow, F_OK) != 0) return;
  if (PathOf(fd).find("/spill/") == std::string::npos) return;
  if (std::FILE* log = std::fopen((std::string(slow) + ".delayed").c_str(), "a")) {
    std::fprintf(log, "%.0f\n", bytes);
    std::fclose(log);
  }
  // By the clock: the disk is not slower because its process gets no CPU.
  using Clock = std::chrono::steady_clock;
  for (auto then = Clock::now(); bytes > 0;) {
    std::FILE* file = std::fopen(slow, "r");
    double rate = 0;
    if (file == nullptr) return;
    if (std::fscanf(file, "%lf", &rate) != 1) rate = 0;
    std::fclose(file);
    if (rate <= 0) return;
    usleep(kSliceUs);
    const auto now = Clock::now();
    bytes -= rate * std::chrono::duration<double>(now - then).count();
    then = now;
  }
}

// Of each file, what it has waited for in pieces.
std::mutex waited_mutex;
std::map<int, double>& Waited() {
  static std::map<int, double> waited;
  return waited;
}
double TakeWaited(int fd) {
  const std::lock_guard lock(waited_mutex);
  const auto node = Waited().extract(fd);
  return node.empty() ? 0 : node.mapped();
}

using Sync = int (*)(int);

int SyncWith(Sync real, int fd) {
  const std::string path = PathOf(fd);
  if (!IsOfTheGcs(path)) {
    struct stat file;
    if (fstat(fd, &file) == 0) TakeTime(fd, static_cast<double>(file.st_size) - TakeWaited(fd));
    return real(fd);
  }
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

int sync_file_range(int fd, off_t offset, off_t bytes, unsigned flags) {
  using Range = int (*)(int, off_t, off_t, unsigned);
  static const auto real = reinterpret_cast<Range>(dlsym(RTLD_NEXT, "sync_file_range"));
  if ((flags & SYNC_FILE_RANGE_WAIT_AFTER) != 0) {
    {
      const std::lock_guard lock(waited_mutex);
      Waited()[fd] += static_cast<double>(bytes);
    }
    TakeTime(fd, static_cast<double>(bytes));
  }
  return real(fd, offset, bytes, flags);
}

ssize_t pread(int fd, void* bytes, size_t count, off_t offset) {
  using Read = ssize_t (*)(int, void*, size_t, off_t);
  static const auto real = reinterpret_cast<Read>(dlsym(RTLD_NEXT, "pread"));
  const ssize_t got = real(fd, bytes, count, offset);
  if (got > 0) TakeTime(fd, static_cast<double>(got));
  return got;
}

}  // extern "C"
