// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Comparison of what somebody shows with what only a friend can know: proofs, tokens, seals. A
// plain == is over at the first difference, and by its time tells a guesser how much was right.
#pragma once

#include <cstddef>
#include <string_view>

namespace sheaf {

// In a time that depends on the sizes alone.
inline bool SameSecret(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  volatile unsigned char difference = 0;  // Else a compiler may leave the loop when it is not 0.
  for (size_t i = 0; i < a.size(); ++i) {
    difference = difference | static_cast<unsigned char>(a[i] ^ b[i]);
  }
  return difference == 0;
}

}  // namespace sheaf
