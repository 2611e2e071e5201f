// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The threads of connections that block: one each, for as long as the connection. Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <string>

#include "base/executor.h"
#include "base/mutex.h"

namespace sheaf {

class ConnectionThreads {
 public:
  ConnectionThreads() = default;
  ~ConnectionThreads() { AwaitAll(); }
  ConnectionThreads(const ConnectionThreads&) = delete;
  ConnectionThreads& operator=(const ConnectionThreads&) = delete;

  // Runs `body` on a thread of its own, called `name` (15 bytes). False: the machine gives no more
  // threads, and nothing runs.
  bool Start(const std::string& name, std::function<void()> body);
  // Frees what is left of threads that have ended. To be called now and then.
  void Reap();
  // Waits for all. Not on one of them.
  void AwaitAll();

 private:
  struct Running {
    std::atomic<bool> over{false};
    std::unique_ptr<ThreadExecutor> thread;  // Last: it uses the other.
  };
  std::atomic<uint64_t> refused_{0};
  Mutex mutex_;
  std::list<std::unique_ptr<Running>> running_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sheaf
