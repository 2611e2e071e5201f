// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// A hash of rows by some of their columns that is the same in each process, language and run, so that
// rows of several tables meet by it. Equal keys have equal hashes:
//
//   hash of a row  = h of its last key, where h before the first is 0, and of each key
//     h            = XXH3_64bits of the bytes of the value, with the h before as the seed
//     h of NULL    = XXH3_64bits of no bytes, with ~h as the seed
//   bytes, integers with the low byte first:
//     integers, bool   8, sign- or zero-extended: int32 and int64 of one number agree
//     floats           8, as float64: -0.0 is 0.0, and all NaN are 0x7ff8000000000000
//     dates and times  8, nanoseconds modulo 2^64: units agree; the time zone does not count
//     decimals         32, without the scale: those of one scale agree, whatever their precision
//     text and binary  as they are, of whatever type
//     dictionaries     those of the value
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "arrow/table.h"

namespace sheaf::arrow {

// Calls `take` with the hashes of consecutive rows from `first` on, until all rows were there, in
// order. kUnimplemented: a key is of a type that has no hash (Unsupported). kDataLoss: an index of a
// dictionary is not in it.
absl::Status HashRows(const Table& table, std::span<const size_t> keys,
                      absl::FunctionRef<void(int64_t first, std::span<const uint64_t>)> take);

// A key that many rows have.
struct HeavyKey {
  uint32_t row;  // One of them.
  int64_t
      count;  // How many they are: exact up to 4,096 rows in the table, beyond estimated from so many.
};
// At most ten, each with 1 of 200 rows or more, the heaviest first. Errors: those of HashRows.
absl::StatusOr<std::vector<HeavyKey>> HeavyKeys(const Table& table, std::span<const size_t> keys);

}  // namespace sheaf::arrow
