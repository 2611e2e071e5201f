// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The descriptors of a language's event loop, watched by a process's main thread while the loop
// waits for calls: what they have to say ends that wait. Guarded by the runtime's lock, but for
// Wait.
#pragma once

#include "absl/status/status.h"
#include "base/unique_fd.h"

namespace sheaf {

class LoopWatch {
 public:
  // `descriptor` is readable while one of the loop's has something to say; it outlives this.
  // kResourceExhausted: the kernel has no more descriptors.
  absl::Status Open(int descriptor);
  bool is_open() const { return watch_.valid(); }

  // The loop begins to wait. For each time that something has come the main thread is called once,
  // and not while the loop runs.
  void Arm();
  // The main thread, which does not hold the lock: until something has come, Leave was called, or a
  // while has passed. True: something has come, so NoteReadable is to be called.
  bool Wait() const;
  void NoteReadable();
  // True, once for each NoteReadable: the loop shall look at its descriptors.
  bool TakeReadable();
  // Ends Wait, for good.
  void Leave();

 private:
  int descriptor_ = -1;
  UniqueFd watch_;  // An epoll instance with it and `leave_event_`.
  UniqueFd leave_event_;
  bool armed_ = false;
  bool readable_ = false;
};

}  // namespace sheaf
