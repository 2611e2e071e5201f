// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Memory of large values: copied, or readied for being written, by several threads.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sheaf {

// Of memory that is shared: whether its pages are in this process's page table.
enum class Pages : uint8_t { kEntered, kCold };

// Copies `size` bytes between ranges that do not overlap. From 8 MiB on, cores that are idle at
// this moment help: at most one thread for 4 MiB, and four in all. Thread-safe; returns when all is
// copied. Of cold memory each piece is entered (EnterPages) just before it is written, while what
// the kernel has zeroed is in the cache; one thread helps at least, where there is another core.
void ParallelCopy(void* to, const void* from, size_t size, Pages pages = Pages::kEntered);

// The same with `threads` (>= 1), the caller's included; for measurements.
void ParallelCopyWith(int threads, void* to, const void* from, size_t size);

// EnterPages (shm/segment.h), by as many threads.
void ParallelEnterPages(std::byte* begin, size_t bytes);

}  // namespace sheaf
