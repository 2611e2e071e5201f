// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "http/authenticator.h"

#include <catch2/catch.hpp>
#include <string>

#include "base/fake_clock.h"

namespace sheaf::http {
namespace {

// Answers at once, into the test.
class Caught final : public Reply::Exchange {
 public:
  explicit Caught(Response& response) : response_(response) {}
  void Send(Response response) override { response_ = std::move(response); }
  std::shared_ptr<Stream> Open(Response) override { return nullptr; }

 private:
  Response& response_;
};

struct Fixture {
  FakeClock clock;
  Authenticator authenticator;
  Router router;
  explicit Fixture(std::string token = "s3cret", std::string session_key = "")
      : authenticator({"localhost", "127.0.0.1", "[::1]"}, std::move(token), std::move(session_key),
                      clock) {
    authenticator.AddRoutes(router);
  }

  Credential CredentialOf(Pairs headers, const std::string& peer = "10.0.0.1") {
    Request request{.headers = std::move(headers), .peer = peer};
    return authenticator.Identify(request, false, false).credential;
  }

  Response LogIn(Pairs headers, bool secure = false) {
    Request request{.method = "POST", .headers = std::move(headers), .secure = secure};
    request.peer = "10.0.0.2";
    Response response;
    router.Find("POST", {"api", "authenticate"})
        .route->handler(std::move(request), Reply(std::make_shared<Caught>(response)));
    return response;
  }
};

const Pairs kRight = {{"authorization", "Bearer s3cret"}};

TEST_CASE("a token is taken from either header, in any case of its first word") {
  Fixture server;
  CHECK(server.CredentialOf({}) == Credential::kNone);
  CHECK(server.CredentialOf(kRight) == Credential::kToken);
  CHECK(server.CredentialOf({{"authorization", "bearer  s3cret "}}) == Credential::kToken);
  CHECK(server.CredentialOf({{"x-ray-authorization", "Bearer s3cret"}}) == Credential::kToken);
  CHECK(server.CredentialOf({{"authorization", "Basic s3cret"}}) == Credential::kNone);
  for (const char* wrong : {"Bearer s3cre", "Bearer s3cret2", "Bearer ", "Bearer S3CRET"}) {
    INFO(wrong);
    CHECK(server.CredentialOf({{"authorization", wrong}}) == Credential::kWrongToken);
  }
}

TEST_CASE("where there is no token, none is wrong and none is right") {
  Fixture server("");
  CHECK(server.CredentialOf(kRight) == Credential::kNone);
  CHECK(server.CredentialOf({{"authorization", "Bearer "}}) == Credential::kNone);
  CHECK(server.LogIn(kRight).status == 401);
}

TEST_CASE(
    "a wrong token that an address shows ten times is not looked at for the rest of the minute") {
  Fixture server;
  const auto blocked = [&server](const std::string& address, const std::string& token) {
    return server.authenticator.Blocked(
        {.headers = {{"authorization", "Bearer " + token}}, .peer = address});
  };
  for (int i = 0; i < kWrongTokensPerMinute; ++i) {
    CHECK_FALSE(blocked("10.0.0.1", "no"));
    CHECK(server.CredentialOf({{"authorization", "Bearer no"}}) == Credential::kWrongToken);
  }
  CHECK(blocked("10.0.0.1", "no"));
  SECTION("others of the address are heard, with the right token, another one, or none") {
    CHECK_FALSE(blocked("10.0.0.1", "s3cret"));
    CHECK_FALSE(blocked("10.0.0.1", "not this either"));
    CHECK_FALSE(server.authenticator.Blocked({.peer = "10.0.0.1"}));
    CHECK(server.LogIn(kRight).status == 200);
  }
  SECTION("so are other addresses") { CHECK_FALSE(blocked("10.0.0.3", "no")); }
  SECTION("and all when the minute is over") {
    server.clock.Advance(61 * kSecond);
    CHECK_FALSE(blocked("10.0.0.1", "no"));
  }
}

TEST_CASE("a login gives a cookie that is not the token, and ends after twelve hours") {
  Fixture server;
  CHECK(server.LogIn({}).status == 401);
  CHECK(server.LogIn({{"authorization", "Bearer no"}}).status == 403);
  const Response response = server.LogIn(kRight);
  REQUIRE(response.status == 200);
  const std::string cookie(Find(response.headers, "Set-Cookie").value());
  CHECK(cookie.find("s3cret") == std::string::npos);
  CHECK(cookie.find("; HttpOnly; SameSite=Strict") != std::string::npos);
  CHECK(cookie.find("Secure") == std::string::npos);
  CHECK(Find(server.LogIn(kRight, true).headers, "Set-Cookie")->find("; Secure") !=
        std::string_view::npos);

  const std::string pair = cookie.substr(0, cookie.find(';'));
  CHECK(server.CredentialOf({{"cookie", "a=b; " + pair}}) == Credential::kCookie);
  CHECK(server.CredentialOf({{"cookie", pair + "0"}}) == Credential::kNone);
  CHECK(server.CredentialOf({{"cookie", "sheaf-session="}}) == Credential::kNone);
  server.clock.Advance(kSessionLife + kSecond);
  CHECK(server.CredentialOf({{"cookie", pair}}) == Credential::kNone);
}

TEST_CASE("a login is known to all servers that have its key, for as long as it lasts") {
  Fixture server("s3cret", "key"), next("s3cret", "key");
  const Response response = server.LogIn(kRight);
  const std::string cookie(Find(response.headers, "Set-Cookie").value());
  const std::string pair = cookie.substr(0, cookie.find(';'));
  CHECK(next.CredentialOf({{"cookie", pair}}) == Credential::kCookie);
  for (const char* key : {"another key", ""}) {
    INFO(key);
    CHECK(Fixture("s3cret", key).CredentialOf({{"cookie", pair}}) == Credential::kNone);
  }
  CHECK(Fixture("", "key").CredentialOf({{"cookie", pair}}) == Credential::kNone);
  // Nobody can make it last longer, or make another of it.
  const size_t begin = pair.find('=') + 1;
  for (size_t at = begin; at < pair.size(); ++at) {
    std::string other = pair;
    other[at] = other[at] == '1' ? '2' : '1';
    CHECK(next.CredentialOf({{"cookie", other}}) == Credential::kNone);
  }
  CHECK(next.CredentialOf({{"cookie", pair.substr(0, pair.size() - 1)}}) == Credential::kNone);
  next.clock.Advance(kSessionLife - kSecond);
  CHECK(next.CredentialOf({{"cookie", pair}}) == Credential::kCookie);
  next.clock.Advance(2 * kSecond);
  CHECK(next.CredentialOf({{"cookie", pair}}) == Credential::kNone);
}

TEST_CASE("servers on several ports of one host have cookies of their own") {
  Fixture server;
  const auto name = [&](const char* host) {
    Pairs headers = kRight;
    headers.emplace_back("host", host);
    const Response response = server.LogIn(headers);
    const std::string cookie(Find(response.headers, "Set-Cookie").value());
    CHECK(server.CredentialOf({{"host", host}, {"cookie", cookie.substr(0, cookie.find(';'))}}) ==
          Credential::kCookie);
    return cookie.substr(0, cookie.find('='));
  };
  CHECK(name("head:8265") == "sheaf-session-8265");
  CHECK(name("[::1]:80") == "sheaf-session-80");
  CHECK(name("head") == "sheaf-session");
  CHECK(name("[::1]") == "sheaf-session");
  CHECK(name("head:80;x=y") == "sheaf-session");
  CHECK(name("head:123456") == "sheaf-session");
}

TEST_CASE("what a browser says of its page is understood") {
  Fixture server;
  const auto identify = [&](Pairs headers, bool secure = false) {
    headers.emplace_back("host", "localhost:8265");
    const Request request{.headers = std::move(headers), .secure = secure};
    return server.authenticator.Identify(request, false, false);
  };
  CHECK_FALSE(identify({}).browser);
  CHECK(identify({}).host_known);
  CHECK(identify({{"user-agent", "Mozilla/5.0"}}).browser);
  CHECK(identify({{"referer", "x"}}).browser);
  CHECK(identify({{"sec-fetch-site", "cross-site"}}).cross_site);
  CHECK(identify({{"sec-fetch-site", "same-origin"}}).same_origin_fetch);
  CHECK_FALSE(identify({{"sec-fetch-site", "none"}}).cross_site);
  CHECK(identify({{"x-sheaf", "1"}}).page_header);
  CHECK(identify({{"origin", "http://localhost:8265"}}).origin == Origin::kSame);
  CHECK(identify({{"origin", "https://localhost:8265"}}, true).origin == Origin::kSame);
  CHECK(identify({{"origin", "https://localhost:8265"}}).origin == Origin::kSameHost);
  CHECK(identify({{"origin", "http://127.0.0.1:8265"}}).origin == Origin::kSameHost);
  CHECK(identify({{"origin", "http://localhost.evil:8265"}}).origin == Origin::kOther);
  CHECK(identify({{"origin", "null"}}).origin == Origin::kOther);
}

}  // namespace
}  // namespace sheaf::http
