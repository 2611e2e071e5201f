// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "http/json.h"

#include <catch2/catch.hpp>
#include <string>

namespace sheaf::http {
namespace {

TEST_CASE("JSON is read within its limits") {
  const auto value = ParseJson(R"({"a":[1,2.5,"x"],"b":null,"a2":true})");
  REQUIRE(value.ok());
  CHECK(value->at("a").at(0) == 1);
  CHECK(ParseJson(std::string(kMaxJsonDepth, '[') + std::string(kMaxJsonDepth, ']')).ok());
}

TEST_CASE("what is no JSON, or too much of it, is refused with the place") {
  for (const std::string& bad :
       {std::string(), std::string("{"), std::string("{\"a\":1,}"), std::string("[1] x"),
        std::string("NaN"), std::string("\"\xff\""), std::string("'a'"),
        std::string(kMaxJsonDepth + 1, '[') + std::string(kMaxJsonDepth + 1, ']'),
        "\"" + std::string(kMaxJsonBytes, 'a') + "\""}) {
    INFO(bad.substr(0, 40));
    const auto value = ParseJson(bad);
    CHECK(value.status().code() == absl::StatusCode::kInvalidArgument);
  }
  CHECK(ParseJson("[1,x]").status().message().find("byte 3") != std::string::npos);
}

}  // namespace
}  // namespace sheaf::http
