// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "raylet/host/process_watch.h"

#include <signal.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <optional>
#include <utility>
#include <vector>

#include "raylet/host/proc_files.h"

namespace sheaf {
namespace {

constexpr Nanos kLookPeriod = 20 * kMillisecond;

}  // namespace

UniqueFd OpenPidfd(pid_t pid) {
  return UniqueFd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
}

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
  for (auto& [number, watched] : watched_) {
    if (watched.pidfd.valid()) loop_.Unwatch(watched.pidfd.get());
  }
}

uint64_t ProcessWatch::Watch(pid_t pid, UniqueFd pidfd, std::function<void()> on_exit) {
  if (!pidfd.valid()) pidfd = OpenPidfd(pid);
  const uint64_t number = ++last_;
  Watched& watched = watched_[number];
  watched = Watched{pid, std::move(pidfd), 0, std::move(on_exit)};
  if (watched.pidfd.valid() &&
      loop_.Watch(watched.pidfd.get(), EPOLLIN, [this, number](uint32_t) { Exited(number); })
          .ok()) {
    return number;
  }
  watched.pidfd.Reset();
  watched.start_ticks = StartTicks(pid);
  if (!std::exchange(looking_, true)) {
    loop_.After(kLookPeriod, [this, alive = alive_] {
      if (*alive) Look();
    });
  }
  return number;
}

void ProcessWatch::Unwatch(uint64_t watch) {
  const auto found = watched_.find(watch);
  if (found == watched_.end()) return;
  if (found->second.pidfd.valid()) loop_.Unwatch(found->second.pidfd.get());
  watched_.erase(found);
}

void ProcessWatch::Signal(uint64_t watch, int signal) {
  const auto found = watched_.find(watch);
  if (found == watched_.end()) return;
  const Watched& watched = found->second;
  if (watched.pidfd.valid()) {
    syscall(SYS_pidfd_send_signal, watched.pidfd.get(), signal, nullptr, 0);
  } else if (watched.start_ticks != 0 && StartTicks(watched.pid) == watched.start_ticks) {
    kill(watched.pid, signal);
  }
}

void ProcessWatch::Exited(uint64_t watch) {
  const auto found = watched_.find(watch);
  if (found == watched_.end()) return;
  const std::function<void()> on_exit = std::move(found->second.on_exit);
  Unwatch(watch);
  on_exit();
}

void ProcessWatch::Look() {
  std::vector<uint64_t> exited;
  bool any = false;
  for (const auto& [number, watched] : watched_) {
    if (watched.pidfd.valid()) continue;
    any = true;
    if (watched.start_ticks == 0 || StartTicks(watched.pid) != watched.start_ticks)
      exited.push_back(number);
  }
  for (uint64_t watch : exited) Exited(watch);
  looking_ = any;
  if (any) {
    loop_.After(kLookPeriod, [this, alive = alive_] {
      if (*alive) Look();
    });
  }
}

}  // namespace sheaf
