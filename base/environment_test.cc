// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "base/environment.h"

#include <catch2/catch.hpp>

namespace sheaf {
namespace {

TEST_CASE("an environment survives its bytes, and equal ones have equal bytes") {
  RuntimeEnvironment environment;
  environment.variables = {{"ZONE", "b"}, {"OMP_NUM_THREADS", "1"}, {"EMPTY", ""}, {"_x", "a=b"}};
  environment.others = {{"@working_dir", "/data"}};
  const std::string bytes = EncodeEnvironment(environment).value();
  CHECK(DecodeEnvironment(bytes).value() == environment);
  CHECK(EncodeEnvironment(DecodeEnvironment(bytes).value()).value() == bytes);
  CHECK(EncodeEnvironment({}).value().empty());
  CHECK(DecodeEnvironment("").value() == RuntimeEnvironment());
}

TEST_CASE("a task's environment is put over its job's, variable by variable") {
  const std::string job = EncodeEnvironment({{{"A", "1"}, {"B", "2"}}, {{"@dir", "/job"}}}).value();
  const std::string own = EncodeEnvironment({{{"B", "3"}, {"C", "4"}}, {}}).value();
  CHECK(MergeEnvironments(job, own).value() ==
        EncodeEnvironment({{{"A", "1"}, {"B", "3"}, {"C", "4"}}, {{"@dir", "/job"}}}).value());
  CHECK(MergeEnvironments(job, "").value() == job);
  CHECK(MergeEnvironments("", own).value() == own);
  CHECK_FALSE(MergeEnvironments(job, "nonsense").ok());
}

TEST_CASE("names and values that a worker cannot have are refused by name") {
  const auto refused = [](const std::string& name, const std::string& value) {
    return std::string(
        EncodeEnvironment({.variables = {{name, value}}, .others = {}}).status().message());
  };
  CHECK_THAT(refused("1A", "x"), Catch::Contains("'1A'"));
  CHECK_THAT(refused("", "x"), Catch::Contains("is no name"));
  CHECK_THAT(refused("A=B", "x"), Catch::Contains("'A=B'"));
  CHECK_THAT(refused("SHEAF_WORKER", "x"), Catch::Contains("set by Sheaf itself"));
  CHECK_THAT(refused("A", std::string("x\0y", 3)), Catch::Contains("NUL"));
  CHECK_THAT(refused("A", std::string(kMaxEnvironmentBytes, 'x')), Catch::Contains("at most"));
  CHECK_THAT(refused("@x", "y"), Catch::Contains("wrong part"));
}

TEST_CASE("bytes of a peer that are no environment are refused") {
  for (const std::string& bytes :
       {std::string("A=1"), std::string("A\0", 2), std::string("\0", 1),
        std::string("B=1\0A=1\0", 8), std::string("A=1\0A=2\0", 8), std::string("=1\0", 3),
        std::string(kMaxEnvironmentBytes + 1, 'x')}) {
    CHECK(DecodeEnvironment(bytes).status().code() == absl::StatusCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace sheaf
