// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "base/crc32c.h"

#include <catch2/catch.hpp>
#include <string>

namespace sheaf {

SCENARIO("the checksum is CRC-32C: the test vectors of RFC 3720, B.4") {
  CHECK(Crc32c("") == 0);
  CHECK(Crc32c(std::string(32, '\0')) == 0x8a9136aa);
  CHECK(Crc32c(std::string(32, '\xff')) == 0x62a8ab43);
  CHECK(Crc32c("123456789") == 0xe3069283);
}

SCENARIO("a checksum continues over pieces") {
  const std::string text = "The checksum of pieces is the checksum of the whole.";
  for (size_t cut = 0; cut <= text.size(); ++cut) {
    CHECK(Crc32c(std::string_view(text).substr(cut),
                 Crc32c(std::string_view(text).substr(0, cut))) == Crc32c(text));
  }
}

SCENARIO("long bytes, whose lanes are summed side by side, have the checksum of their pieces") {
  std::string bytes(60'000, '\0');
  uint32_t state = 1;
  for (char& byte : bytes) byte = static_cast<char>((state = state * 1664525 + 1013904223) >> 24);
  for (const size_t size : {3071u, 3072u, 3073u, 6144u, 9222u, 59'990u}) {
    for (const size_t offset : {0u, 1u, 7u}) {
      const std::string_view whole = std::string_view(bytes).substr(offset, size);
      uint32_t of_pieces = 0;
      for (size_t at = 0; at < size; at += 1000)
        of_pieces = Crc32c(whole.substr(at, 1000), of_pieces);
      CAPTURE(size, offset);
      CHECK(Crc32c(whole) == of_pieces);
      std::string copy(size, '\0');
      CHECK(CopyWithCrc32c(copy.data(), whole) == of_pieces);
      CHECK(copy == whole);
    }
  }
}

}  // namespace sheaf
