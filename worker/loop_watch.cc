// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "worker/loop_watch.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

namespace sheaf {
namespace {

constexpr uint32_t kReadableOnce = EPOLLIN | EPOLLONESHOT;
constexpr int kLongestWatch = 1000;  // Milliseconds; whatever ends it writes to leave_event_.

}  // namespace

absl::Status LoopWatch::Open(int descriptor) {
  UniqueFd watch(epoll_create1(EPOLL_CLOEXEC));
  UniqueFd leave(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  epoll_event loop = {.events = kReadableOnce, .data = {.fd = descriptor}};
  epoll_event leaves = {.events = EPOLLIN, .data = {.fd = leave.get()}};
  if (!watch.valid() || !leave.valid() ||
      epoll_ctl(watch.get(), EPOLL_CTL_ADD, descriptor, &loop) != 0 ||
      epoll_ctl(watch.get(), EPOLL_CTL_ADD, leave.get(), &leaves) != 0) {
    return absl::ResourceExhaustedError(absl::StrCat("the event loop's descriptor ", descriptor,
                                                     " cannot be watched: ", strerror(errno)));
  }
  descriptor_ = descriptor;
  watch_ = std::move(watch);
  leave_event_ = std::move(leave);
  armed_ = true;
  return absl::OkStatus();
}

void LoopWatch::Arm() {
  if (std::exchange(armed_, true)) return;
  epoll_event loop = {.events = kReadableOnce, .data = {.fd = descriptor_}};
  epoll_ctl(watch_.get(), EPOLL_CTL_MOD, descriptor_, &loop);
}

bool LoopWatch::Wait() const {
  epoll_event event;
  return epoll_wait(watch_.get(), &event, 1, kLongestWatch) == 1 && event.data.fd == descriptor_;
}

void LoopWatch::NoteReadable() {
  armed_ = false;
  readable_ = true;
}

bool LoopWatch::TakeReadable() { return std::exchange(readable_, false); }

void LoopWatch::Leave() {
  if (leave_event_.valid()) eventfd_write(leave_event_.get(), 1);
}

}  // namespace sheaf
