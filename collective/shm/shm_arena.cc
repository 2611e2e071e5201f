// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "collective/shm/shm_arena.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"

namespace sheaf {

absl::StatusOr<size_t> ShmArena::Take(size_t size_bytes) {
  const MutexLock lock(mutex_);
  if (size_bytes <= size_bytes_) {
    const size_t wanted =
        (std::max<size_t>(size_bytes, 1) + kAlignment - 1) / kAlignment * kAlignment;
    for (auto range = free_.begin(); range != free_.end(); ++range) {
      if (range->second < wanted) continue;
      const auto [offset, bytes] = *range;
      free_.erase(range);
      if (bytes > wanted) free_[offset + wanted] = bytes - wanted;
      taken_[offset] = wanted;
      return offset;
    }
  }
  size_t used = 0;
  for (const auto& [offset, bytes] : taken_) used += bytes;
  return absl::ResourceExhaustedError(
      absl::StrCat("no room for ", size_bytes, " bytes in the group's shared memory: ", used,
                   " of ", size_bytes_, " are in use; form the group with a larger arena_bytes"));
}

void ShmArena::GiveBack(size_t offset) {
  const MutexLock lock(mutex_);
  const auto taken = taken_.find(offset);
  if (taken == taken_.end()) return;
  auto range = free_.emplace(offset, taken->second).first;
  taken_.erase(taken);
  const auto next = std::next(range);
  if (next != free_.end() && range->first + range->second == next->first) {
    range->second += next->second;
    free_.erase(next);
  }
  if (range != free_.begin()) {
    const auto before = std::prev(range);
    if (before->first + before->second == range->first) {
      before->second += range->second;
      free_.erase(range);
    }
  }
}

}  // namespace sheaf
