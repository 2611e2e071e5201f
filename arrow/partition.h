// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What an exchange of rows between processes is made of: which part each row goes to, and one table
// that has the rows of each part together. Any number of threads may use one table at once.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "arrow/hash.h"
#include "arrow/memory.h"
#include "arrow/move.h"
#include "arrow/table.h"

namespace sheaf::arrow {

inline constexpr uint32_t kMostParts = 1 << 20;

// A number for each row.
struct RowNumbers {
  explicit RowNumbers(int64_t rows)
      : values(std::make_unique_for_overwrite<uint32_t[]>(static_cast<size_t>(rows))), size(rows) {}
  std::span<uint32_t> span() const { return {values.get(), static_cast<size_t>(size)}; }
  std::unique_ptr<uint32_t[]> values;
  int64_t size;
};

// The part of each row, 0 to `parts` - 1; `parts` is 1 to kMostParts. A row of hash h is in part
// floor(h * parts / 2^64). Errors: those of HashRows.
absl::StatusOr<RowNumbers> PartsByHash(const Table& table, std::span<const size_t> keys,
                                       uint32_t parts);
// Each part is as likely for each row; it follows from `seed` and the row's number alone.
RowNumbers PartsAtRandom(const Table& table, uint64_t seed, uint32_t parts);

// The rows of `table` ordered by part, in each part in the order that they had.
struct Parts {
  Table table;                   // Of one batch.
  std::vector<int64_t> offsets;  // Rows [offsets[i], offsets[i + 1]) are those of part i.
  std::vector<int64_t> bytes;    // Of each part, without dictionaries.
  RowNumbers position;           // Where each row of `table` lies now.
};
// `part_of_row` is of this table, and below `parts`. Errors: those of Scatter.
absl::StatusOr<Parts> Partition(const Table& table, RowNumbers part_of_row, uint32_t parts,
                                Memory& memory, const MoveOptions& options = {});

// A table whose row i is row `from[i]` of `table`. kOutOfRange: there is no such row. Errors: those of Gather.
absl::StatusOr<Table> GatherRows(const Table& table, std::span<const uint32_t> from, Memory& memory,
                                 const MoveOptions& options = {});
// The same with a column of integers. kInvalidArgument: it is of another type, or has NULLs.
absl::StatusOr<RowNumbers> RowNumbersOf(const Chunked& column, int64_t rows);
// The rows of all tables (one at least) in one batch. Errors: those of Stacked and Concatenate.
absl::StatusOr<Table> ConcatenateTables(std::span<const Table> tables, Memory& memory,
                                        const MoveOptions& options = {});

}  // namespace sheaf::arrow
