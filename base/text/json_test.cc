// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "base/text/json.h"

#include <catch2/catch.hpp>
#include <cmath>

namespace sheaf {
namespace {

TEST_CASE("strings are escaped so that any reader takes them") {
  CHECK(JsonString("plain") == "\"plain\"");
  CHECK(JsonString("a\"b\\c") == "\"a\\\"b\\\\c\"");
  CHECK(JsonString("line\nnext\ttab") == "\"line\\nnext\\ttab\"");
  CHECK(JsonString(std::string_view("\x1b[31m\0", 6)) == "\"\\u001b[31m\\u0000\"");
  CHECK(JsonString("gr\xC3\xBC\xC3\x9F \xE2\x82\xAC \xF0\x9F\x8C\xBE") ==
        "\"gr\xC3\xBC\xC3\x9F \xE2\x82\xAC \xF0\x9F\x8C\xBE\"");
}

TEST_CASE("bytes that are not UTF-8 become the replacement character") {
  const std::string bad = "\xEF\xBF\xBD";
  CHECK(JsonString("a\xFFz") == "\"a" + bad + "z\"");
  CHECK(JsonString("\xC3") == "\"" + bad + "\"");                      // Cut short.
  CHECK(JsonString("\xC0\x80") == "\"" + bad + bad + "\"");            // Longer than needed.
  CHECK(JsonString("\xED\xA0\x80") == "\"" + bad + bad + bad + "\"");  // A surrogate.
  CHECK(JsonString("\xF4\x90\x80\x80") == "\"" + bad + bad + bad + bad + "\"");  // Beyond Unicode.
}

TEST_CASE("numbers are written shortest, and what JSON has not is null") {
  CHECK(JsonNumber(uint64_t{18446744073709551615u}) == "18446744073709551615");
  CHECK(JsonNumber(int64_t{-5}) == "-5");
  CHECK(JsonNumber(0.5) == "0.5");
  CHECK(JsonNumber(2.0) == "2");
  CHECK(JsonNumber(std::nan("")) == "null");
  CHECK(JsonNumber(INFINITY) == "null");
}

TEST_CASE("objects and arrays nest") {
  CHECK(JsonObject().Done() == "{}");
  CHECK(JsonArray().Done() == "[]");
  CHECK(JsonObject().Add("a", "1").Add("b", JsonArray().Add("2").Add("true").Done()).Done() ==
        "{\"a\":1,\"b\":[2,true]}");
}

}  // namespace
}  // namespace sheaf
