// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Sends logs to those who watch, each on a thread of its own: one that waits for a node that does
// not answer holds up nobody else. What is not sent yet stays in the file.
#pragma once

#include <list>
#include <memory>
#include <optional>
#include <string>

#include "base/executor.h"
#include "base/mutex.h"
#include "dashboard/logs/log_tail.h"
#include "http/message.h"

namespace sheaf::dashboard {

// Thread-safe.
class LogFollower {
 public:
  explicit LogFollower(AskNode ask) : ask_(std::move(ask)), reaper_("sheaf-unfollow") {}
  ~LogFollower();
  LogFollower(const LogFollower&) = delete;
  LogFollower& operator=(const LogFollower&) = delete;

  // What to answer instead of another stream; nullopt: there is room. Others who watch the cluster
  // have to find streams, too, of those that a server has (http/server.h).
  std::optional<http::Response> Refusal();
  // Until the viewer goes, or the end of the log; `last` is sent behind it.
  void Add(std::shared_ptr<http::Stream> stream, TailedLog log, std::string last = {});

 private:
  class Viewer;
  void OnOver(const Viewer* viewer);

  const AskNode ask_;
  Mutex mutex_;
  std::list<std::shared_ptr<Viewer>> viewers_ ABSL_GUARDED_BY(mutex_);
  ThreadExecutor reaper_;  // Ends the threads of those that are over.
};

}  // namespace sheaf::dashboard
