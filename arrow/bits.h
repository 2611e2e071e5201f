// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Single values and bits in buffers of Arrow, which need not be aligned.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace sheaf::arrow {

template <class T>
T Load(const uint8_t* values, int64_t i) {
  T value;
  std::memcpy(&value, values + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return value;
}
template <class T>
void Store(uint8_t* values, int64_t i, T value) {
  std::memcpy(values + i * static_cast<int64_t>(sizeof(T)), &value, sizeof(T));
}

inline int64_t BytesOfBits(int64_t bits) { return (bits + 7) / 8; }
inline bool GetBit(const uint8_t* bits, int64_t i) { return (bits[i >> 3] >> (i & 7) & 1) != 0; }
inline void ClearBit(uint8_t* bits, int64_t i) {
  bits[i >> 3] = static_cast<uint8_t>(bits[i >> 3] & ~(1u << (i & 7)));
}
inline void OrBit(uint8_t* bits, int64_t i, bool bit) {
  bits[i >> 3] = static_cast<uint8_t>(bits[i >> 3] | unsigned{bit} << (i & 7));
}

// Copies `count` bits. Those of `to` from `to_offset` on must be 0.
inline void CopyBits(const uint8_t* from, int64_t from_offset, int64_t count, uint8_t* to,
                     int64_t to_offset) {
  int64_t i = 0;
  for (; i < count && (to_offset + i) % 8 != 0; ++i)
    OrBit(to, to_offset + i, GetBit(from, from_offset + i));
  const int shift = static_cast<int>((from_offset + i) % 8);
  const uint8_t* in = from + (from_offset + i) / 8;
  uint8_t* out = to + (to_offset + i) / 8;
  for (; i + 8 <= count; i += 8, ++in, ++out) {
    // The second byte holds bits that are copied, where there is a shift.
    const unsigned both = shift == 0 ? in[0] : in[0] | unsigned{in[1]} << 8;
    *out = static_cast<uint8_t>(both >> shift);
  }
  for (; i < count; ++i) OrBit(to, to_offset + i, GetBit(from, from_offset + i));
}

// How many of `count` bits are 1.
inline int64_t CountOnes(const uint8_t* bits, int64_t offset, int64_t count) {
  int64_t ones = 0;
  int64_t i = 0;
  for (; i < count && (offset + i) % 8 != 0; ++i) ones += GetBit(bits, offset + i);
  for (; i + 64 <= count; i += 64)
    ones += __builtin_popcountll(Load<uint64_t>(bits + (offset + i) / 8, 0));
  for (; i < count; ++i) ones += GetBit(bits, offset + i);
  return ones;
}

}  // namespace sheaf::arrow
