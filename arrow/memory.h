// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Where the kernels build what they give: the seam between them and the memory of a process, or an
// arena that several processes map.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"

namespace sheaf::arrow {

using Bytes = std::shared_ptr<const uint8_t>;  // Keeps what it points into alive.

class Memory {
 public:
  virtual ~Memory() = default;
  // `size_bytes` (>= 0) bytes at a multiple of 64, never nullptr, of any content.
  // kResourceExhausted: there are not that many.
  virtual absl::StatusOr<std::shared_ptr<uint8_t>> Allocate(int64_t size_bytes) = 0;
  // The same, all 0.
  absl::StatusOr<std::shared_ptr<uint8_t>> AllocateZeros(int64_t size_bytes);
};

// The heap of this process. Thread-safe.
class HeapMemory final : public Memory {
 public:
  absl::StatusOr<std::shared_ptr<uint8_t>> Allocate(int64_t size_bytes) override;
};

}  // namespace sheaf::arrow
