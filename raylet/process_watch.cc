// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "raylet/process_watch.h"

#include <signal.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <optional>
#include <utility>
#include <vector>

#include "raylet/proc_files.h"

namespace sheaf {
namespace {

constexpr Nanos kLookPeriod = 20 * kMillisecond;

}  // namespace

UniqueFd OpenPidfd(pid_t pid) { return UniqueFd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0))); }

bool HasPidfd() {
  static const bool has = OpenPidfd(getpid()).valid();
  return has;
}

uint64_t StartTicks(pid_t pid) {
  const std::optional<ProcStat> stat = ReadProcStat(pid);
  return stat && stat->state != 'Z' && stat->state != 'X' ? stat->start_ticks : 0;
}

ProcessWatch::~ProcessWatch() {
  *alive_ = false;
  for (auto& [pid, watched] : watched_) {
    if (watched.pidfd.valid()) loop_.Unwatch(watched.pidfd.get());
  }
}

void ProcessWatch::Watch(pid_t pid, UniqueFd pidfd, std::function<void()> on_exit) {
  if (!pidfd.valid()) pidfd = OpenPidfd(pid);
  Watched& watched = watched_[pid];
  watched = Watched{std::move(pidfd), 0, std::move(on_exit)};
  if (watched.pidfd.valid() &&
      loop_.Watch(watched.pidfd.get(), EPOLLIN, [this, pid](uint32_t) { Exited(pid); }).ok()) {
    return;
  }
  watched.start_ticks = StartTicks(pid);
  if (!std::exchange(looking_, true)) {
    loop_.After(kLookPeriod, [this, alive = alive_] {
      if (*alive) Look();
    });
  }
}

void ProcessWatch::Unwatch(pid_t pid) {
  const auto found = watched_.find(pid);
  if (found == watched_.end()) return;
  if (found->second.pidfd.valid()) loop_.Unwatch(found->second.pidfd.get());
  watched_.erase(found);
}

void ProcessWatch::Signal(pid_t pid, int signal) {
  const auto found = watched_.find(pid);
  if (found == watched_.end()) return;
  if (found->second.pidfd.valid()) {
    syscall(SYS_pidfd_send_signal, found->second.pidfd.get(), signal, nullptr, 0);
  } else if (StartTicks(pid) == found->second.start_ticks) {
    kill(pid, signal);
  }
}

void ProcessWatch::Exited(pid_t pid) {
  const auto found = watched_.find(pid);
  if (found == watched_.end()) return;
  const std::function<void()> on_exit = std::move(found->second.on_exit);
  Unwatch(pid);
  on_exit();
}

void ProcessWatch::Look() {
  std::vector<pid_t> exited;
  bool any = false;
  for (const auto& [pid, watched] : watched_) {
    if (watched.pidfd.valid()) continue;
    any = true;
    if (StartTicks(pid) != watched.start_ticks || watched.start_ticks == 0) exited.push_back(pid);
  }
  for (pid_t pid : exited) Exited(pid);
  looking_ = any;
  if (any) {
    loop_.After(kLookPeriod, [this, alive = alive_] {
      if (*alive) Look();
    });
  }
}

}  // namespace sheaf
