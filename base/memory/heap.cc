// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "base/memory/heap.h"

#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <utility>

namespace sheaf {

void KeepFreedMemory(size_t block) {
  static std::atomic<bool> kept{false};  // A child has it from its parent.
  if (kept.exchange(true)) return;
  void* volatile one = malloc(block - (64 << 10));  // Volatile: a compiler may drop an unused pair.
  free(one);
}

bool IdleHeap::Tick(Nanos now, uint64_t work, bool busy) {
  if (busy || std::exchange(work_, work) != work) {
    idle_since_ = now;
    keeps_ = true;
    return false;
  }
  if (!keeps_ || now - idle_since_ < kIdle) return false;
  keeps_ = false;
  malloc_trim(0);
  return true;
}

}  // namespace sheaf
