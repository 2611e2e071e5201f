// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "cli/gcs_pipe.h"

#include <sys/epoll.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/clock.h"

namespace sheaf::cli {
namespace {

// A message begins with this; what does not fit behind it follows in packets of its own.
struct Head {
  uint32_t word;
  uint32_t kind;
  uint64_t peer;
  uint64_t body_bytes;
};
static_assert(sizeof(Head) == 24);

constexpr size_t kMostQueuedBytes = 256 << 20;  // An end that reads nothing meanwhile is given up.
constexpr uint64_t kMostBodyBytes = 256 << 20;
constexpr int kPacketsAtOnce = 64;  // Then others of the loop have their turn.

}  // namespace

void GcsPipe::Start() {
  open_ = true;
  const absl::Status watched =
      loop_.Watch(socket_.fd(), EPOLLIN,
                  [self = shared_from_this()](uint32_t events) { self->OnEvents(events); });
  if (!watched.ok()) End(std::string(watched.message()));
}

void GcsPipe::Close() {
  if (!std::exchange(open_, false)) return;
  loop_.Unwatch(socket_.fd());
  const MutexLock lock(mutex_);
  over_ = true;
  queue_.clear();
  queued_bytes_ = 0;
}

void GcsPipe::Send(GcsWord word, uint32_t kind, uint64_t peer, std::string_view body) {
  const Head head{static_cast<uint32_t>(word), kind, peer, body.size()};
  const MutexLock lock(mutex_);
  if (over_) return;
  const bool idle = queue_.empty();
  std::string packet(reinterpret_cast<const char*>(&head), sizeof(head));
  do {
    const size_t part = std::min(body.size(), kMaxMessageBytes - packet.size());
    packet.append(body.substr(0, part));
    body.remove_prefix(part);
    queued_bytes_ += packet.size();
    queue_.push_back(std::exchange(packet, std::string()));
  } while (!body.empty());
  const bool alive = !idle || SendQueued();
  if (!alive || queued_bytes_ > kMostQueuedBytes) {
    over_ = true;
    const char* const why = alive ? "it takes nothing" : "it is gone";
    loop_.Post([self = shared_from_this(), why] {
      while (self->open_ && self->Receive()) {  // Its last words.
      }
      self->End(why);
    });
  } else if (idle && !queue_.empty()) {
    loop_.Post([self = shared_from_this()] {
      if (self->open_) self->loop_.Rewatch(self->socket_.fd(), EPOLLIN | EPOLLOUT);
    });
  }
}

void GcsPipe::SendAll(Nanos timeout) {
  const Nanos deadline = Deadline(MonotonicNow(), timeout);
  const MutexLock lock(mutex_);
  while (SendQueued() && !queue_.empty() && MonotonicNow() < deadline) {
    WaitForFd(fd(), /*to_write=*/true, deadline - MonotonicNow()).IgnoreError();
  }
}

bool GcsPipe::SendQueued() {
  while (!queue_.empty()) {
    const absl::Status sent = socket_.Send(queue_.front(), {}, 0);
    if (absl::IsDeadlineExceeded(sent)) return true;
    if (!sent.ok()) return false;
    queued_bytes_ -= queue_.front().size();
    queue_.pop_front();
  }
  return true;
}

void GcsPipe::OnEvents(uint32_t events) {
  if ((events & EPOLLOUT) != 0) {
    const MutexLock lock(mutex_);
    if (SendQueued() && queue_.empty()) loop_.Rewatch(socket_.fd(), EPOLLIN);
  }
  for (int i = 0; i < kPacketsAtOnce && open_; ++i) {
    if (!Receive()) return;
  }
}

// False: nothing more is there.
bool GcsPipe::Receive() {
  absl::StatusOr<SocketMessage> packet = socket_.Receive(0);
  if (absl::IsDeadlineExceeded(packet.status())) return false;
  if (!packet.ok()) {
    // What it said last lies behind the error that it left something unread.
    if (!std::exchange(failed_, true)) return true;
    End(std::string(packet.status().message()));
    return false;
  }
  std::string_view bytes = packet->bytes;
  if (missing_ == 0) {
    Head head;
    if (bytes.size() < sizeof(head)) {
      End("it said something that is no message");
      return false;
    }
    std::memcpy(&head, bytes.data(), sizeof(head));
    bytes.remove_prefix(sizeof(head));
    if (head.body_bytes > kMostBodyBytes) {
      End("it said something too long");
      return false;
    }
    coming_ = {static_cast<GcsWord>(head.word), head.kind, head.peer, std::string()};
    coming_.body.reserve(head.body_bytes);
    missing_ = head.body_bytes;
  }
  if (bytes.size() > missing_) {
    End("it said something that is no message");
    return false;
  }
  coming_.body.append(bytes);
  missing_ -= bytes.size();
  if (missing_ == 0) events_.on_message(std::exchange(coming_, GcsMessage()));
  return true;
}

void GcsPipe::End(const std::string& why) {
  if (!open_) return;
  Close();
  events_.on_end(why);
}

}  // namespace sheaf::cli
