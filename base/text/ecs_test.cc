// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "base/text/ecs.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "base/text/json_members.h"

namespace sheaf {
namespace {

std::string Line(std::string_view message) {
  return EcsLine({.unix_ns = 1'700'000'000'123'456'789,
                  .level = "info",
                  .message = message,
                  .dataset = "sheaf.worker",
                  .os_pid = 77,
                  .sheaf = R"({"stream":"out"})"});
}

using Names = std::vector<std::string>;

Names NamesOf(const std::string& line) {
  const auto members = MembersOf(line);
  INFO(line.substr(0, 1000));
  REQUIRE(members.has_value());
  return {members->names.begin(), members->names.end()};
}

const Names kAll = {"@timestamp", "log.level", "message", "ecs.version", "process",
                    "host",       "service",   "event",   "sheaf"};

}  // namespace

SCENARIO("a line has the names of the schema, and one text as its message") {
  const std::string line = Line("a \"word\"");
  CHECK(NamesOf(line) == kAll);
  CHECK(line.starts_with(R"({"@timestamp":"2023-11-14T22:13:20.123Z","log.level":"info",)"
                         R"("message":"a \"word\"","ecs.version":"1.6.0","process":{"pid":77},)"));
  CHECK(line.ends_with(R"("event":{"dataset":"sheaf.worker"},"sheaf":{"stream":"out"}})"));
}

SCENARIO("whatever is printed, the line is one object") {
  const std::string hostile[] = {std::string("\0\x01", 2),
                                 "\xff\xfe \xc3",
                                 "\x1b[31mred\x1b[0m",
                                 "",
                                 "{",
                                 "{}",
                                 "{\"a\":1}x",
                                 "{\"a\":01}",
                                 "{\"a\":\"\xff\"}",
                                 "{\"a\":1,\"a\":2}",
                                 "{\"\\u0061\":1}",
                                 "[1]",
                                 "null",
                                 "\"}, \"sheaf\": {",
                                 std::string(40, '['),
                                 "{\"a\":" + std::string(100'000, '['),
                                 std::string(1 << 20, 'x')};
  for (const std::string& message : hostile) {
    const Names names = NamesOf(Line(message));
    CHECK(names == kAll);
  }
}

SCENARIO("a line that is JSON already is lifted, and says itself what it says") {
  CHECK(NamesOf(Line(R"( {"message":"x"})")) == kAll);  // It does not begin with the brace.
  const std::string line = Line(
      R"({"message":"own","log.level":"warning","process":{"name":"p"},"n": -1.5e3,"t":[true,{}]} )");
  CHECK(NamesOf(line) == Names{"message", "log.level", "process", "n", "t", "@timestamp",
                               "ecs.version", "host", "service", "event", "sheaf"});
  CHECK(line.find(R"("message":"own","log.level":"warning")") != std::string::npos);
  CHECK(NamesOf(Line(R"({"process.pid":1,"log":{"level":"x"}})")) ==
        Names{"process.pid", "log", "@timestamp", "message", "ecs.version", "host", "service",
              "event", "sheaf"});
}

SCENARIO("objects are told from what only looks like one") {
  for (const char* good :
       {"{}", " {} ", R"({"a":{"b":[1,2.5,-3e+7,"x\u00e9\n",null,true,false]}})", R"({"":0})"}) {
    INFO(good);
    CHECK(MembersOf(good).has_value());
  }
  for (const char* bad : {"",
                          "{",
                          "}",
                          "[]",
                          "{a:1}",
                          "{\"a\"}",
                          "{\"a\":}",
                          "{\"a\":1,}",
                          "{\"a\":.5}",
                          "{\"a\":1.}",
                          "{\"a\":1e}",
                          "{\"a\":+1}",
                          "{\"a\":00}",
                          "{\"a\":\"\\x\"}",
                          "{\"a\":\"\\u12\"}",
                          "{\"a\":\"\n\"}",
                          "{\"a\":[1,]}",
                          "{\"a\":tru}",
                          "{\"a\":1} {}",
                          "{\"a\":\"x}"}) {
    INFO(bad);
    CHECK_FALSE(MembersOf(bad).has_value());
  }
  CHECK(MembersOf(R"({"a":1, "b":2})")->text == R"("a":1, "b":2)");
}

}  // namespace sheaf
