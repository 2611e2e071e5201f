// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The type of a column, read from its ArrowSchema.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "arrow/abi.h"

namespace sheaf::arrow {

// How the rows of a column lie in memory.
enum class Layout : uint8_t {
  kNull,         // No buffers: all rows are NULL.
  kBits,         // One bit for each.
  kFixed,        // Field::width bytes for each.
  kBinary,       // 32-bit offsets into bytes.
  kLargeBinary,  // 64-bit offsets.
  kStruct,       // One child for each part; they have as many rows.
  kList,         // 32-bit offsets into the rows of one child; maps, too.
  kLargeList,
  kFixedList,  // Field::width rows of one child for each.
  kOther,      // What the kernels do not move: views, unions, run ends.
};

// What a value is, where it is compared.
enum class Kind : uint8_t {
  kNull,
  kBool,
  kSigned,
  kUnsigned,
  kFloat,
  kTime,
  kDecimal,
  kBytes,
  kNone
};

// A dictionary-encoded column has layout and kind of its indices, and `dictionary` has those of its
// values. An extension type is its storage; its name stands in `metadata`.
struct Field {
  std::string name;
  std::string format;    // As Arrow writes types: "l" is int64.
  std::string metadata;  // As Arrow encodes it; empty: none.
  int64_t flags = ARROW_FLAG_NULLABLE;
  Layout layout = Layout::kOther;
  Kind kind = Kind::kNone;
  int32_t width = 0;  // Bytes of a value of kFixed; rows of the child for one of kFixedList.
  int64_t nanos = 1;  // Nanoseconds of a unit of kTime.
  std::vector<Field> children;
  std::shared_ptr<const Field> dictionary;
};

inline bool IsBinary(Layout layout) {
  return layout == Layout::kBinary || layout == Layout::kLargeBinary;
}
inline bool IsList(Layout layout) {
  return layout == Layout::kList || layout == Layout::kLargeList;
}
// Whether the first buffer of data holds offsets of 64 bits.
inline bool HasWideOffsets(Layout layout) {
  return layout == Layout::kLargeBinary || layout == Layout::kLargeList;
}
// `field` with 64-bit offsets. It is binary, text, or a list; a map has no such twin.
Field Widened(Field field);

bool SameType(const Field& a, const Field& b);  // Names of columns and metadata aside.

// kDataLoss: it is no schema, and the message says why. Types that are unknown here are kOther.
absl::StatusOr<Field> ReadField(const ArrowSchema& schema);
// `out` is released by whoever gets it.
void WriteField(const Field& field, ArrowSchema* out);

// What operations give for a column of a type that they do not know: kUnimplemented, with its name as a
// payload (ColumnOf).
absl::Status Unsupported(const Field& field, absl::string_view what);
std::string ColumnOf(const absl::Status& status);  // Empty: it has none.

}  // namespace sheaf::arrow
