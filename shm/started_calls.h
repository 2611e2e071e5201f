// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The writer of a process's page (process_segment.h): which pushes have been started, by caller.
//   who writes: this process, under its runtime's lock; who reads: the raylet, after its death.
//   A place is taken by storing its number first and its caller last (release), so that who finds
//   the caller finds the number. A place is given back by storing caller 0, once that caller is
//   dead and nobody will ask for it. A death between two stores leaves the call that they were for
//   unstarted, which is what then stands there.
#pragma once

#include "absl/container/flat_hash_map.h"
#include "shm/process_segment.h"

namespace sheaf {

class StartedCalls {
 public:
  explicit StartedCalls(ProcessPage* page) : page_(*page) {}

  // User code is about to start for push `push` of `caller` under `lease`. `many_callers`: others
  // push under this lease too.
  void Add(uint64_t lease, ProcessId caller, uint64_t push, bool many_callers);
  void Forget(ProcessId caller);

 private:
  std::atomic<uint64_t>& NumberOf(ProcessId caller);

  ProcessPage& page_;
  absl::flat_hash_map<ProcessId, size_t> places_;
  ProcessId last_caller_;
  std::atomic<uint64_t>* last_number_ = nullptr;  // Of last_caller_; nullptr: none yet.
  size_t next_place_ = 0;                         // Where the search for a free one begins.
};

}  // namespace sheaf
