// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "metrics/http_endpoint.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <string>
#include <thread>
#include <vector>

#include "base/testing/wait_until_for_test.h"
#include "base/unique_fd.h"
#include "metrics/counter.h"
#include "metrics/registry.h"

namespace sheaf::metrics {
namespace {

UniqueFd Connected(uint16_t port) {
  UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(port);
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (connect(fd.get(), reinterpret_cast<sockaddr*>(&to), sizeof(to)) != 0) fd.Reset();
  return fd;
}

// Sends `request` as it is and returns all that comes back.
std::string Exchange(uint16_t port, const std::string& request) {
  const UniqueFd fd = Connected(port);
  if (write(fd.get(), request.data(), request.size()) < 0) return "";
  std::string answer;
  char buffer[4096];
  ssize_t n;
  while ((n = read(fd.get(), buffer, sizeof(buffer))) > 0) answer.append(buffer, n);
  return answer;
}

std::string Get(uint16_t port, const std::string& headers = "Host: localhost\r\n",
                const std::string& path = "/metrics", const std::string& method = "GET") {
  return Exchange(port, method + " " + path + " HTTP/1.1\r\n" + headers + "\r\n");
}

std::string StatusLine(const std::string& answer) { return answer.substr(0, answer.find("\r\n")); }

struct Fixture {
  Registry registry{"test"};
  Page page{};
  std::unique_ptr<HttpEndpoint> endpoint;
  explicit Fixture(EndpointOptions options = {}) {
    registry.Add(page);
    auto started = HttpEndpoint::Start(options, registry, page);
    REQUIRE(started.ok());
    endpoint = std::move(*started);
  }
};

TEST_CASE("the endpoint serves the counters as text on a free loopback port") {
  Fixture node;
  Counter(node.page, CounterId::kTasksFinished).Add(42);
  CHECK(node.endpoint->port() != 0);
  CHECK(node.endpoint->url() ==
        "http://127.0.0.1:" + std::to_string(node.endpoint->port()) + "/metrics");
  const std::string answer = Get(node.endpoint->port());
  CHECK(StatusLine(answer) == "HTTP/1.1 200 OK");
  CHECK(answer.find("Content-Type: text/plain; version=0.0.4") != std::string::npos);
  CHECK(answer.find("\nsheaf_tasks_total{state=\"finished\"} 42") != std::string::npos);
  CHECK(answer.find("\n# TYPE sheaf_task_latency_seconds histogram") != std::string::npos);
}

TEST_CASE("two endpoints live in one process, and one that ends leaves the other") {
  Fixture first;
  {
    Fixture second;
    CHECK(second.endpoint->port() != first.endpoint->port());
  }
  CHECK(StatusLine(Get(first.endpoint->port())) == "HTTP/1.1 200 OK");
}

TEST_CASE("only requests that call this machine by a name of its own are answered") {
  Fixture node({.host_name = "Node7.example"});
  const uint16_t port = node.endpoint->port();
  for (const char* host :
       {"localhost", "LOCALHOST:99", "127.0.0.1:1", "[::1]:80", "node7.example:9"}) {
    INFO(host);
    CHECK(StatusLine(Get(port, std::string("Host: ") + host + "\r\n")) == "HTTP/1.1 200 OK");
  }
  for (const char* host :
       {"evil.example", "localhost.evil.example", "127.0.0.1.evil.example", ""}) {
    INFO(host);
    CHECK(StatusLine(Get(port, std::string("Host: ") + host + "\r\n")) == "HTTP/1.1 403 Forbidden");
  }
  CHECK(StatusLine(Get(port, "X-Other: 1\r\n")) == "HTTP/1.1 403 Forbidden");
  CHECK(StatusLine(Get(port, "Host: localhost\r\nOrigin: http://evil.example\r\n")) ==
        "HTTP/1.1 403 Forbidden");
  CHECK(StatusLine(Get(port, "Host: localhost\r\nOrigin: http://localhost:3000\r\n")) ==
        "HTTP/1.1 200 OK");
}

TEST_CASE("nothing but GET and HEAD of /metrics is there") {
  Fixture node;
  const uint16_t port = node.endpoint->port();
  const std::string host = "Host: localhost\r\n";
  CHECK(StatusLine(Get(port, host, "/")) == "HTTP/1.1 404 Not Found");
  CHECK(StatusLine(Get(port, host, "/metrics/../../etc/passwd")) == "HTTP/1.1 404 Not Found");
  for (const char* method : {"POST", "PUT", "DELETE", "OPTIONS"}) {
    CHECK(StatusLine(Get(port, host + "Content-Length: 0\r\n", "/metrics", method)) ==
          "HTTP/1.1 405 Method Not Allowed");
  }
  const std::string head = Get(port, host, "/metrics", "HEAD");
  CHECK(StatusLine(head) == "HTTP/1.1 200 OK");
  CHECK(head.ends_with("\r\n\r\n"));
}

TEST_CASE("malformed requests end their connection and nothing else") {
  Fixture node;
  const uint16_t port = node.endpoint->port();
  Exchange(port, "\r\n\r\n");
  Exchange(port, "GET\r\n\r\n");
  Exchange(port, std::string(100'000, 'A') + "\r\n\r\n");
  CHECK(StatusLine(Get(port)) == "HTTP/1.1 200 OK");
}

TEST_CASE("with a token, only requests that carry it are answered") {
  Fixture node({.token = "s3cret"});
  const uint16_t port = node.endpoint->port();
  CHECK(StatusLine(Get(port)) == "HTTP/1.1 401 Unauthorized");
  CHECK(StatusLine(Get(port, "Host: localhost\r\nAuthorization: Bearer wrong\r\n")) ==
        "HTTP/1.1 403 Forbidden");
  CHECK(StatusLine(Get(port, "Host: localhost\r\nAuthorization: Bearer s3cret\r\n")) ==
        "HTTP/1.1 200 OK");
}

TEST_CASE("what cannot be served safely, or at all, is refused at the start") {
  Registry registry("test");
  Page page{};
  CHECK(HttpEndpoint::Start({.address = "0.0.0.0"}, registry, page).status().code() ==
        absl::StatusCode::kInvalidArgument);
  CHECK(HttpEndpoint::Start({.address = "localhost"}, registry, page).status().code() ==
        absl::StatusCode::kInvalidArgument);
  Fixture node;
  CHECK(HttpEndpoint::Start({.port = node.endpoint->port()}, registry, page).status().code() ==
        absl::StatusCode::kUnavailable);
}

TEST_CASE("what is answered and who is connected is counted") {
  Fixture node;
  const auto counted = [&](CounterId id) { return node.page.counter(id).load(); };
  const auto open = [&] { return node.page.gauge(GaugeId::kHttpConnections).load(); };
  for (int i = 0; i < 3; ++i) Get(node.endpoint->port());
  Get(node.endpoint->port(), "Host: localhost\r\n", "/nothing");
  Exchange(node.endpoint->port(), "no request\r\n\r\n");
  CHECK(counted(CounterId::kHttpSucceeded) == 3);
  CHECK(counted(CounterId::kHttpRefused) == 2);
  CHECK(counted(CounterId::kHttpFailed) == 0);
  uint64_t timed = 0;
  for (const auto& bucket : node.page.histogram(HistogramId::kHttpAnswer).buckets) timed += bucket;
  CHECK(timed == 5);
  REQUIRE(WaitUntil(20 * kSecond, [&] { return open() == 0; }));
  const std::vector<UniqueFd> held = [&] {
    std::vector<UniqueFd> all;
    for (int i = 0; i < 256; ++i) all.push_back(Connected(node.endpoint->port()));
    return all;
  }();
  REQUIRE(WaitUntil(20 * kSecond, [&] { return open() == 256; }));
  const UniqueFd one_more = Connected(node.endpoint->port());
  CHECK(WaitUntil(20 * kSecond, [&] { return counted(CounterId::kHttpTurnedAway) == 1; }));
}

TEST_CASE("many readers at once are all served") {
  Fixture node;
  std::vector<std::thread> readers;
  std::atomic<int> served = 0;
  for (int t = 0; t < 8; ++t) {
    readers.emplace_back([&] {
      for (int i = 0; i < 10; ++i)
        served += StatusLine(Get(node.endpoint->port())) == "HTTP/1.1 200 OK";
    });
  }
  for (std::thread& reader : readers) reader.join();
  CHECK(served == 80);
}

}  // namespace
}  // namespace sheaf::metrics
