// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Bytes at a multiple of 8 in memory of exactly their size, so that a sanitizer sees each byte
// beyond.
#pragma once

#include <cstring>
#include <memory>
#include <string_view>

namespace sheaf {

struct AlignedBytes {
  std::shared_ptr<const void> hold;
  std::string_view view;
};

inline AlignedBytes AlignedCopy(std::string_view bytes) {
  std::shared_ptr<char[]> copy(new char[bytes.size()]);
  std::memcpy(copy.get(), bytes.data(), bytes.size());
  const std::string_view view(copy.get(), bytes.size());
  return {std::move(copy), view};
}

}  // namespace sheaf
