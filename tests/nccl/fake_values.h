// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The numbers that the stand-in for NCCL reduces, by ncclDataType_t.
#pragma once

#include <cstdint>
#include <cstring>

namespace fake {

inline size_t SizeOf(int type) {
  constexpr size_t kSizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
  return kSizes[type];
}

template <class T>
T Bits(const void* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}
inline float FromHalf(uint16_t half) {
  const uint32_t exponent = half >> 10 & 31;
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000) << 16;
  if (exponent == 0) return static_cast<float>(half & 1023) / 16777216.0f;
  const uint32_t bits = sign | (exponent + 112) << 23 | static_cast<uint32_t>(half & 1023) << 13;
  return Bits<float>(&bits);
}
// Small normal numbers, rounded to nearest: what tests reduce.
inline uint16_t ToHalf(float value) {
  if (value == 0) return 0;
  const uint32_t bits = Bits<uint32_t>(&value) + 0x1000;
  return static_cast<uint16_t>((bits >> 16 & 0x8000) |
                               (((bits >> 23 & 255) - 112) << 10 | (bits >> 13 & 1023)));
}
inline double Load(int type, const void* from) {
  switch (type) {
    case 1:
      return Bits<uint8_t>(from);
    case 2:
      return Bits<int32_t>(from);
    case 4:
      return static_cast<double>(Bits<int64_t>(from));
    case 6:
      return FromHalf(Bits<uint16_t>(from));
    case 7:
      return Bits<float>(from);
    case 8:
      return Bits<double>(from);
    default: {
      const uint32_t bits = static_cast<uint32_t>(Bits<uint16_t>(from)) << 16;
      return Bits<float>(&bits);
    }
  }
}
inline void Store(int type, double value, void* to) {
  const auto put = [&](auto number) { std::memcpy(to, &number, sizeof number); };
  const float single = static_cast<float>(value);
  switch (type) {
    case 1:
      return put(static_cast<uint8_t>(value));
    case 2:
      return put(static_cast<int32_t>(value));
    case 4:
      return put(static_cast<int64_t>(value));
    case 6:
      return put(ToHalf(single));
    case 7:
      return put(single);
    case 8:
      return put(value);
    default:
      return put(static_cast<uint16_t>((Bits<uint32_t>(&single) + 0x8000) >> 16));
  }
}

}  // namespace fake
