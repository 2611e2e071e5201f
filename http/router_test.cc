// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "http/router.h"

#include <catch2/catch.hpp>

#include "http/target.h"

namespace sheaf::http {
namespace {

Router Routes() {
  Router router;
  const auto add = [&](const char* method, const char* pattern) {
    router.Add(
        {.method = method, .pattern = pattern, .handler = [](const Request&, const Reply&) {}});
  };
  add("GET", "/");
  add("GET", "/api/jobs/");
  add("POST", "/api/jobs");
  add("GET", "/api/jobs/first");
  add("GET", "/api/jobs/{id}");
  add("DELETE", "/api/jobs/{id}");
  add("GET", "/api/jobs/{id}/logs");
  add("GET", "/files/{path*}");
  return router;
}

// "PATTERN name=value", or what stands in Allow behind "!".
std::string Found(const std::string& method, const std::string& target) {
  static const Router router = Routes();
  const absl::StatusOr<Target> parsed = ParseTarget(target);
  REQUIRE(parsed.ok());
  const Router::Match match = router.Find(method, parsed->segments);
  if (match.route == nullptr) return "!" + match.allow;
  std::string text = match.route->pattern;
  for (const auto& [name, value] : match.captures) text += " " + name + "=" + value;
  return text;
}

TEST_CASE("a route is found by method and path, with or without the last slash") {
  CHECK(Found("GET", "/") == "/");
  CHECK(Found("GET", "/api/jobs") == "/api/jobs/");
  CHECK(Found("HEAD", "/api/jobs/?limit=3") == "/api/jobs/");
  CHECK(Found("POST", "/api/jobs/") == "/api/jobs");
  CHECK(Found("GET", "/api/jobs/first") == "/api/jobs/first");
  CHECK(Found("GET", "/api/jobs/raysubmit_1/") == "/api/jobs/{id} id=raysubmit_1");
  CHECK(Found("GET", "/api/jobs/a%2Fb%20c/logs") == "/api/jobs/{id}/logs id=a/b c");
  CHECK(Found("GET", "/files/a/b.log") == "/files/{path*} path=a/b.log");
  CHECK(Found("GET", "http://here:1/api/jobs") == "/api/jobs/");
}

TEST_CASE("pages are at all other paths but those of the API and of files") {
  Router router;
  router.Add(
      {.method = "POST", .pattern = "/jobs", .handler = [](const Request&, const Reply&) {}});
  router.AddPages([](const Request&, const Reply&) {});
  const auto is_page = [&](std::string_view method, std::vector<std::string> segments) {
    const Router::Match match = router.Find(method, segments);
    CHECK((match.route == nullptr || match.route->right == Right::kOpen));
    return match.route != nullptr;
  };
  CHECK(is_page("GET", {}));
  CHECK(is_page("HEAD", {"nodes", "2", "more"}));
  CHECK_FALSE(is_page("POST", {"nodes"}));
  CHECK_FALSE(is_page("GET", {"jobs"}));  // Of another method alone: 405 tells which.
  CHECK_FALSE(is_page("GET", {"api"}));
  CHECK_FALSE(is_page("GET", {"api", "cats"}));
  CHECK_FALSE(is_page("GET", {"assets", "app.map"}));
}

TEST_CASE("what fits by its path alone says which methods there are") {
  CHECK(Found("PUT", "/api/jobs/x") == "!GET, HEAD, DELETE");
  CHECK(Found("get", "/api/jobs") == "!GET, HEAD, POST");
  CHECK(Found("GET", "/api/jobs/x/other") == "!");
  CHECK(Found("GET", "/files") == "!");
  CHECK(Found("GET", "/api//jobs") == "!");
  CHECK(Found("GET", "/API/jobs") == "!");
}

TEST_CASE("a target is taken apart and decoded once") {
  const absl::StatusOr<Target> target =
      ParseTarget("/a%2541/b?x=1%202&y=a+b&x=3&empty=&flag&&%26=%3D#part");
  REQUIRE(target.ok());
  CHECK(target->path == "/a%2541/b");
  CHECK(target->segments == std::vector<std::string>{"a%41", "b"});
  CHECK(target->query ==
        Pairs{{"x", "1 2"}, {"y", "a b"}, {"x", "3"}, {"empty", ""}, {"flag", ""}, {"&", "="}});
  CHECK(Find(target->query, "x") == "1 2");
  CHECK_FALSE(Find(target->query, "z").has_value());
}

TEST_CASE("a target that is no path is refused") {
  for (const char* bad : {"", "*", "a/b", "/%", "/%4", "/%4g", "/a%00b", "/?a=%zz"}) {
    INFO(bad);
    CHECK(ParseTarget(bad).status().code() == absl::StatusCode::kInvalidArgument);
  }
  CHECK(ParseTarget("/" + std::string(kMaxTargetBytes, 'a')).status().code() ==
        absl::StatusCode::kOutOfRange);
  std::string many = "/?";
  for (size_t i = 0; i <= kMaxQueryPairs; ++i) many += "a=1&";
  CHECK(ParseTarget(many).status().code() == absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace sheaf::http
