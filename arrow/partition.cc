// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "arrow/partition.h"

#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "arrow/values.h"
#include "base/random.h"
#include "base/status_macros.h"

namespace sheaf::arrow {
namespace {

uint32_t PartOf(uint64_t hash, uint32_t parts) {
  __extension__ using Product = unsigned __int128;
  return static_cast<uint32_t>(Product{hash} * parts >> 64);
}

absl::Status NoRow(int64_t index, int64_t rows) {
  return absl::OutOfRangeError(absl::StrCat("there is no row ", index, ": the table has ", rows));
}

}  // namespace

absl::StatusOr<RowNumbers> PartsByHash(const Table& table, std::span<const size_t> keys,
                                       uint32_t parts) {
  RowNumbers numbers(table.rows);
  SHEAF_RETURN_IF_ERROR(HashRows(table, keys, [&](int64_t first, std::span<const uint64_t> hashes) {
    uint32_t* out = numbers.values.get() + first;
    for (const uint64_t hash : hashes) *out++ = PartOf(hash, parts);
  }));
  return numbers;
}

RowNumbers PartsAtRandom(const Table& table, uint64_t seed, uint32_t parts) {
  RowNumbers numbers(table.rows);
  SeededRandom random(SeededRandom(seed).Next());  // Of neighbouring seeds, too, far apart.
  for (uint32_t& part : numbers.span()) part = PartOf(random.Next(), parts);
  return numbers;
}

absl::StatusOr<Parts> Partition(const Table& table, RowNumbers part_of_row, uint32_t parts,
                                Memory& memory, const MoveOptions& options) {
  std::vector<int64_t> offsets(size_t{parts} + 1);
  for (const uint32_t part : part_of_row.span()) ++offsets[size_t{part} + 1];
  for (size_t part = 0; part < parts; ++part) offsets[part + 1] += offsets[part];
  std::vector<uint32_t> next(offsets.begin(), offsets.end() - 1);
  for (uint32_t& number : part_of_row.span()) number = next[number]++;

  std::vector<Column> columns;
  std::vector<int64_t> bytes(parts);
  for (size_t i = 0; i < table.columns(); ++i) {
    SHEAF_ASSIGN_OR_RETURN(Column column, Scatter(table.schema.children[i], table.Chunks(i),
                                                  part_of_row.span(), memory, options));
    for (size_t part = 0; part < parts; ++part)
      bytes[part] += CountBytes(column.field, column.array, offsets[part], offsets[part + 1]);
    columns.push_back(std::move(column));
  }
  return Parts{TableOf(table.schema, std::move(columns), table.rows), std::move(offsets),
               std::move(bytes), std::move(part_of_row)};
}

absl::StatusOr<Table> GatherRows(const Table& table, std::span<const uint32_t> from, Memory& memory,
                                 const MoveOptions& options) {
  for (const uint32_t row : from) {
    if (row >= table.rows) return NoRow(row, table.rows);
  }
  std::vector<Column> columns;
  for (size_t i = 0; i < table.columns(); ++i) {
    Column whole{table.schema.children[i], {}};
    const std::vector<Array> chunks = table.Chunks(i);
    if (chunks.size() == 1) {
      whole.array = chunks.front();
    } else {
      SHEAF_ASSIGN_OR_RETURN(whole, Concatenate(whole.field, chunks, memory, options));
    }
    SHEAF_ASSIGN_OR_RETURN(Column column, Gather(whole.field, whole.array, from, memory, options));
    columns.push_back(std::move(column));
  }
  return TableOf(table.schema, std::move(columns), static_cast<int64_t>(from.size()));
}

absl::StatusOr<RowNumbers> RowNumbersOf(const Chunked& column, int64_t rows) {
  if ((column.field.kind != Kind::kSigned && column.field.kind != Kind::kUnsigned) ||
      column.field.dictionary != nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("indices are integers, not of type '",
                                                   column.field.format, "' in Arrow's C format"));
  }
  int64_t count = 0;
  for (const Array& chunk : column.chunks) {
    if (CountNulls(column.field, chunk) > 0)
      return absl::InvalidArgumentError("indices have NULLs: no row is meant by one");
    count += chunk.length;
    if (count > kMostRows) {
      return absl::InvalidArgumentError(
          absl::StrCat(count, " indices: at most ", kMostRows, "; cut them into several"));
    }
  }
  RowNumbers numbers(count);
  uint32_t* out = numbers.values.get();
  absl::Status status;
  for (const Array& chunk : column.chunks) {
    WithValues(column.field, chunk, [&](auto get) {
      if constexpr (std::is_integral_v<decltype(get(0))>) {
        for (int64_t i = 0; i < chunk.length; ++i) {
          const auto index = get(i);
          if (static_cast<uint64_t>(index) >= static_cast<uint64_t>(rows)) {
            status.Update(NoRow(static_cast<int64_t>(index), rows));
            return;
          }
          *out++ = static_cast<uint32_t>(index);
        }
      }
    });
    SHEAF_RETURN_IF_ERROR(status);
  }
  return numbers;
}

absl::StatusOr<Table> ConcatenateTables(std::span<const Table> tables, Memory& memory,
                                        const MoveOptions& options) {
  SHEAF_ASSIGN_OR_RETURN(const Table stacked, Stacked(tables, memory));
  std::vector<Column> columns;
  for (size_t i = 0; i < stacked.columns(); ++i) {
    SHEAF_ASSIGN_OR_RETURN(
        Column column, Concatenate(stacked.schema.children[i], stacked.Chunks(i), memory, options));
    columns.push_back(std::move(column));
  }
  return TableOf(stacked.schema, std::move(columns), stacked.rows);
}

}  // namespace sheaf::arrow
