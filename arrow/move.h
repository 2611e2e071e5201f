// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Rows of one column in another order, or in one piece. Each gives the column and its type: with more
// than 2 GiB of text or bytes, or as many rows of lists, it has 64-bit offsets. kUnimplemented: the type is not
// moved (Unsupported). kResourceExhausted: there is no memory, or no type for that many.
// Any number of threads may read one column at once.
#pragma once

#include <cstdint>
#include <span>

#include "absl/status/statusor.h"
#include "arrow/array.h"
#include "arrow/memory.h"

namespace sheaf::arrow {

struct MoveOptions {
  // Where 32-bit offsets end; tests have it smaller.
  int64_t narrow_offset_max = INT32_MAX;
};

// Row i is row `from[i]` of `array`, which has it.
absl::StatusOr<Column> Gather(const Field& field, const Array& array,
                              std::span<const uint32_t> from, Memory& memory,
                              const MoveOptions& options = {});
// Row i of all chunks, counted through, becomes row `to[i]`: `to` has each row once.
absl::StatusOr<Column> Scatter(const Field& field, std::span<const Array> chunks,
                               std::span<const uint32_t> to, Memory& memory,
                               const MoveOptions& options = {});
// The rows of all chunks, one after the other.
absl::StatusOr<Column> Concatenate(const Field& field, std::span<const Array> chunks,
                                   Memory& memory, const MoveOptions& options = {});

}  // namespace sheaf::arrow
