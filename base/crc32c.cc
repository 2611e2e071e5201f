// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "base/crc32c.h"

#include <array>
#include <cstddef>
#include <cstring>

namespace sheaf {
namespace {

constexpr uint32_t kPolynomial = 0x82f63b78;  // Reflected.

constexpr std::array<uint32_t, 256> MakeTable() {
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? kPolynomial : 0);
    table[byte] = crc;
  }
  return table;
}
constexpr std::array<uint32_t, 256> kTable = MakeTable();

uint32_t Portable(std::string_view bytes, uint32_t crc) {
  for (const char byte : bytes) crc = crc >> 8 ^ kTable[(crc ^ static_cast<uint8_t>(byte)) & 0xff];
  return crc;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) uint32_t Instruction(std::string_view bytes, uint32_t crc) {
  uint64_t wide = crc;
  const char* at = bytes.data();
  size_t left = bytes.size();
  for (; left >= 8; at += 8, left -= 8) {
    uint64_t word;
    std::memcpy(&word, at, 8);
    wide = __builtin_ia32_crc32di(wide, word);
  }
  crc = static_cast<uint32_t>(wide);
  for (; left > 0; ++at, --left) {
    crc = __builtin_ia32_crc32qi(crc, static_cast<unsigned char>(*at));
  }
  return crc;
}
#endif

}  // namespace

uint32_t Crc32c(std::string_view bytes, uint32_t crc) {
#if defined(__x86_64__)
  static const bool has_instruction = __builtin_cpu_supports("sse4.2");
  if (has_instruction) return ~Instruction(bytes, ~crc);
#endif
  return ~Portable(bytes, ~crc);
}

}  // namespace sheaf
