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

}  // namespace sheaf
