// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Numbers as keys of storage rows: big-endian, so that the order of the bytes is the order of the
// numbers.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace sheaf {

template <class Number>
std::string RowKey(Number number) {
  std::string key(sizeof(Number), '\0');
  for (size_t i = 0; i < sizeof(Number); ++i) {
    key[i] = static_cast<char>(number >> (8 * (sizeof(Number) - 1 - i)));
  }
  return key;
}

// nullopt: not the size of a Number.
template <class Number>
std::optional<Number> NumberFromRowKey(std::string_view key) {
  if (key.size() != sizeof(Number)) return std::nullopt;
  Number number = 0;
  for (const char byte : key) number = number << 8 | static_cast<uint8_t>(byte);
  return number;
}

}  // namespace sheaf
