// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Questions to the cluster, asked for HTTP requests: on threads of their own, so many at once, so
// many waiting, and the rest refused.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/executor.h"
#include "base/mutex.h"
#include "http/message.h"
#include "proto/raylet.pb.h"

namespace sheaf::dashboard {

// Asks the node that the dashboard stands on; blocks. Thread-safe.
using AskNode = std::function<absl::StatusOr<proto::StateAnswer>(const proto::StateQuery& query,
                                                                 Nanos timeout)>;

inline constexpr size_t kAskedAtOnce = 16;
inline constexpr size_t kWaiting = 100;

// Thread-safe.
class Asker {
 public:
  explicit Asker(AskNode ask) : ask_(std::move(ask)) {}
  // Waits for the work that runs; what waits is dropped.
  ~Asker();

  // Runs `work` later on one of the threads, where it may block and call Ask, and answers what it
  // returns; with 429 at once when too many wait.
  void Answer(const http::Reply& reply, std::function<http::Response()> work);

  // Both to be called within work.
  const AskNode& ask() const { return ask_; }
  absl::StatusOr<proto::StateAnswer> Ask(const proto::StateQuery& query, Nanos timeout) const {
    return ask_(query, timeout);
  }

 private:
  struct Worker {
    size_t pending = 0;  // Runs or waits there.
    std::unique_ptr<ThreadExecutor> thread;
  };

  const AskNode ask_;
  Mutex mutex_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  size_t pending_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<Worker> workers_ ABSL_GUARDED_BY(mutex_);  // Made as they are needed.
};

}  // namespace sheaf::dashboard
