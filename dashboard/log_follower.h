// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Sends what is written to log files from now on to those who watch, on one thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/executor.h"
#include "base/mutex.h"
#include "http/message.h"

namespace sheaf::dashboard {

struct FollowedLog {
  std::shared_ptr<http::Stream> stream;
  std::string directory;
  std::string name;
  uint64_t sent = 0;   // Up to where in the file.
  bool plain = false;  // Without the codes of colours.
};

// Thread-safe.
class LogFollower {
 public:
  LogFollower();
  // Follows until the viewer goes or the file cannot be read any more.
  void Add(FollowedLog log);

 private:
  void Tick();

  Mutex mutex_;
  std::vector<FollowedLog> logs_ ABSL_GUARDED_BY(mutex_);
  ThreadExecutor thread_;  // Last: it uses the others.
};

}  // namespace sheaf::dashboard
