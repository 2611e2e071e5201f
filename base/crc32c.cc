// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "base/crc32c.h"

#include <array>
#include <cstddef>
#include <cstring>
#include <string>

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
// The instruction takes one word a cycle and answers after three, so three lanes of bytes that
// follow each other are summed at a time, and joined: the sum of one lane is moved over the bytes
// of the next as if those were zeros (Gopal et al., Fast CRC Computation for iSCSI Polynomial Using
// CRC32 Instruction, Intel 2011, section 3). That is linear: a table of its effect on each byte.
constexpr size_t kLaneBytes = 1024;

class OverLane {
 public:
  OverLane() {
    const std::string zeros(kLaneBytes, '\0');
    for (int bit = 0; bit < 32; ++bit) {
      const uint32_t moved = Portable(zeros, uint32_t{1} << bit);
      for (uint32_t byte = 0; byte < 256; ++byte) {
        if ((byte >> bit % 8 & 1) != 0) table_[bit / 8][byte] ^= moved;
      }
    }
  }
  uint32_t operator()(uint32_t crc) const {
    return table_[0][crc & 0xff] ^ table_[1][crc >> 8 & 0xff] ^ table_[2][crc >> 16 & 0xff] ^
           table_[3][crc >> 24];
  }

 private:
  std::array<std::array<uint32_t, 256>, 4> table_{};
};

inline uint64_t WordAt(const char* at) {
  uint64_t word;
  std::memcpy(&word, at, sizeof word);
  return word;
}

__attribute__((target("sse4.2"))) uint32_t Instruction(std::string_view bytes, uint32_t crc) {
  static const OverLane over_lane;
  const char* at = bytes.data();
  size_t left = bytes.size();
  for (; left >= 3 * kLaneBytes; at += 3 * kLaneBytes, left -= 3 * kLaneBytes) {
    uint64_t first = crc, second = 0, third = 0;
    for (size_t i = 0; i < kLaneBytes; i += 8) {
      first = __builtin_ia32_crc32di(first, WordAt(at + i));
      second = __builtin_ia32_crc32di(second, WordAt(at + kLaneBytes + i));
      third = __builtin_ia32_crc32di(third, WordAt(at + 2 * kLaneBytes + i));
    }
    crc = over_lane(static_cast<uint32_t>(first)) ^ static_cast<uint32_t>(second);
    crc = over_lane(crc) ^ static_cast<uint32_t>(third);
  }
  uint64_t wide = crc;
  for (; left >= 8; at += 8, left -= 8) {
    wide = __builtin_ia32_crc32di(wide, WordAt(at));
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

uint32_t CopyWithCrc32c(char* to, std::string_view bytes, uint32_t crc) {
  constexpr size_t kStep = 24 * 1024;  // Still in the first cache when it is summed.
  for (size_t at = 0; at < bytes.size(); at += kStep) {
    const std::string_view step = bytes.substr(at, kStep);
    std::memcpy(to + at, step.data(), step.size());
    crc = Crc32c(step, crc);
  }
  return crc;
}

}  // namespace sheaf
