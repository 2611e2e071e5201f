// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "http/get.h"

#include <catch2/catch.hpp>

#include "http/server.h"

namespace sheaf::http {
namespace {

SCENARIO("a server's answer is its body; whatever else there is is an error that says what") {
  Router router;
  router.Add({.method = "GET",
              .pattern = "/words",
              .right = Right::kOpen,
              .handler = [](const Request& request, const Reply& reply) {
                reply.Send({.body = std::string(request.Query("say").value_or("nothing"))});
              }});
  std::vector<Reply> kept;
  router.Add({.method = "GET",
              .pattern = "/late",
              .right = Right::kOpen,
              .handler = [&kept](const Request&, const Reply& reply) { kept.push_back(reply); }});
  auto server = Server::Start({}, router);
  REQUIRE(server.ok());
  const std::string url = (*server)->url();
  const auto answer = Get(url + "/words?say=much", 20 * kSecond);
  REQUIRE(answer.ok());
  CHECK(*answer == "much");
  const auto absent = Get(url + "/absent", 20 * kSecond);
  CHECK(absl::IsUnavailable(absent.status()));
  CHECK(absent.status().message().find("404") != std::string_view::npos);
  CHECK(absl::IsDeadlineExceeded(Get(url + "/late", 50 * kMillisecond).status()));
  server->reset();
  CHECK(absl::IsUnavailable(Get(url + "/words", 20 * kSecond).status()));
}

SCENARIO("what is no URL of a server is refused") {
  for (const char* bad :
       {"", "127.0.0.1:1/x", "ftp://127.0.0.1:1/", "http:///x", "http://127.0.0.1:0/",
        "http://127.0.0.1:65536/", "http://[::1/", "http://127.0.0.1:x/", "http://a b/"}) {
    INFO(bad);
    CHECK(absl::IsInvalidArgument(Get(bad, kSecond).status()));
  }
}

}  // namespace
}  // namespace sheaf::http
