// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "dashboard/page/page_routes.h"

#include <catch2/catch.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "dashboard/observe/gzip.h"
#include "dashboard/page/files.h"
#include "http/client_for_test.h"
#include "http/server.h"

namespace sheaf::dashboard {
namespace page_routes_test {

struct Fixture {
  std::unique_ptr<http::Server> server;

  Fixture() {
    http::Router router;
    AddPageRoutes(router);
    // From elsewhere, without a token: the page is what one logs in with.
    auto started = http::Server::Start(
        {.address = "0.0.0.0", .token = "s3cret", .access = {.trust = http::Trust::kTokenOnly}},
        std::move(router));
    REQUIRE(started.ok());
    server = *std::move(started);
  }
  std::string Get(const std::string& path, const std::string& headers = "") const {
    http::Client client(server->port());
    client.Send(absl::StrCat("GET ", path, " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n",
                             headers, "\r\n"));
    return client.Read();
  }
};

std::string BodyOf(const std::string& answer) { return answer.substr(answer.find("\r\n\r\n") + 4); }

std::string HeaderOf(const std::string& answer, const std::string& name) {
  const size_t at = answer.find(name + ": ");
  if (at == std::string::npos) return "";
  const size_t begin = at + name.size() + 2;
  return answer.substr(begin, answer.find("\r\n", begin) - begin);
}

TEST_CASE(
    "the page's files come as they are, with their types, and may run nothing from elsewhere") {
  const Fixture fixture;
  for (const PageFile& file : PageFiles()) {
    INFO(file.name);
    REQUIRE_FALSE(file.bytes.empty());
    const std::string answer = fixture.Get(
        file.name == "index.html" ? std::string("/") : "/assets/" + std::string(file.name));
    CHECK(http::StatusOf(answer) == 200);
    CHECK(HeaderOf(answer, "Content-Type") == file.content_type);
    CHECK(HeaderOf(answer, "Content-Security-Policy")
              .starts_with("default-src 'none'; script-src 'self'"));
    CHECK(HeaderOf(answer, "X-Content-Type-Options") == "nosniff");
    CHECK(BodyOf(answer) == file.bytes);
  }
}

TEST_CASE("every path but the API's is the page, which says itself what there is not") {
  const Fixture fixture;
  const std::string page = BodyOf(fixture.Get("/"));
  for (const char* const path : {"/tasks", "/nodes/2", "/no/such/page", "/functions/a%2Fb%00c"}) {
    INFO(path);
    const std::string answer = fixture.Get(path);
    CHECK((std::string(path).find("%00") != std::string::npos ? http::StatusOf(answer) == 400
                                                              : BodyOf(answer) == page));
  }
  CHECK(http::StatusOf(fixture.Get("/api/cats")) == 401);
  CHECK(http::StatusOf(fixture.Get("/api/cats", "Authorization: Bearer s3cret\r\n")) == 404);
  CHECK(http::StatusOf(fixture.Get("/assets/app.map", "Authorization: Bearer s3cret\r\n")) == 404);
}

TEST_CASE("who asks for what Ray's page asks for learns what it is called here") {
  const Fixture fixture;
  for (const auto& [path, here] : std::vector<std::pair<std::string, std::string>>{
           {"/nodes?view=summary", "/api/sheaf/nodes"},
           {"/logical/actors", "/api/sheaf/actors"},
           {"/events", "/api/sheaf/events"},
           {"/api/train/v2/runs", "/api/sheaf/train_runs"},
           {"/api/data/datasets/1", "/api/sheaf/objects"}}) {
    INFO(path);
    const std::string answer = fixture.Get(path);
    CHECK(http::StatusOf(answer) == 404);
    CHECK(BodyOf(answer).find(here) != std::string::npos);
  }
  CHECK(http::StatusOf(fixture.Get("/memory_profile?pid=1&ip=127.0.0.1")) == 501);
}

TEST_CASE("who takes gzip gets it, and who has a file already is told so") {
  const Fixture fixture;
  const std::string packed = fixture.Get("/assets/app.js", "Accept-Encoding: gzip, br\r\n");
  CHECK(HeaderOf(packed, "Content-Encoding") == "gzip");
  CHECK(BodyOf(packed) == Gzip(PageFiles()[1].bytes));
  CHECK(HeaderOf(fixture.Get("/assets/app.js", "Accept-Encoding: gzip;q=0\r\n"), "Content-Encoding")
            .empty());
  const std::string tag = HeaderOf(packed, "ETag");
  REQUIRE_FALSE(tag.empty());
  CHECK(tag != HeaderOf(fixture.Get("/assets/app.css"), "ETag"));
  const std::string known = fixture.Get("/assets/app.js", "If-None-Match: " + tag + "\r\n");
  CHECK(http::StatusOf(known) == 304);
  CHECK(BodyOf(known).empty());
  CHECK(HeaderOf(known, "Cache-Control") == "no-cache");
}

TEST_CASE("the whole page is at most 90 KB on its way") {
  size_t bytes = 0;
  for (const PageFile& file : PageFiles()) bytes += Gzip(file.bytes).size();
  CHECK(bytes <= 90'000);
}

}  // namespace page_routes_test
}  // namespace sheaf::dashboard
