// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Tells when processes end: by pidfd, or where the kernel has none by looking every 20 ms. All on
// one event loop.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "base/unique_fd.h"
#include "raylet/host/event_loop.h"

namespace sheaf {

// A descriptor that is readable when `pid` has ended; invalid where the kernel has no pidfd or no
// such process.
UniqueFd OpenPidfd(pid_t pid);
// Whether this kernel has pidfds.
bool HasPidfd();
// When `pid` started, in ticks since the machine did: with `pid` it names a process for ever. 0:
// there is none, or it has ended and only waits to be reaped.
uint64_t StartTicks(pid_t pid);

class ProcessWatch {
 public:
  explicit ProcessWatch(EventLoop& loop) : loop_(loop) {}  // `loop` outlives the watch.
  ~ProcessWatch();

  // On the loop only. Calls `on_exit` once, when `pid` has ended, from the loop; at once never.
  // `pidfd` may be invalid: then it is opened here, so the caller knows that `pid` has not been
  // reused since. Returns a number, never 0, for the others.
  uint64_t Watch(pid_t pid, UniqueFd pidfd, std::function<void()> on_exit);
  void Unwatch(uint64_t watch);
  // Sends `signal` to that very process, even if its number was given away since. No-op when it is
  // not watched any more.
  void Signal(uint64_t watch, int signal);

 private:
  struct Watched {
    pid_t pid = 0;
    UniqueFd pidfd;
    uint64_t start_ticks = 0;  // Without a pidfd.
    std::function<void()> on_exit;
  };
  void Exited(uint64_t watch);
  void Look();

  EventLoop& loop_;
  absl::flat_hash_map<uint64_t, Watched> watched_;
  uint64_t last_ = 0;
  bool looking_ = false;                                        // A timer for Look is set.
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // Timers outlive the watch.
};

}  // namespace sheaf
