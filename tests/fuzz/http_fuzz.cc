// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Bytes from the network at the HTTP server: its parser and the checks behind it, by the endpoint of
// metrics; and the same bytes as a request's target, as a path for the router, and as JSON.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "base/check.h"
#include "http/json.h"
#include "http/router.h"
#include "http/target.h"
#include "metrics/http_endpoint.h"
#include "metrics/own_page.h"
#include "prometheus/metric_family.h"
#include "tests/fuzz/fuzz_target.h"

using namespace sheaf;

namespace {

constexpr char kToken[] = "a-secret";

struct NoFigures final : prometheus::Collectable {
  std::vector<prometheus::MetricFamily> Collect() const override { return {}; }
};

uint16_t Start(const std::string& token) {
  // They serve until the process has ended, after statics have.
  static const auto& figures = *new NoFigures;
  static auto& counts = *new metrics::OwnPage;
  static auto& endpoints = *new std::vector<std::unique_ptr<metrics::HttpEndpoint>>;
  auto endpoint = metrics::HttpEndpoint::Start(
      {.address = "127.0.0.1", .port = 0, .host_name = "here", .token = token}, figures,
      counts.page());
  SHEAF_CHECK(endpoint.ok(), "the endpoint starts");
  endpoints.push_back(*std::move(endpoint));
  return endpoints.back()->port();
}

// What the endpoint at `port` answers to `request`, which nothing follows.
std::string Ask(uint16_t port, const std::string& request) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const timeval bound{20, 0};  // The endpoint gives a request 5 s.
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &bound, sizeof bound);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(port);
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  std::string reply;
  if (connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0) {
    // It may close before it has read everything.
    (void)!send(fd, request.data(), request.size(), MSG_NOSIGNAL);
    shutdown(fd, SHUT_WR);
    char part[4096];
    ssize_t got = 0;
    while ((got = recv(fd, part, sizeof part, 0)) > 0) reply.append(part, static_cast<size_t>(got));
    FUZZ_CHECK(got == 0 || errno == ECONNRESET);  // Not the bound.
  }
  close(fd);
  return reply;
}

void Parse(const std::string& bytes) {
  static const http::Router router = [] {
    http::Router made;
    for (const char* pattern : {"/", "/api/jobs/{id}/logs", "/files/{path*}"}) {
      made.Add({.method = "GET",
                .pattern = pattern,
                .handler = [](const http::Request&, const http::Reply&) {}});
    }
    return made;
  }();
  if (const auto target = http::ParseTarget(bytes); target.ok()) {
    FUZZ_CHECK(target->query.size() <= http::kMaxQueryPairs);
    const http::Router::Match match = router.Find("GET", target->segments);
    for (const auto& [name, value] : match.captures) {
      FUZZ_CHECK(!absl::StrContains(value, std::string(1, '\0')));
    }
  }
  if (http::ParseJson(bytes).ok()) FUZZ_CHECK(!bytes.empty());
}

std::string Request(const std::string& line, const std::string& headers) {
  return line + " HTTP/1.1\r\n" + headers + "\r\n";
}

}  // namespace

std::vector<std::string> fuzz::Seeds() {
  const std::string token = std::string("Authorization: Bearer ") + kToken + "\r\n";
  return {Request("GET /metrics", "Host: 127.0.0.1:80\r\n" + token),
          Request("HEAD /metrics?name=x", "Host: [::1]:1\r\n" + token),
          Request("GET /metrics", "Host: here\r\nOrigin: http://localhost:3\r\n" + token),
          Request("GET /metrics", "Host: evil.example\r\n" + token),
          Request("GET http://here/%6detrics", "Host: HERE\r\n" + token),
          Request("POST /metrics", "Host: here\r\nTransfer-Encoding: chunked\r\n" + token) +
              "5\r\nabcde\r\n0\r\n\r\n",
          Request("GET /../etc/passwd", "Host: localhost\r\nContent-Length: 9999999999\r\n"),
          "/api/jobs/a%2Fb/logs?limit=1&filter_keys=state&filter_values=%C3%BC+x",
          "/files/a/../b%00",
          R"({"entrypoint":"python \u00fc.py","metadata":{"a":[1,2.5e3,null,true]}})"};
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string request(reinterpret_cast<const char*>(data), size);
  Parse(request);
  static const uint16_t with_token = Start(kToken);
  static const uint16_t without = Start("");
  const std::string lower = absl::AsciiStrToLower(request);
  // Only who knows the token hears a figure.
  if (absl::StartsWith(Ask(with_token, request), "HTTP/1.1 200"))
    FUZZ_CHECK(absl::StrContains(request, kToken));
  // Where there is none, only who calls us by one of our names.
  if (absl::StartsWith(Ask(without, request), "HTTP/1.1 200")) {
    FUZZ_CHECK(absl::StrContains(lower, "host"));
    FUZZ_CHECK(absl::StrContains(lower, "localhost") || absl::StrContains(lower, "127.0.0.1") ||
               absl::StrContains(lower, "[::1]") || absl::StrContains(lower, "here"));
    FUZZ_CHECK(lower[0] == 'g' || lower[0] == 'h' || absl::ascii_isspace(lower[0]));
  }
  static uint64_t inputs = 0;
  if (++inputs % 64 == 0) {  // It still serves.
    FUZZ_CHECK(absl::StartsWith(Ask(without, fuzz::Seeds()[0]), "HTTP/1.1 200"));
    // By now this address may have shown too many wrong tokens.
    FUZZ_CHECK(absl::StartsWith(Ask(with_token, fuzz::Seeds()[0]), "HTTP/1.1 "));
  }
  return 0;
}
