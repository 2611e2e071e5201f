// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What lies between a handler that writes a stream and the connection that sends it.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/mutex.h"
#include "http/message.h"

namespace sheaf::http {

inline constexpr size_t kMaxQueuedBytes = 256 * 1024;

// Thread-safe.
class StreamQueue {
 public:
  struct End {
    uint16_t code = 1000;
    std::string reason;
  };
  struct Next {
    std::optional<std::string> bytes;
    std::optional<End> end;  // Behind the last bytes.
  };

  // `wake` is called, on any thread, when there is something for Take. It may not call back.
  explicit StreamQueue(std::function<void()> wake) : wake_(std::move(wake)) {}

  // For the handler; its last copy closes the stream.
  static std::shared_ptr<Stream> HandleOf(std::shared_ptr<StreamQueue> queue);

  bool Write(std::string bytes);
  void Close(uint16_t code, std::string reason);
  bool open() const;
  void OnChange(std::function<void()> changed);

  // For the connection, on the server's thread. The oldest bytes, or the end, or nothing yet.
  Next Take();
  // The viewer has gone.
  void Abandon();

 private:
  const std::function<void()> wake_;
  mutable Mutex mutex_;
  std::deque<std::string> queue_ ABSL_GUARDED_BY(mutex_);
  size_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  bool refused_ ABSL_GUARDED_BY(mutex_) = false;  // A Write has found no room.
  bool gone_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<End> end_ ABSL_GUARDED_BY(mutex_);
  std::function<void()> changed_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sheaf::http
