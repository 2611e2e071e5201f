// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The ranges of a sort: which lies between which bounds. The order is pyarrow's: NaN behind all
// numbers and NULL behind NaN, ascending and descending; text by its bytes.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "arrow/table.h"

namespace sheaf::arrow {

class SortBounds {
 public:
  // `bounds` has a column for each of `keys` of `table`, of one type with it, and its rows ascend in
  // the order asked for; `descending` has as many entries as `keys`. kInvalidArgument: it is not so.
  // kUnimplemented: a key is of a type that has no order (Unsupported). kDataLoss: as HashRows.
  static absl::StatusOr<SortBounds> Make(const Table& table, std::span<const size_t> keys,
                                         const Table& bounds, const std::vector<bool>& descending,
                                         Memory& memory);

  uint32_t parts() const { return parts_; }
  // Writes for each row of `table`, of which this was made, how many bounds it does not lie before:
  // 0 to parts() - 1. kDataLoss: as HashRows.
  absl::Status Place(const Table& table, uint32_t* part_of_row) const;

 private:
  absl::Status PlaceWords(const Table& table, uint32_t* part_of_row) const;

  std::vector<size_t> keys_;
  std::vector<bool> descending_;
  uint32_t parts_ = 1;
  // With one key of up to 8 bytes: those that are not NULL, in its order. Else all as bytes.
  bool by_words_ = false;
  std::vector<uint64_t> words_;
  std::vector<std::string> texts_;
};

}  // namespace sheaf::arrow
