// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Arrow arrays as another library would give them, right and wrong ones.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "arrow/array.h"
#include "arrow/field.h"

namespace sheaf::arrow {

// A type, and an array of it, which own what they point to. All of it may be changed before it is read.
struct Given {
  explicit Given(std::string format_of_type, std::string column = "c")
      : format(std::move(format_of_type)), name(std::move(column)) {}

  ArrowSchema* Schema() {
    for (Given& child : children) child_schemas.push_back(child.Schema());
    schema = ArrowSchema{};
    schema.format = format.c_str();
    schema.name = name.c_str();
    schema.flags = ARROW_FLAG_NULLABLE;
    schema.n_children = static_cast<int64_t>(children.size());
    schema.children = child_schemas.data();
    schema.dictionary = dictionary != nullptr ? dictionary->Schema() : nullptr;
    schema.release = [](ArrowSchema* released) { released->release = nullptr; };
    return &schema;
  }

  ArrowArray* Array() {
    for (Given& child : children) child_arrays.push_back(child.Array());
    array.n_buffers = static_cast<int64_t>(buffers.size());
    array.buffers = buffers.data();
    array.n_children = static_cast<int64_t>(children.size());
    array.children = child_arrays.data();
    array.dictionary = dictionary != nullptr ? dictionary->Array() : nullptr;
    array.release = [](ArrowArray* released) { released->release = nullptr; };
    return &array;
  }

  // Adds a buffer with these values.
  template <class T>
  Given& With(std::vector<T> values) {
    const auto bytes = std::make_shared<std::vector<T>>(std::move(values));
    kept.push_back(bytes);
    buffers.push_back(bytes->data());
    return *this;
  }
  Given& Without() {
    buffers.push_back(nullptr);
    return *this;
  }
  Given& Rows(int64_t length, int64_t offset = 0) {
    array.length = length;
    array.offset = offset;
    return *this;
  }

  std::string format;
  std::string name;
  std::vector<const void*> buffers;
  std::vector<std::shared_ptr<const void>> kept;
  std::vector<Given> children;
  std::shared_ptr<Given> dictionary;
  ArrowSchema schema{};
  ArrowArray array{};
  std::vector<ArrowSchema*> child_schemas;
  std::vector<ArrowArray*> child_arrays;
};

inline Given Numbers(std::vector<int32_t> values, std::string name = "c") {
  Given given("i", std::move(name));
  given.Rows(static_cast<int64_t>(values.size()));
  given.array.null_count = 0;
  given.Without().With(std::move(values));
  return given;
}

inline Given Texts(const std::vector<std::string>& values, std::string name = "c") {
  Given given("u", std::move(name));
  std::vector<int32_t> offsets = {0};
  std::vector<char> bytes;
  for (const std::string& value : values) {
    bytes.insert(bytes.end(), value.begin(), value.end());
    offsets.push_back(static_cast<int32_t>(bytes.size()));
  }
  given.Rows(static_cast<int64_t>(values.size())).Without().With(offsets).With(bytes);
  return given;
}

// Reads both, as a column that outlives `given` not.
inline absl::StatusOr<Column> Read(Given& given) {
  absl::StatusOr<Field> field = ReadField(*given.Schema());
  if (!field.ok()) return field.status();
  absl::StatusOr<struct Array> array = ReadArray(*field, *given.Array(), nullptr);
  if (!array.ok()) return array.status();
  return Column{*std::move(field), *std::move(array)};
}

inline std::vector<std::string> TextsOf(const Column& column) {
  std::vector<std::string> texts;
  for (int64_t row = 0; row < column.array.length; ++row) {
    const int64_t start = OffsetAt(column.field, column.array, row);
    const int64_t stop = OffsetAt(column.field, column.array, row + 1);
    texts.emplace_back(reinterpret_cast<const char*>(column.array.bytes.get()) + start,
                       static_cast<size_t>(stop - start));
  }
  return texts;
}

}  // namespace sheaf::arrow
