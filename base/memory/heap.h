// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Memory that a process has freed, and will want again at once. glibc gives the top of its heap back
// to the kernel beyond 128 KiB, and each block of 128 KiB and more when it is freed: the next value
// of some ten kB costs more in page faults than in copies.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/clock.h"

namespace sheaf {

// Once in a process: from now on malloc keeps up to 2 * `block` bytes that are free, and blocks of up
// to `block` (at most 32 MiB) among them. glibc decides so itself when such a block is freed
// (mallopt(3), M_MMAP_THRESHOLD), so settings of the user's (MALLOC_TRIM_THRESHOLD_) go first.
void KeepFreedMemory(size_t block);

// Gives what is free back to the kernel once its process has had nothing to do for kIdle. One thread.
class IdleHeap {
 public:
  static constexpr Nanos kIdle = 5 * kSecond;

  // `work`: any count of what was done so far. `busy`: something is being done. True: it was given
  // back now, which takes some milliseconds.
  bool Tick(Nanos now, uint64_t work, bool busy);

 private:
  uint64_t work_ = 0;
  Nanos idle_since_ = 0;
  bool keeps_ = false;
};

}  // namespace sheaf
