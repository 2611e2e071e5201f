// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Rows of one column, checked against its type once, when they come in.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "arrow/abi.h"
#include "arrow/bits.h"
#include "arrow/field.h"
#include "arrow/memory.h"

namespace sheaf::arrow {

inline constexpr int64_t kMostRows = UINT32_MAX - 1;  // Of a table: rows are numbered by 32 bits.

// As in Arrow: the rows are `offset` to `offset + length` in all buffers, and, of a struct, in its
// children. Copies share the buffers.
struct Array {
  int64_t length = 0;
  int64_t offset = 0;
  Bytes validity;  // nullptr: no row is NULL.
  Bytes data;      // Values, indices or offsets. nullptr: there is nothing.
  Bytes bytes;     // What the offsets of binary columns point into.
  std::vector<Array> children;
  std::shared_ptr<const Array> dictionary;

  bool IsNull(int64_t row) const {
    return validity != nullptr && !GetBit(validity.get(), offset + row);
  }
  // The first row of the offsets, or of values of `width` bytes.
  const uint8_t* DataFrom(int64_t width) const {
    return data != nullptr ? data.get() + offset * width : nullptr;
  }
};

struct Column {
  Field field;
  Array array;
};

// No rows of a type, with the buffers that readers want nonetheless.
Array NoRows(const Field& field);
// Rows `start` to `start + length` of `array`, which has them.
Array Slice(const Array& array, int64_t start, int64_t length);
// The rows of the child of a struct, or of a list of fixed size, that are its own.
Array ChildRows(const Field& field, const Array& array, size_t child);
// Row `row` (<= length) of the offsets of a list, or of binary.
inline int64_t OffsetAt(const Field& field, const Array& array, int64_t row) {
  return HasWideOffsets(field.layout) ? Load<int64_t>(array.data.get(), array.offset + row)
                                      : Load<int32_t>(array.data.get(), array.offset + row);
}
int64_t CountNulls(const Field& field, const Array& array);
// Bytes that rows `start` to `stop` take; of a dictionary column those of the indices.
int64_t CountBytes(const Field& field, const Array& array, int64_t start, int64_t stop);

// Reads what `array` says; `owner` keeps it from being released. Sizes of buffers are not known to
// Arrow: all else is checked: counts, missing buffers, offsets that fall or lead out of a child.
// kDataLoss: it is no array of this type, and the message says why.
absl::StatusOr<Array> ReadArray(const Field& field, const ArrowArray& array,
                                const std::shared_ptr<const void>& owner);
// `out` is released by whoever gets it, on any thread.
void WriteArray(const Field& field, const Array& array, ArrowArray* out);

// Checks that the indices of a dictionary column lie in its dictionary, which ReadArray does not.
// kDataLoss: one does not.
absl::Status CheckIndices(const Field& field, const Array& array);
// The index of `row`, which is not NULL.
int64_t IndexAt(const Field& field, const Array& array, int64_t row);

}  // namespace sheaf::arrow
