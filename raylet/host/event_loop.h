// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// A thread that sleeps in epoll: for descriptors (sockets, pidfds), timers and posted work. It owns
// no state of the raylet: what it learns it posts to the raylet's loop.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/executor.h"
#include "base/mutex.h"
#include "base/unique_fd.h"

namespace sheaf {

class EventLoop final : public Executor {
 public:
  // Of epoll: EPOLLIN, EPOLLHUP, ...
  using Handler = std::function<void(uint32_t events)>;

  // kResourceExhausted: no descriptors left.
  static absl::StatusOr<std::unique_ptr<EventLoop>> Start(const std::string& name);
  ~EventLoop() override { Stop(); }
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;

  // Runs `work` on the loop, after what was posted before. Any thread. After Stop it is destroyed
  // without being run.
  void Post(std::function<void()> work) override;
  // Runs `work` on the loop and returns when it has run. Not to be called on the loop; after Stop
  // it runs nothing.
  void Run(const std::function<void()>& work);
  // Ends the thread; work posted so far is run first. Idempotent, not to be called on the loop.
  void Stop();
  bool IsCurrent() const { return thread_.IsCurrent(); }

  // On the loop only. `handler` may call everything here, also Unwatch of its own descriptor.
  // kResourceExhausted: the kernel watches no more. kAlreadyExists: `fd` is watched.
  absl::Status Watch(int fd, uint32_t events, Handler handler);
  // Changes what is watched for. No-op for a descriptor that is not watched.
  void Rewatch(int fd, uint32_t events);
  // Call it before `fd` is closed. No-op for a descriptor that is not watched.
  void Unwatch(int fd);
  // Runs `work` once, after `delay`.
  void After(Nanos delay, std::function<void()> work);

 private:
  struct Watched {
    uint64_t number;
    std::shared_ptr<Handler> handler;  // Shared: it may unwatch itself while it runs.
  };

  EventLoop(const std::string& name, UniqueFd epoll, UniqueFd wake);
  void Loop();
  void Deliver(uint64_t number, uint32_t events);
  void RunPosted();
  void RunTimers();
  int WaitMilliseconds();

  const UniqueFd epoll_;
  const UniqueFd wake_;  // An eventfd: work was posted.
  Mutex mutex_;
  std::vector<std::function<void()>> posted_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::atomic<bool> running_{true};
  // The loop's own.
  // Numbers tell a stale event from one for a descriptor of the same value.
  uint64_t last_number_ = 0;
  absl::flat_hash_map<int, Watched> watched_;
  absl::flat_hash_map<uint64_t, int> fd_of_;
  absl::btree_map<std::pair<Nanos, uint64_t>, std::function<void()>> timers_;
  ThreadExecutor thread_;  // Last: it uses the others.
};

}  // namespace sheaf
