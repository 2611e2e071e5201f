// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The socket of one process that has attached, or wants to: what waits to be sent there, and how far
// it has come. Shared by the event loop and the raylet's loop: UnixSocket is safe for that, the
// outbox has a lock.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/unix_socket.h"
#include "shm/attach.h"

namespace sheaf {

class AttachConnection {
 public:
  static constexpr Nanos kFirstRetry = kMillisecond;
  // A tool whose answers pile up to this is dropped.
  static constexpr size_t kMaxOutboxBytes = 2 * kMaxToolAnswer;

  explicit AttachConnection(UnixSocket accepted) : socket(std::move(accepted)) {}

  // false: the peer does not read what piles up.
  bool Push(std::string bytes, UniqueFd fd) {
    const MutexLock lock(mutex_);
    waiting_bytes_ += bytes.size();
    outbox_.push_back({std::move(bytes), std::move(fd)});
    return waiting_bytes_ <= kMaxOutboxBytes;
  }
  bool IsEmpty() const {
    const MutexLock lock(mutex_);
    return outbox_.empty();
  }
  size_t waiting_bytes() const {
    const MutexLock lock(mutex_);
    return waiting_bytes_;
  }
  // Sends what the kernel takes. true: nothing waits any more, or the peer is gone.
  bool SendWaiting() {
    const MutexLock lock(mutex_);
    while (!outbox_.empty()) {
      const Waiting& first = outbox_.front();
      const int fds[] = {first.fd.get()};
      const absl::Status sent =
          socket.Send(first.bytes, absl::MakeConstSpan(fds, first.fd.valid() ? 1 : 0), 0);
      if (absl::IsDeadlineExceeded(sent)) return false;
      if (!sent.ok()) {
        outbox_.clear();
        waiting_bytes_ = 0;
        return true;
      }
      waiting_bytes_ -= first.bytes.size();
      outbox_.pop_front();
    }
    return true;
  }

  UnixSocket socket;
  // The event loop's.
  enum class Phase : uint8_t { kStranger, kAsking, kMember, kDropped } phase = Phase::kStranger;
  bool is_tool = false;
  std::string question;  // Parts so far.
  Nanos retry_after = kFirstRetry;
  uint64_t watch = 0;  // Of a driver's process.
  // Set by the raylet's loop before the first message can follow a welcome.
  std::atomic<uint64_t> process{0};

 private:
  struct Waiting {
    std::string bytes;
    UniqueFd fd;  // May be invalid: none.
  };
  mutable Mutex mutex_;
  std::deque<Waiting> outbox_ ABSL_GUARDED_BY(mutex_);
  size_t waiting_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace sheaf
