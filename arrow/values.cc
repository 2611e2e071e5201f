// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "arrow/values.h"

#include "base/status_macros.h"

namespace sheaf::arrow {

absl::Status UnsupportedKey(const Field& field) { return Unsupported(field, "cannot be a key"); }

absl::StatusOr<std::vector<Array>> KeyColumns(const Table& table, const Array& batch,
                                              std::span<const size_t> keys) {
  std::vector<Array> columns;
  for (const size_t key : keys) {
    const Field& field = table.schema.children[key];
    if (!HasValues(field)) return UnsupportedKey(field);
    columns.push_back(ChildRows(table.schema, batch, key));
    if (field.dictionary != nullptr) SHEAF_RETURN_IF_ERROR(CheckIndices(field, columns.back()));
  }
  return columns;
}

}  // namespace sheaf::arrow
