// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// One dictionary for the chunks of a column that have several.
#pragma once

#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "arrow/array.h"
#include "arrow/memory.h"

namespace sheaf::arrow {

struct Unified {
  Field field;
  std::vector<Array> chunks;
};

// The chunks (one at least) as they are where they share a dictionary, or where the column has none;
// else with one that has the values of all, each once, also inside structs. Its indices are as wide as
// that needs. kDataLoss: an index is not in its dictionary. kUnimplemented: its values are nested.
absl::StatusOr<Unified> UnifyDictionaries(const Field& field, std::span<const Array> chunks,
                                          Memory& memory);

}  // namespace sheaf::arrow
