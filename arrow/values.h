// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The values of key columns as one C++ type for each kind, whatever their width and encoding.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

#include "absl/status/statusor.h"
#include "arrow/table.h"

namespace sheaf::arrow {

struct Instant {
  int64_t value;  // In units of Field::nanos.
};
using Int256 = std::array<uint64_t, 4>;  // Of a decimal, without its scale; low words first.

// The field that has layout and kind of the values: of a dictionary column its dictionary's.
inline const Field& ValueField(const Field& field) {
  return field.dictionary != nullptr ? *field.dictionary : field;
}

// Whether values of such a column can be read here. Dictionaries of dictionaries and nested types
// cannot, and then UnsupportedKey says so.
inline bool HasValues(const Field& field) {
  const Field& values = ValueField(field);
  return values.kind != Kind::kNone && values.dictionary == nullptr;
}
absl::Status UnsupportedKey(const Field& field);
// The columns `keys` of a batch. kUnimplemented: one has no values to read (Unsupported). kDataLoss: an
// index of a dictionary is not in it.
absl::StatusOr<std::vector<Array>> KeyColumns(const Table& table, const Array& batch,
                                              std::span<const size_t> keys);

inline double DoubleOfHalf(uint16_t half) {
  const int exponent = half >> 10 & 31;
  const int fraction = half & 1023;
  const double size = exponent == 31  ? (fraction != 0 ? NAN : INFINITY)
                      : exponent == 0 ? std::ldexp(fraction, -24)
                                      : std::ldexp(fraction + 1024, exponent - 25);
  return (half & 0x8000) != 0 ? -size : size;
}

template <int kWidth>
Int256 SignExtended(const uint8_t* data, int64_t row) {
  Int256 number;
  const uint8_t* const bytes = data + row * kWidth;
  std::memset(number.data(), (bytes[kWidth - 1] & 0x80) != 0 ? 0xff : 0, sizeof(number));
  std::memcpy(number.data(), bytes, kWidth);
  return number;
}

// Calls `use` with a function of a row, which is not NULL and below `array.length`, that gives its
// value: an int64_t, uint64_t (bool, too), double, Instant, Int256 or std::string_view. `field` has
// no dictionary. Not called for a column of type null, whose rows have no values.
template <class Use>
void WithValues(const Field& field, const Array& array, Use use) {
  const auto numbers = [&]<class T, class As>(T, As) {
    use([data = array.DataFrom(sizeof(T))](int64_t row) -> As {
      return static_cast<As>(Load<T>(data, row));
    });
  };
  const auto texts = [&]<class Offset>(Offset) {
    use([offsets = array.DataFrom(sizeof(Offset)), bytes = array.bytes.get()](int64_t row) {
      const auto start = Load<Offset>(offsets, row);
      return std::string_view(reinterpret_cast<const char*>(bytes) + start,
                              static_cast<size_t>(Load<Offset>(offsets, row + 1) - start));
    });
  };
  const auto decimals = [&]<int kWidth>(std::integral_constant<int, kWidth>) {
    use([data = array.DataFrom(kWidth)](int64_t row) { return SignExtended<kWidth>(data, row); });
  };
  const int width = field.width;
  switch (field.kind) {
    case Kind::kBool:
      return use([bits = array.data.get(), offset = array.offset](int64_t row) {
        return uint64_t{GetBit(bits, offset + row)};
      });
    case Kind::kSigned:
      return width == 1   ? numbers(int8_t{}, int64_t{})
             : width == 2 ? numbers(int16_t{}, int64_t{})
             : width == 4 ? numbers(int32_t{}, int64_t{})
                          : numbers(int64_t{}, int64_t{});
    case Kind::kUnsigned:
      return width == 1   ? numbers(uint8_t{}, uint64_t{})
             : width == 2 ? numbers(uint16_t{}, uint64_t{})
             : width == 4 ? numbers(uint32_t{}, uint64_t{})
                          : numbers(uint64_t{}, uint64_t{});
    case Kind::kFloat:
      if (width == 4) return numbers(float{}, double{});
      if (width == 8) return numbers(double{}, double{});
      return use([data = array.DataFrom(2)](int64_t row) {
        return DoubleOfHalf(Load<uint16_t>(data, row));
      });
    case Kind::kTime:
      if (width == 4)
        return use(
            [data = array.DataFrom(4)](int64_t row) { return Instant{Load<int32_t>(data, row)}; });
      return use(
          [data = array.DataFrom(8)](int64_t row) { return Instant{Load<int64_t>(data, row)}; });
    case Kind::kDecimal:
      return width == 4    ? decimals(std::integral_constant<int, 4>{})
             : width == 8  ? decimals(std::integral_constant<int, 8>{})
             : width == 16 ? decimals(std::integral_constant<int, 16>{})
                           : decimals(std::integral_constant<int, 32>{});
    case Kind::kBytes:
      if (field.layout == Layout::kBinary) return texts(int32_t{});
      if (field.layout == Layout::kLargeBinary) return texts(int64_t{});
      return use([data = array.DataFrom(width), width](int64_t row) {
        return std::string_view(reinterpret_cast<const char*>(data) + row * width,
                                static_cast<size_t>(width));
      });
    case Kind::kNull:
    case Kind::kNone:
      return;
  }
}

}  // namespace sheaf::arrow
