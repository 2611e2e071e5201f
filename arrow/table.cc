// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "arrow/table.h"

#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"

namespace sheaf::arrow {
namespace {

// Takes what a structure of the interface holds, and releases it with the last copy.
template <class T>
std::shared_ptr<T> Take(T* from) {
  auto taken = std::shared_ptr<T>(new T(*from), [](T* held) {
    if (held->release != nullptr) held->release(held);
    delete held;
  });
  from->release = nullptr;
  return taken;
}

absl::StatusOr<Array> TakeArray(const Field& field, ArrowArray* array) {
  const std::shared_ptr<const ArrowArray> held = Take(array);
  return ReadArray(field, *held, held);
}

absl::Status CheckRows(int64_t rows) {
  if (rows <= kMostRows) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("a table of ", rows, " rows: at most ", kMostRows, "; cut it into several"));
}

// A stream of a table's batches.
struct StreamOwner {
  Table table;
  size_t next = 0;
};

int WriteSchema(ArrowArrayStream* stream, ArrowSchema* out) {
  WriteField(static_cast<StreamOwner*>(stream->private_data)->table.schema, out);
  return 0;
}

int WriteNext(ArrowArrayStream* stream, ArrowArray* out) {
  auto* const owner = static_cast<StreamOwner*>(stream->private_data);
  if (owner->next == owner->table.batches.size()) {
    *out = ArrowArray{};
  } else {
    WriteArray(owner->table.schema, owner->table.batches[owner->next++], out);
  }
  return 0;
}

const char* NoError(ArrowArrayStream*) { return nullptr; }

void ReleaseStream(ArrowArrayStream* stream) {
  delete static_cast<StreamOwner*>(stream->private_data);
  stream->release = nullptr;
}

// Widens the columns of `schema` that are wider in `other`.
absl::Status UnifySchema(const Field& other, Field& schema) {
  if (other.children.size() != schema.children.size()) {
    return absl::InvalidArgumentError(absl::StrCat("tables with ", schema.children.size(), " and ",
                                                   other.children.size(), " columns"));
  }
  for (size_t i = 0; i < schema.children.size(); ++i) {
    Field& mine = schema.children[i];
    const Field& theirs = other.children[i];
    if (mine.name != theirs.name || !SameType(Widened(mine), Widened(theirs))) {
      return absl::InvalidArgumentError(absl::StrCat(
          "column ", i, " is '", mine.name, "' of type '", mine.format, "' in one table and '",
          theirs.name, "' of type '", theirs.format, "' in another: cast them to one schema"));
    }
    const int64_t nullable = (mine.flags | theirs.flags) & ARROW_FLAG_NULLABLE;
    if (HasWideOffsets(theirs.layout)) mine = theirs;
    mine.flags |= nullable;
  }
  return absl::OkStatus();
}

absl::StatusOr<Array> WithWideOffsets(const Field& field, const Array& array, Memory& memory) {
  const int64_t rows = array.offset + array.length;
  SHEAF_ASSIGN_OR_RETURN(const auto offsets, memory.AllocateZeros((rows + 1) * 8));
  for (int64_t row = 0; array.data != nullptr && row <= array.length; ++row)
    Store<int64_t>(offsets.get(), array.offset + row, OffsetAt(field, array, row));
  Array wide = array;
  wide.data = offsets;
  return wide;
}

std::string NamesOf(const Table& table) {
  std::vector<std::string> names;
  for (const Field& column : table.schema.children) names.push_back(column.name);
  if (names.size() > 20) {
    names.resize(20);
    names.push_back("...");
  }
  return absl::StrJoin(names, ", ");
}

}  // namespace

std::vector<Array> Table::Chunks(size_t column) const {
  std::vector<Array> chunks;
  chunks.reserve(batches.size());
  for (const Array& batch : batches) chunks.push_back(ChildRows(schema, batch, column));
  return chunks;
}

absl::StatusOr<std::vector<size_t>> FindColumns(const Table& table,
                                                std::span<const std::string> names) {
  if (names.empty()) return absl::InvalidArgumentError("keys: name at least one column");
  std::vector<size_t> found;
  for (const std::string& name : names) {
    size_t times = 0;
    for (size_t i = 0; i < table.columns(); ++i) {
      if (table.schema.children[i].name != name) continue;
      if (times++ == 0) found.push_back(i);
    }
    if (times == 1) continue;
    return absl::InvalidArgumentError(
        times == 0
            ? absl::StrCat("there is no column '", name, "': the table has ", NamesOf(table))
            : absl::StrCat("'", name, "' is the name of ", times, " columns: rename all but one"));
  }
  return found;
}

Table TableOf(const Field& schema, std::vector<Column> columns, int64_t rows) {
  Table table;
  table.schema = schema;
  table.rows = rows;
  Array batch;
  batch.length = rows;
  for (size_t i = 0; i < columns.size(); ++i) {
    table.schema.children[i] = std::move(columns[i].field);
    batch.children.push_back(std::move(columns[i].array));
  }
  table.batches.push_back(std::move(batch));
  return table;
}

Table SliceOf(const Table& table, int64_t start, int64_t stop) {
  Table slice;
  slice.schema = table.schema;
  slice.rows = stop - start;
  // Readers of batches want them to begin at row 0: their columns begin elsewhere.
  Array batch = table.batches.front();
  batch.length = slice.rows;
  for (Array& column : batch.children) column = Slice(column, batch.offset + start, slice.rows);
  batch.offset = 0;
  slice.batches.push_back(std::move(batch));
  return slice;
}

absl::StatusOr<Table> Stacked(std::span<const Table> tables, Memory& memory) {
  Table stacked;
  stacked.schema = tables.front().schema;
  for (const Table& table : tables) {
    SHEAF_RETURN_IF_ERROR(UnifySchema(table.schema, stacked.schema));
    stacked.rows += table.rows;
    SHEAF_RETURN_IF_ERROR(CheckRows(stacked.rows));
  }
  for (const Table& table : tables) {
    for (Array batch : table.batches) {
      for (size_t i = 0; i < table.columns(); ++i) {
        const Field& field = table.schema.children[i];
        if (field.layout == stacked.schema.children[i].layout) continue;
        SHEAF_ASSIGN_OR_RETURN(batch.children[i],
                               WithWideOffsets(field, batch.children[i], memory));
      }
      stacked.batches.push_back(std::move(batch));
    }
  }
  return stacked;
}

absl::StatusOr<Chunked> ReadChunk(ArrowSchema* schema, ArrowArray* array) {
  const std::shared_ptr<const ArrowSchema> held = Take(schema);
  Chunked column;
  absl::StatusOr<Field> field = ReadField(*held);
  if (!field.ok()) {
    Take(array);  // Releases it.
    return field.status();
  }
  column.field = *std::move(field);
  SHEAF_ASSIGN_OR_RETURN(Array chunk, TakeArray(column.field, array));
  column.chunks.push_back(std::move(chunk));
  return column;
}

absl::StatusOr<Chunked> ReadStream(ArrowArrayStream* stream) {
  const std::shared_ptr<ArrowArrayStream> held = Take(stream);
  if (held->release == nullptr) return absl::DataLossError("the stream was released");
  const auto failed = [&](int code) {
    const char* const words = held->get_last_error(held.get());
    return absl::InvalidArgumentError(
        absl::StrCat("the table's producer failed: ", words != nullptr ? words : strerror(code)));
  };
  ArrowSchema schema{};
  if (const int code = held->get_schema(held.get(), &schema); code != 0) return failed(code);
  const std::shared_ptr<const ArrowSchema> schema_held = Take(&schema);
  Chunked column;
  SHEAF_ASSIGN_OR_RETURN(column.field, ReadField(*schema_held));
  while (true) {
    ArrowArray array{};
    if (const int code = held->get_next(held.get(), &array); code != 0) return failed(code);
    if (array.release == nullptr) return column;
    SHEAF_ASSIGN_OR_RETURN(Array chunk, TakeArray(column.field, &array));
    column.chunks.push_back(std::move(chunk));
  }
}

absl::StatusOr<Table> TableFrom(Chunked chunks) {
  Table table;
  if (chunks.field.layout != Layout::kStruct) {
    return absl::InvalidArgumentError(absl::StrCat(
        "rows of type '", chunks.field.format, "' in Arrow's C format are no table: give structs"));
  }
  if (chunks.chunks.empty()) chunks.chunks.push_back(NoRows(chunks.field));
  for (const Array& batch : chunks.chunks) {
    if (CountNulls(chunks.field, batch) > 0)
      return absl::InvalidArgumentError("whole rows of the table are NULL: no batch has such");
    table.rows += batch.length;
    SHEAF_RETURN_IF_ERROR(CheckRows(table.rows));
  }
  table.schema = std::move(chunks.field);
  table.batches = std::move(chunks.chunks);
  return table;
}

absl::StatusOr<Table> TableFromColumn(Chunked chunks) {
  if (chunks.field.layout != Layout::kStruct) {
    for (Array& chunk : chunks.chunks) {
      Array batch;
      batch.length = chunk.length;
      batch.children.push_back(std::move(chunk));
      chunk = std::move(batch);
    }
    Field schema;
    schema.format = "+s";
    schema.layout = Layout::kStruct;
    schema.children.push_back(std::move(chunks.field));
    chunks.field = std::move(schema);
  }
  return TableFrom(std::move(chunks));
}

void WriteStream(const Table& table, ArrowArrayStream* out) {
  *out = ArrowArrayStream{
      .get_schema = WriteSchema,
      .get_next = WriteNext,
      .get_last_error = NoError,
      .release = ReleaseStream,
      .private_data = new StreamOwner{table},
  };
}

}  // namespace sheaf::arrow
