// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "base/text/same_secret.h"

#include <catch2/catch.hpp>
#include <string>

namespace sheaf {
namespace {

TEST_CASE("two secrets are one if all of their bits are") {
  CHECK(SameSecret("", ""));
  const std::string secret("a\0b\xff", 4);
  CHECK(SameSecret(secret, std::string(secret)));
  for (size_t at = 0; at < secret.size(); ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string other = secret;
      other[at] = static_cast<char>(other[at] ^ 1 << bit);
      CHECK_FALSE(SameSecret(secret, other));
    }
    CHECK_FALSE(SameSecret(secret, std::string_view(secret).substr(0, at)));
  }
}

}  // namespace
}  // namespace sheaf
