// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The call that a thread runs, for what this thread asks of the runtime meanwhile.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/trace/trace_context.h"

namespace sheaf {

struct CurrentCall {
  CallOrigin origin;
  const std::atomic<bool>* cancelled = nullptr;  // Set once somebody wants the call to end.
  uint64_t hold = 0;                             // Of ArgumentHolds; 0: none.

  bool is_cancelled() const {
    return cancelled != nullptr && cancelled->load(std::memory_order_relaxed);
  }
};

inline thread_local constinit CurrentCall current_call;

}  // namespace sheaf
