// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "dashboard/logs/log_text.h"

#include <boost/json/value.hpp>
#include <catch2/catch.hpp>

#include "base/text/json.h"
#include "http/json.h"

namespace sheaf::dashboard {
namespace log_text_test {

// Whatever the pieces, the text is the same.
std::string InPieces(LogText::Form form, const std::string& text, size_t piece) {
  LogText formed(form);
  std::string all;
  for (size_t at = 0; at < text.size(); at += piece) all += formed.Next(text.substr(at, piece));
  return all + formed.Last();
}

const std::string kHostile(
    "a\x1b[1;31mred\x1b[0m \xc3\xa9\xf0\x9f\x8c\xbe \x1b[K\0\xff\xfe\x1b] \xe2\x82", 34);

SCENARIO("colours go, wherever a piece ends, and all else stays as it is") {
  const std::string plain = InPieces(LogText::Form::kWithoutAnsiCodes, kHostile, kHostile.size());
  CHECK(plain.starts_with("ared \xc3\xa9"));
  CHECK(plain.find("\x1b[") == std::string::npos);
  CHECK(plain.find("\x1b]") != std::string::npos);
  for (size_t piece = 1; piece < kHostile.size(); ++piece) {
    CHECK(InPieces(LogText::Form::kWithoutAnsiCodes, kHostile, piece) == plain);
    CHECK(InPieces(LogText::Form::kAsItIs, kHostile, piece) == kHostile);
  }
}

SCENARIO("pieces hold whole characters, and what is none is not waited for") {
  LogText text(LogText::Form::kAsItIs);
  CHECK(text.Next("a\xf0\x9f").size() == 1);
  CHECK(text.Next("\x8c").empty());
  CHECK(text.Next("\xbe") == "\xf0\x9f\x8c\xbe");
  CHECK(text.Next("\xff\xff").size() == 2);
  CHECK(text.Next(std::string(10, '\x80')).size() == 10);
  CHECK(text.Next("\xe2").empty());
  CHECK(text.Last() == "\xe2");
  CHECK(text.Last().empty());
}

SCENARIO("a log becomes a string of JSON piece by piece") {
  for (const size_t piece : {1, 2, 3, 7, 100}) {
    const std::string json =
        "\"" + InPieces(LogText::Form::kInJson, kHostile + "\"\\\n", piece) + "\"";
    const auto value = http::ParseJson(json);
    REQUIRE(value.ok());
    const std::string_view text = value->as_string();
    CHECK(text.find("\xc3\xa9\xf0\x9f\x8c\xbe") != std::string::npos);
    CHECK(text.ends_with("\"\\\n"));
  }
  CHECK(LogText(LogText::Form::kInJson).Words("a \"word\"\n") == "a \\\"word\\\"\\n");
}

SCENARIO("what is said of a log stands on a line of its own") {
  LogText text(LogText::Form::kAsItIs);
  CHECK(text.Words("[begin]\n") == "[begin]\n");
  text.Next("half a line");
  CHECK(text.Words("").empty());
  CHECK(text.Words("[end]\n") == "\n[end]\n");
  CHECK(text.Words("[more]\n") == "[more]\n");
}

}  // namespace log_text_test
}  // namespace sheaf::dashboard
