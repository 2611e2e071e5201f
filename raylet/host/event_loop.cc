// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "raylet/host/event_loop.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

namespace sheaf {

absl::StatusOr<std::unique_ptr<EventLoop>> EventLoop::Start(const std::string& name) {
  UniqueFd epoll(epoll_create1(EPOLL_CLOEXEC));
  UniqueFd wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = 0;  // Numbers of watched descriptors begin at 1.
  if (!epoll.valid() || !wake.valid() ||
      epoll_ctl(epoll.get(), EPOLL_CTL_ADD, wake.get(), &event) != 0) {
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot make an event loop: ", std::strerror(errno)));
  }
  return std::unique_ptr<EventLoop>(new EventLoop(name, std::move(epoll), std::move(wake)));
}

EventLoop::EventLoop(const std::string& name, UniqueFd epoll, UniqueFd wake)
    : epoll_(std::move(epoll)), wake_(std::move(wake)), thread_(name) {
  thread_.Post([this] { Loop(); });
}

void EventLoop::Post(std::function<void()> work) {
  {
    const MutexLock lock(mutex_);
    if (stopping_) return;
    posted_.push_back(std::move(work));
  }
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(wake_.get(), &one, sizeof(one));
}

void EventLoop::Run(const std::function<void()>& work) { RunAndWait(*this, work); }

void EventLoop::Stop() {
  {
    const MutexLock lock(mutex_);
    if (!stopping_) posted_.push_back([this] { running_.store(false, std::memory_order_relaxed); });
    stopping_ = true;
  }
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(wake_.get(), &one, sizeof(one));
  thread_.Stop();
}

absl::Status EventLoop::Watch(int fd, uint32_t events, Handler handler) {
  if (watched_.contains(fd))
    return absl::AlreadyExistsError(absl::StrCat("descriptor ", fd, " is watched"));
  const uint64_t number = ++last_number_;
  epoll_event event{};
  event.events = events;
  event.data.u64 = number;
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot watch a descriptor: ", std::strerror(errno)));
  }
  watched_[fd] = Watched{number, std::make_shared<Handler>(std::move(handler))};
  fd_of_[number] = fd;
  return absl::OkStatus();
}

void EventLoop::Rewatch(int fd, uint32_t events) {
  const auto found = watched_.find(fd);
  if (found == watched_.end()) return;
  epoll_event event{};
  event.events = events;
  event.data.u64 = found->second.number;
  epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event);
}

void EventLoop::Unwatch(int fd) {
  const auto found = watched_.find(fd);
  if (found == watched_.end()) return;
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
  fd_of_.erase(found->second.number);
  watched_.erase(found);
}

void EventLoop::After(Nanos delay, std::function<void()> work) {
  timers_.emplace(std::pair(Deadline(MonotonicNow(), delay), ++last_number_), std::move(work));
}

void EventLoop::Loop() {
  std::array<epoll_event, 64> events;
  while (running_.load(std::memory_order_relaxed)) {
    const int count = epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()),
                                 WaitMilliseconds());
    for (int i = 0; i < count; ++i) Deliver(events[i].data.u64, events[i].events);
    RunTimers();
    RunPosted();
  }
}

void EventLoop::Deliver(uint64_t number, uint32_t events) {
  if (number == 0) {
    uint64_t ignored;
    [[maybe_unused]] const ssize_t size = read(wake_.get(), &ignored, sizeof(ignored));
    return;
  }
  const auto fd = fd_of_.find(number);
  if (fd == fd_of_.end()) return;  // Unwatched by an earlier handler of this round.
  const std::shared_ptr<Handler> handler = watched_[fd->second].handler;
  (*handler)(events);
}

void EventLoop::RunPosted() {
  std::vector<std::function<void()>> work;
  {
    const MutexLock lock(mutex_);
    work.swap(posted_);
  }
  for (std::function<void()>& each : work) {
    each();
    each = nullptr;
  }
}

void EventLoop::RunTimers() {
  const Nanos now = MonotonicNow();
  while (!timers_.empty() && timers_.begin()->first.first <= now) {
    const std::function<void()> work = std::move(timers_.begin()->second);
    timers_.erase(timers_.begin());
    work();
  }
}

int EventLoop::WaitMilliseconds() {
  if (timers_.empty()) return 10'000;
  const Nanos wait = timers_.begin()->first.first - MonotonicNow();
  return static_cast<int>(std::clamp<Nanos>((wait + kMillisecond - 1) / kMillisecond, 0, 10'000));
}

}  // namespace sheaf
