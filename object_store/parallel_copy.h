// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// memcpy for large values.
#pragma once

#include <cstddef>

namespace sheaf {

// Copies `size` bytes between ranges that do not overlap. From 8 MiB on, cores that are idle at
// this moment help: at most one thread for 4 MiB, and four in all. Thread-safe; returns when all is
// copied.
void ParallelCopy(void* to, const void* from, size_t size);

// The same with `threads` (>= 1), the caller's included; for measurements.
void ParallelCopyWith(int threads, void* to, const void* from, size_t size);

}  // namespace sheaf
