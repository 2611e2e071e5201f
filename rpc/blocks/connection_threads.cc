// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "rpc/blocks/connection_threads.h"

#include <iterator>
#include <system_error>
#include <utility>

#include "base/log.h"

namespace sheaf {

bool ConnectionThreads::Start(const std::string& name, std::function<void()> body) {
  auto running = std::make_unique<Running>();
  try {
    running->thread = std::make_unique<ThreadExecutor>(name);
  } catch (const std::system_error& error) {
    if (refused_++ % 1000 == 0)
      Log(LogLevel::kWarning, "no thread for a connection of blocks: ", error.what());
    return false;
  }
  std::atomic<bool>* const over = &running->over;
  running->thread->Post([body = std::move(body), over]() mutable {
    body();
    body = nullptr;
    *over = true;
  });
  const MutexLock lock(mutex_);
  running_.push_back(std::move(running));
  return true;
}

void ConnectionThreads::Reap() {
  std::list<std::unique_ptr<Running>> ended;  // Joined once the mutex is free.
  const MutexLock lock(mutex_);
  for (auto at = running_.begin(); at != running_.end();) {
    const auto next = std::next(at);
    if ((*at)->over) ended.splice(ended.end(), running_, at);
    at = next;
  }
}

void ConnectionThreads::AwaitAll() {
  while (true) {
    std::list<std::unique_ptr<Running>> all;
    {
      const MutexLock lock(mutex_);
      all.swap(running_);
    }
    if (all.empty()) return;
    for (const auto& each : all) each->thread->Stop();
  }
}

}  // namespace sheaf
