// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Columns of the same number of rows, in batches as they came in.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "arrow/abi.h"
#include "arrow/array.h"

namespace sheaf::arrow {

// Immutable once it is made: any number of threads may read one. Copies share the columns' memory.
struct Table {
  Field schema;  // A struct: its children are the columns.
  int64_t rows = 0;
  std::vector<Array> batches;  // One at least: structs without NULLs.

  size_t columns() const { return schema.children.size(); }
  // The rows of a column, batch by batch.
  std::vector<Array> Chunks(size_t column) const;
};

// The numbers of columns of these names, in the order of the names. kInvalidArgument: a column is
// missing, there twice, or none is named.
absl::StatusOr<std::vector<size_t>> FindColumns(const Table& table,
                                                std::span<const std::string> names);
// A table of one batch. The columns have `rows` rows each.
Table TableOf(const Field& schema, std::vector<Column> columns, int64_t rows);
// Rows `start` to `stop`, of a table of one batch that has them.
Table SliceOf(const Table& table, int64_t start, int64_t stop);
// One table with the rows of all. There is at least one; where their columns differ only in the width
// of offsets, those of the table are the wider ones. kInvalidArgument: other columns differ.
absl::StatusOr<Table> Stacked(std::span<const Table> tables, Memory& memory);

// Arrays of one type.
struct Chunked {
  Field field;
  std::vector<Array> chunks;
};
// Takes over what `schema` and `array`, or `stream`, hold, whatever comes of it. kDataLoss: it is
// malformed, and the message says how. kInvalidArgument: the producer of the stream failed. A stream may
// run code of its producer.
absl::StatusOr<Chunked> ReadChunk(ArrowSchema* schema, ArrowArray* array);
absl::StatusOr<Chunked> ReadStream(ArrowArrayStream* stream);
// A table whose batches are `chunks`. kInvalidArgument: they are no structs without NULLs, or have more than
// kMostRows rows.
absl::StatusOr<Table> TableFrom(Chunked chunks);
// The same; what are no structs become the one column of it.
absl::StatusOr<Table> TableFromColumn(Chunked chunks);

// `out` is released by whoever gets it; it keeps the table's memory.
void WriteStream(const Table& table, ArrowArrayStream* out);

}  // namespace sheaf::arrow
