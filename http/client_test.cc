// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "http/client.h"

#include <catch2/catch.hpp>
#include <fstream>
#include <thread>

#include "base/testing/scratch_directory_for_test.h"
#include "http/certificate_for_test.h"
#include "http/server.h"

namespace sheaf::http {
namespace {

// Says what it was asked.
std::unique_ptr<Server> Echo(ServerOptions options = {}, std::vector<Reply>* kept = nullptr) {
  Router router;
  router.Add(
      {.method = "POST",
       .pattern = "/echo",
       .right = Right::kOpen,
       .handler = [](const Request& request,
                     const Reply& reply) { reply.Send({.status = 202, .body = request.body}); },
       .body = Body::kMemory});
  router.Add({.method = "POST",
              .pattern = "/late",
              .right = Right::kOpen,
              .handler =
                  [kept](const Request&, const Reply& reply) {
                    if (kept != nullptr) kept->push_back(reply);
                  },
              .body = Body::kMemory});
  auto started = Server::Start(std::move(options), std::move(router));
  REQUIRE(started.ok());
  return *std::move(started);
}

std::unique_ptr<Client> ClientOf(const std::string& url, const std::string& authorities = "") {
  auto parsed = ParseUrl(url);
  REQUIRE(parsed.ok());
  auto client = Client::Make(*std::move(parsed), authorities);
  REQUIRE(client.ok());
  return *std::move(client);
}

constexpr Nanos kLong = 20 * kSecond;

SCENARIO("a question has a body, and its answer a status; one client asks many") {
  const auto server = Echo();
  const auto client = ClientOf(server->url() + "/echo");
  for (const std::string& body : {std::string("one"), std::string(100'000, 'x')}) {
    const auto answer = client->Ask({"POST", {{"Content-Type", "text/plain"}}, body}, kLong);
    REQUIRE(answer.ok());
    CHECK(answer->status == 202);
    CHECK(answer->body == body);
  }
  CHECK(ClientOf(server->url() + "/absent")->Ask({"POST", {}, "x"}, kLong)->status == 404);
}

SCENARIO("a server is believed that shows a certificate of its name and of a known authority") {
  const Pair pair = SelfSigned();
  const auto server = Echo({.tls = {.certificate = pair.certificate, .key = pair.key}});
  ScratchDirectory directory;
  const std::string known = directory.path() + "/known.pem";
  const std::string other = directory.path() + "/other.pem";
  std::ofstream(known) << pair.certificate;
  std::ofstream(other) << SelfSigned().certificate;
  const std::string port = std::to_string(server->port());
  const Question question{"POST", {}, "hush"};
  const auto answer = ClientOf("https://localhost:" + port + "/echo", known)->Ask(question, kLong);
  REQUIRE(answer.ok());
  CHECK(answer->body == "hush");
  CHECK(absl::IsUnavailable(
      ClientOf("https://127.0.0.1:" + port + "/echo", known)->Ask(question, kLong).status()));
  CHECK(absl::IsUnavailable(
      ClientOf("https://localhost:" + port + "/echo", other)->Ask(question, kLong).status()));
  CHECK(absl::IsUnavailable(
      ClientOf("https://localhost:" + port + "/echo")->Ask(question, kLong).status()));
  CHECK(absl::IsInvalidArgument(
      Client::Make(*ParseUrl("https://localhost"), directory.path() + "/absent").status()));
}

SCENARIO("whoever waits for an answer is freed at once, and asks no more") {
  std::vector<Reply> kept;
  const auto server = Echo({}, &kept);
  const auto client = ClientOf(server->url() + "/late");
  std::thread canceller([&] { client->Cancel(); });
  CHECK(absl::IsCancelled(client->Ask({"POST", {}, "x"}, kLong).status()));
  canceller.join();
  CHECK(absl::IsCancelled(client->Ask({"POST", {}, "x"}, kLong).status()));
  CHECK(absl::IsDeadlineExceeded(
      ClientOf(server->url() + "/late")->Ask({"POST", {}, "x"}, 50 * kMillisecond).status()));
}

SCENARIO("a host that nobody knows is an error") {
  CHECK(absl::IsUnavailable(ClientOf("http://no-such-host.invalid:1")->Ask({}, kLong).status()));
}

SCENARIO("a URL says where, and whether by TLS") {
  const auto plain = ParseUrl("http://collector:4318");
  REQUIRE(plain.ok());
  CHECK((plain->host == "collector" && plain->port == 4318 && plain->target == "/" && !plain->tls));
  const auto secure = ParseUrl("https://[2001:db8::1]/v1/traces?x=1");
  REQUIRE(secure.ok());
  CHECK((secure->host == "2001:db8::1" && secure->port == 443 && secure->tls));
  CHECK(secure->target == "/v1/traces?x=1");
  for (const char* own : {"http://localhost:1", "http://127.0.0.2", "http://[::1]:4318/x"})
    CHECK(ParseUrl(own)->is_loopback());
  for (const char* others : {"http://10.0.0.1", "http://localhost.evil.org", "http://[::2]"})
    CHECK(!ParseUrl(others)->is_loopback());
}

}  // namespace
}  // namespace sheaf::http
