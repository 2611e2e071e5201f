// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "collective/process_identity.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace sheaf {
namespace {

#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif

std::string ReadSmallFile(const std::string& path) {
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  char text[1024];
  const ssize_t size = fd.valid() ? read(fd.get(), text, sizeof text) : -1;
  return std::string(text, size > 0 ? static_cast<size_t>(size) : 0);
}

struct ProcessStat {
  char state = 0;           // 0: there is no such process.
  uint64_t start_time = 0;  // Field 22.
};

ProcessStat StatOf(pid_t pid) {
  const std::string text = ReadSmallFile(absl::StrCat("/proc/", pid, "/stat"));
  ProcessStat stat;
  const size_t name_end = text.rfind(')');  // The name may hold anything.
  if (name_end == std::string::npos) return stat;
  unsigned long long start = 0;
  std::sscanf(text.c_str() + name_end + 1,
              " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu",
              &stat.state, &start);
  stat.start_time = start;
  return stat;
}

}  // namespace

ProcessIdentity OwnIdentity() {
  ProcessIdentity own;
  own.pid = getpid();
  own.start_time = StatOf(own.pid).start_time;
  struct stat space = {};
  stat("/proc/self/ns/pid", &space);
  std::string boot = ReadSmallFile("/proc/sys/kernel/random/boot_id");
  while (!boot.empty() && boot.back() == '\n') boot.pop_back();
  own.machine = absl::StrCat(boot, "/", space.st_ino);
  return own;
}

absl::StatusOr<ProcessPresence> ProcessPresence::Watch(const ProcessIdentity& process) {
  ProcessPresence presence;
  presence.process_ = process;
  // First the descriptor, then the look at the start time: from then on both mean one process.
  presence.pidfd_.Reset(static_cast<int>(syscall(SYS_pidfd_open, process.pid, 0)));
  if (!presence.Alive()) {
    return absl::NotFoundError(absl::StrCat("its process ", process.pid, " is gone"));
  }
  if (StatOf(process.pid).start_time != process.start_time) {
    return absl::NotFoundError(
        absl::StrCat("its process ", process.pid, " is gone, and the number is another's"));
  }
  return presence;
}

bool ProcessPresence::Alive() const {
  if (pidfd_.valid()) {
    pollfd entry{pidfd_.get(), POLLIN, 0};
    return poll(&entry, 1, 0) <= 0;
  }
  const ProcessStat stat = StatOf(process_.pid);
  return stat.state != 0 && stat.state != 'Z' && stat.state != 'X' &&
         stat.start_time == process_.start_time;
}

bool ProcessPresence::Stopped() const {
  const ProcessStat stat = StatOf(process_.pid);
  return stat.state == 'T' || stat.state == 't';
}

absl::StatusOr<UniqueFd> OpenDescriptorOf(const ProcessIdentity& process, int fd) {
  const std::string path = absl::StrCat("/proc/", process.pid, "/fd/", fd);
  UniqueFd opened(open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (!opened.valid()) {
    return absl::PermissionDeniedError(
        absl::StrCat("cannot open ", path, ": ", std::strerror(errno),
                     "; ranks of a group run as one user and may look into each other"));
  }
  return opened;
}

}  // namespace sheaf
