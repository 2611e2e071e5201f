// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Runs what calls back into users' code: what a future was given to do, lines of workers to print,
// the cancelling of a call. Such code may take its time, wait for the runtime, or never return, so
// it runs on threads of its own, which hold nothing that a wait of the process needs.
//
// Callbacks begin in the order in which they were posted, one after the other. Only when one takes
// so long that between two calls of Relieve none has begun, though some wait, those go on beside it
// on another thread, up to kMostThreads. Threads start when they are first needed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "base/clock.h"

namespace sheaf {

class CallbackRunner {
 public:
  static constexpr int kMostThreads = 64;

  // `thread_name`: 15 characters at most.
  explicit CallbackRunner(const char* thread_name);
  ~CallbackRunner();  // Close({}), if nobody called it.
  CallbackRunner(const CallbackRunner&) = delete;
  CallbackRunner& operator=(const CallbackRunner&) = delete;

  // Thread-safe; never waits for a callback. After Close `callback` is dropped.
  void Post(std::function<void()> callback);
  // To be called a few times a second.
  void Relieve();
  // What has not begun is dropped, or with `finish` run yet. Returns when no callback runs, or
  // `patience` is over: one that runs still goes on, on a thread that nobody waits for. With `all`
  // those that have not begun by then do so as well; one that does not end holds up no other.
  struct End {
    bool finish = false;
    Nanos patience = 0;
    bool all = false;
  };
  void Close(End end);

 private:
  struct Shared;
  const std::shared_ptr<Shared> shared_;  // Outlives this as long as a callback runs.
};

}  // namespace sheaf
