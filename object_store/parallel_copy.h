// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Memory of large values: copied, or readied for being written, by several threads.
#pragma once

#include <cstddef>

namespace sheaf {

// Copies `size` bytes between ranges that do not overlap. From 8 MiB on, cores that are idle at
// this moment help: at most one thread for 4 MiB, and four in all. Thread-safe; returns when all is
// copied.
void ParallelCopy(void* to, const void* from, size_t size);

// The same with `threads` (>= 1), the caller's included; for measurements.
void ParallelCopyWith(int threads, void* to, const void* from, size_t size);

// EnterPages (shm/segment.h), by as many threads.
void ParallelEnterPages(std::byte* begin, size_t bytes);

}  // namespace sheaf
