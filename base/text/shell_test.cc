// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "base/text/shell.h"

#include <catch2/catch.hpp>

namespace sheaf {

TEST_CASE("only words that a shell would read something into are quoted") {
  CHECK(ShellWord("--tls-dir=/etc/sheaf_1/tls") == "--tls-dir=/etc/sheaf_1/tls");
  CHECK(ShellWord("10.0.0.7:6379") == "10.0.0.7:6379");
  CHECK(ShellWord("") == "''");
  CHECK(ShellWord("a b") == "'a b'");
  CHECK(ShellWord("it's") == R"('it'\''s')");
  for (const char* text : {"$HOME", "a;b", "~x", "a*", "[::1]:6379", "a\\b", "a\"b", "\xc3\xa4"})
    CHECK(ShellWord(text) == ShellQuoted(text));
}

}  // namespace sheaf
