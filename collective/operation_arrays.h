// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The arrays of an operation, as bytes.
#pragma once

#include <cstddef>
#include <cstring>

#include "collective/communicator.h"

namespace sheaf {

inline constexpr size_t kLineBytes = 64;  // Of the cache: what ranks share out begins with one.

// Input and output are world_size blocks.
inline bool HasBlocks(CollectiveKind kind) {
  return kind == CollectiveKind::kReduceScatter || kind == CollectiveKind::kAllToAll;
}
inline size_t InputBlocks(CollectiveKind kind, int world_size) {
  return HasBlocks(kind) ? static_cast<size_t>(world_size) : 1;
}
inline size_t OutputBlocks(CollectiveKind kind, int world_size) {
  return kind == CollectiveKind::kAllGather || kind == CollectiveKind::kAllToAll
             ? static_cast<size_t>(world_size)
             : 1;
}

inline const std::byte* InputOf(const Operation& operation) {
  return static_cast<const std::byte*>(operation.input);
}
inline std::byte* OutputOf(const Operation& operation) {
  return static_cast<std::byte*>(operation.output);
}

// Nothing if the two are one place.
inline void CopyBytes(std::byte* to, const std::byte* from, size_t bytes) {
  if (to != from && bytes != 0) std::memcpy(to, from, bytes);
}

}  // namespace sheaf
