// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Which parts of a rank's own arena are in use.
#pragma once

#include <cstddef>
#include <map>

#include "absl/status/statusor.h"
#include "base/mutex.h"

namespace sheaf {

// Hands out ranges of [0, size_bytes). First fit, so that memory that was used before, whose pages
// exist, is used again. Thread-safe.
class ShmArena {
 public:
  static constexpr size_t kAlignment = 64;

  explicit ShmArena(size_t size_bytes) : size_bytes_(size_bytes) {
    if (size_bytes != 0) free_[0] = size_bytes;
  }
  // The offset of `size_bytes` (0 is 1) that nobody else has. kResourceExhausted: no range is left.
  absl::StatusOr<size_t> Take(size_t size_bytes);
  // What Take gave.
  void GiveBack(size_t offset);

 private:
  const size_t size_bytes_;
  Mutex mutex_;
  std::map<size_t, size_t> free_ ABSL_GUARDED_BY(mutex_);   // Offset -> bytes; no two touch.
  std::map<size_t, size_t> taken_ ABSL_GUARDED_BY(mutex_);  // The same.
};

}  // namespace sheaf
