// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "python_bindings/arrow/kernels.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "arrow/partition.h"
#include "arrow/sort_bounds.h"
#include "base/status_macros.h"
#include "python_bindings/arrow/capsules.h"
#include "python_bindings/core/python.h"

namespace nb = nanobind;

namespace sheaf::python {
namespace {

using arrow::Table;

// Runs `kernel`, which gives a StatusOr, without the GIL; throws what its status means.
template <class Kernel>
auto Run(Kernel kernel) {
  auto result = [&] {
    const WithoutGil free;
    return kernel();
  }();
  if (!result.ok()) ThrowArrow(result.status());
  return *std::move(result);
}

Table Import(nb::handle object) {
  arrow::Chunked chunks = TakeChunks(object, "want a table of Arrow columns");
  return Run([&] { return arrow::TableFrom(std::move(chunks)); });
}

nb::list ColumnNames(const Table& table) {
  nb::list names;
  for (const arrow::Field& column : table.schema.children)
    names.append(nb::steal(NewText(column.name)));
  return names;
}

int64_t DataBytes(const Table& table) {
  int64_t bytes = 0;
  for (size_t i = 0; i < table.columns(); ++i) {
    for (const arrow::Array& chunk : table.Chunks(i))
      bytes += arrow::CountBytes(table.schema.children[i], chunk, 0, chunk.length);
  }
  return bytes;
}

Table ColumnsOf(const Table& table, const std::vector<size_t>& columns) {
  Table some;
  some.rows = table.rows;
  some.schema = table.schema;
  some.schema.children.clear();
  for (const size_t column : columns) some.schema.children.push_back(table.schema.children[column]);
  for (const arrow::Array& batch : table.batches) {
    arrow::Array part = batch;
    part.children.clear();
    for (const size_t column : columns) part.children.push_back(batch.children[column]);
    some.batches.push_back(std::move(part));
  }
  return some;
}

// A partition, with the keys that many rows have.
struct Partitioned {
  arrow::Parts parts;
  std::optional<Table> heavy_keys;
  std::vector<int64_t> heavy_rows;
};

nb::tuple TupleOf(Partitioned made) {
  nb::object keys = nb::none();
  if (made.heavy_keys.has_value()) keys = nb::cast(*std::move(made.heavy_keys));
  return nb::make_tuple(nb::cast(std::move(made.parts.table)), made.parts.offsets, made.parts.bytes,
                        keys, made.heavy_rows);
}

absl::StatusOr<Partitioned> Finish(const Table& table, const std::vector<size_t>& keys,
                                   arrow::RowNumbers part_of_row, uint32_t parts) {
  arrow::HeapMemory memory;
  SHEAF_ASSIGN_OR_RETURN(const std::vector<arrow::HeavyKey> heavy, arrow::HeavyKeys(table, keys));
  std::vector<uint32_t> rows;
  std::vector<int64_t> counts;
  for (const arrow::HeavyKey& key : heavy) {
    rows.push_back(key.row);
    counts.push_back(key.count);
  }
  SHEAF_ASSIGN_OR_RETURN(Table heavy_keys, arrow::GatherRows(ColumnsOf(table, keys), rows, memory));
  SHEAF_ASSIGN_OR_RETURN(arrow::Parts made,
                         arrow::Partition(table, std::move(part_of_row), parts, memory));
  return Partitioned{std::move(made), std::move(heavy_keys), std::move(counts)};
}

nb::tuple PartitionByHash(const Table& table, const std::vector<std::string>& keys,
                          uint32_t parts) {
  return TupleOf(Run([&]() -> absl::StatusOr<Partitioned> {
    SHEAF_ASSIGN_OR_RETURN(const std::vector<size_t> columns, arrow::FindColumns(table, keys));
    SHEAF_ASSIGN_OR_RETURN(arrow::RowNumbers numbers, arrow::PartsByHash(table, columns, parts));
    return Finish(table, columns, std::move(numbers), parts);
  }));
}

nb::tuple PartitionByRange(const Table& table, const std::vector<std::string>& keys,
                           nb::handle bounds, const std::vector<bool>& descending) {
  arrow::Chunked chunks = TakeChunks(bounds, "want bounds as a table or column of Arrow");
  return TupleOf(Run([&]() -> absl::StatusOr<Partitioned> {
    SHEAF_ASSIGN_OR_RETURN(const std::vector<size_t> columns, arrow::FindColumns(table, keys));
    SHEAF_ASSIGN_OR_RETURN(const Table ends, arrow::TableFromColumn(std::move(chunks)));
    arrow::HeapMemory memory;
    SHEAF_ASSIGN_OR_RETURN(const arrow::SortBounds sorted,
                           arrow::SortBounds::Make(table, columns, ends, descending, memory));
    arrow::RowNumbers numbers(table.rows);
    SHEAF_RETURN_IF_ERROR(sorted.Place(table, numbers.values.get()));
    return Finish(table, columns, std::move(numbers), sorted.parts());
  }));
}

nb::tuple PartitionAtRandom(const Table& table, uint64_t seed, uint32_t parts) {
  return TupleOf(Run([&]() -> absl::StatusOr<Partitioned> {
    arrow::HeapMemory memory;
    SHEAF_ASSIGN_OR_RETURN(
        arrow::Parts made,
        arrow::Partition(table, arrow::PartsAtRandom(table, seed, parts), parts, memory));
    return Partitioned{std::move(made), std::nullopt, {}};
  }));
}

// Rows `start` to `stop` of the table of a partition.
Table Slice(const Table& table, int64_t start, int64_t stop) {
  if (table.batches.size() != 1 || start < 0 || start > stop || stop > table.rows)
    throw nb::index_error(absl::StrCat("rows ", start, " to ", stop, " of ", table.rows).c_str());
  return arrow::SliceOf(table, start, stop);
}

Table Gather(const Table& table, nb::handle indices) {
  const arrow::Chunked chunks = TakeChunks(indices, "want indices as a column of Arrow");
  return Run([&]() -> absl::StatusOr<Table> {
    SHEAF_ASSIGN_OR_RETURN(const arrow::RowNumbers rows, arrow::RowNumbersOf(chunks, table.rows));
    arrow::HeapMemory memory;
    return arrow::GatherRows(table, rows.span(), memory);
  });
}

// The same with the bytes of numbers of `format`, as Arrow writes types.
Table GatherNumbers(const Table& table, nb::handle numbers, const std::string& format) {
  Py_buffer view;
  if (PyObject_GetBuffer(numbers.ptr(), &view, PyBUF_SIMPLE) != 0) throw nb::python_error();
  const std::unique_ptr<Py_buffer, void (*)(Py_buffer*)> held(&view, PyBuffer_Release);
  const ArrowSchema schema{.format = format.c_str(),
                           .name = "",
                           .metadata = nullptr,
                           .flags = 0,
                           .n_children = 0,
                           .children = nullptr,
                           .dictionary = nullptr,
                           .release = [](ArrowSchema*) {},
                           .private_data = nullptr};
  return Run([&]() -> absl::StatusOr<Table> {
    arrow::Chunked column;
    SHEAF_ASSIGN_OR_RETURN(column.field, arrow::ReadField(schema));
    arrow::Array chunk;
    chunk.length = column.field.width > 0 ? view.len / column.field.width : 0;
    chunk.data = arrow::Bytes(arrow::Bytes(), static_cast<const uint8_t*>(view.buf));
    column.chunks.push_back(std::move(chunk));
    SHEAF_ASSIGN_OR_RETURN(const arrow::RowNumbers rows, arrow::RowNumbersOf(column, table.rows));
    arrow::HeapMemory memory;
    return arrow::GatherRows(table, rows.span(), memory);
  });
}

Table Concat(const nb::list& tables) {
  std::vector<Table> all;
  for (const nb::handle table : tables) all.push_back(nb::cast<Table>(table));
  return Run([&] {
    arrow::HeapMemory memory;
    return arrow::ConcatenateTables(all, memory);
  });
}

Table Hash(const Table& table, const std::vector<std::string>& keys) {
  return Run([&]() -> absl::StatusOr<Table> {
    SHEAF_ASSIGN_OR_RETURN(const std::vector<size_t> columns, arrow::FindColumns(table, keys));
    arrow::HeapMemory memory;
    SHEAF_ASSIGN_OR_RETURN(const std::shared_ptr<uint8_t> out, memory.Allocate(table.rows * 8));
    SHEAF_RETURN_IF_ERROR(
        arrow::HashRows(table, columns, [&](int64_t first, std::span<const uint64_t> hashes) {
          std::memcpy(out.get() + first * 8, hashes.data(), hashes.size_bytes());
        }));
    arrow::Column hashes;
    hashes.field.name = "hash";
    hashes.field.format = "L";
    hashes.field.layout = arrow::Layout::kFixed;
    hashes.field.kind = arrow::Kind::kUnsigned;
    hashes.field.width = 8;
    hashes.field.flags = 0;
    hashes.array.length = table.rows;
    hashes.array.data = out;
    arrow::Field schema;
    schema.format = "+s";
    schema.layout = arrow::Layout::kStruct;
    schema.children.resize(1);
    std::vector<arrow::Column> made;
    made.push_back(std::move(hashes));
    return arrow::TableOf(schema, std::move(made), table.rows);
  });
}

}  // namespace

void BindArrow(nb::module_& module) {
  nb::class_<Table>(module, "ArrowTable", "Rows of Arrow columns; see sheaf.arrow.Table.")
      .def_ro("num_rows", &Table::rows)
      .def_prop_ro("column_names", ColumnNames)
      .def_prop_ro("nbytes", DataBytes)
      .def("slice", Slice, nb::arg("start"), nb::arg("stop"))
      .def("stream", StreamCapsule)
      .def("schema", SchemaCapsule);
  module.def("arrow_table", Import, nb::arg("data"));
  module.def("arrow_partition_by_hash", PartitionByHash);
  module.def("arrow_partition_by_range", PartitionByRange);
  module.def("arrow_partition_at_random", PartitionAtRandom);
  module.def("arrow_gather", Gather);
  module.def("arrow_gather_numbers", GatherNumbers);
  module.def("arrow_concat", Concat);
  module.def("arrow_hash", Hash);
}

}  // namespace sheaf::python
