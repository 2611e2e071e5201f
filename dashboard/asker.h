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
#include "http/router.h"
#include "proto/raylet.pb.h"

namespace sheaf::dashboard {

// Asks the node that the dashboard stands on; blocks. Thread-safe.
using AskNode = std::function<absl::StatusOr<proto::StateAnswer>(const proto::StateQuery& query,
                                                                 Nanos timeout)>;

// The answer to `query`. kNotFound: what the node says instead. Blocks.
absl::StatusOr<proto::StateAnswer> Asked(const AskNode& ask, const proto::StateQuery& query,
                                         Nanos timeout);

// 400, 404 or 503: whose fault it is that there is no answer.
int HttpStatusOf(const absl::Status& status);

inline constexpr Nanos kAskTime = 10 * kSecond;  // How long one question may take.
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

// Adds a route to `router` that GET asks, and that `work` answers on a thread where it may block;
// what it cannot is a sentence with the status that fits. `asker` outlives the router's server.
using AnswerRequest = absl::StatusOr<http::Response> (*)(const AskNode& ask,
                                                         const http::Request& request);
void AddQuestion(http::Router& router, Asker& asker, const char* pattern, AnswerRequest work);

// The first value of a parameter, or nothing.
std::string Parameter(const http::Request& request, std::string_view name);

}  // namespace sheaf::dashboard
