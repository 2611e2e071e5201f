// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "http/server.h"

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "base/testing/scratch_directory_for_test.h"
#include "base/testing/wait_until_for_test.h"
#include "http/client_for_test.h"

namespace sheaf::http {
namespace {

constexpr Nanos kLong = 20 * kSecond;
constexpr char kHost[] = "Host: localhost\r\n";

// What a test wants of a server: some routes, and what they saw.
struct Fixture {
  ScratchDirectory directory;
  Mutex mutex;
  std::vector<Reply> kept;  // Of /later.
  std::vector<std::shared_ptr<Stream>> streams;
  std::vector<std::shared_ptr<const TemporaryFile>> files;
  std::unique_ptr<Server> server;

  explicit Fixture(ServerOptions options = {}) {
    Router router;
    const auto add = [&](const char* method, const char* path, Body body, Handler handler) {
      router.Add({.method = method,
                  .pattern = path,
                  .right = std::string_view(method) == "GET" ? Right::kRead : Right::kChange,
                  .handler = std::move(handler),
                  .body = body});
    };
    add("GET", "/echo/{what}", Body::kNone, [](const Request& request, const Reply& reply) {
      reply.Send({.body = std::string(request.Capture("what"))});
    });
    add("POST", "/length", Body::kMemory, [](const Request& request, const Reply& reply) {
      reply.Send({.body = std::to_string(request.body.size())});
    });
    add("PUT", "/file", Body::kFile, [this](const Request& request, const Reply& reply) {
      files.push_back(request.body_file);
      reply.Send({.body = std::to_string(std::filesystem::file_size(request.body_file->path()))});
    });
    add("GET", "/throws", Body::kNone,
        [](const Request&, const Reply&) { throw std::runtime_error("no"); });
    add("GET", "/silent", Body::kNone, [](const Request&, const Reply&) {});
    add("GET", "/later", Body::kNone, [this](const Request&, const Reply& reply) {
      const MutexLock lock(mutex);
      kept.push_back(reply);
    });
    add("GET", "/stream", Body::kNone, [this](const Request&, const Reply& reply) {
      const MutexLock lock(mutex);
      streams.push_back(reply.Open({.content_type = "text/event-stream"}));
    });
    router.Add({.method = "GET",
                .pattern = "/socket",
                .handler =
                    [this](const Request&, const Reply& reply) {
                      const MutexLock lock(mutex);
                      streams.push_back(reply.Open({}));
                    },
                .web_socket = true});
    router.Add(
        {.method = "GET",
         .pattern = "/healthz",
         .right = Right::kOpen,
         .handler = [](const Request&, const Reply& reply) { reply.Send({.body = "success"}); }});
    options.spool_directory = directory.path();
    auto started = Server::Start(std::move(options), std::move(router));
    REQUIRE(started.ok());
    server = std::move(*started);
  }
  ~Fixture() { server.reset(); }

  std::string Ask(const std::string& line, const std::string& headers = kHost,
                  const std::string& body = "") const {
    Client client(server->port());
    client.Send(line + " HTTP/1.1\r\nConnection: close\r\n" + headers + "\r\n" + body);
    return client.Read();
  }
  std::shared_ptr<Stream> AwaitStream() {
    std::shared_ptr<Stream> stream;
    REQUIRE(WaitUntil(kLong, [&] {
      const MutexLock lock(mutex);
      if (!streams.empty()) stream = streams.front();
      return stream != nullptr;
    }));
    const MutexLock lock(mutex);
    streams.clear();
    return stream;
  }
};

TEST_CASE("requests are answered one after the other on one connection") {
  Fixture fixture;
  Client client(fixture.server->port());
  client.Send(std::string("GET /echo/one HTTP/1.1\r\n") + kHost + "\r\nGET /echo/two HTTP/1.1\r\n" +
              kHost + "\r\n");
  const std::string first = client.Read("\r\n\r\none"), second = client.Read("\r\n\r\ntwo");
  CHECK(StatusOf(first) == 200);
  CHECK(StatusOf(second) == 200);
  client.Send(std::string("HEAD /echo/three HTTP/1.1\r\nConnection: close\r\n") + kHost + "\r\n");
  const std::string head = client.Read();
  CHECK(head.find("Content-Length: 5\r\n") != std::string::npos);
  CHECK(head.ends_with("\r\n\r\n"));
  CHECK(fixture.server->url() == "http://127.0.0.1:" + std::to_string(fixture.server->port()));
}

TEST_CASE("every answer says what a browser may do with it") {
  const Fixture fixture;
  for (const char* line : {"GET /echo/x", "GET /nothing"}) {
    const std::string answer = fixture.Ask(line);
    for (const char* header :
         {"Content-Security-Policy: default-src 'none'", "X-Content-Type-Options: nosniff",
          "Referrer-Policy: no-referrer", "Cross-Origin-Resource-Policy: same-origin",
          "Cache-Control: no-store"}) {
      INFO(header);
      CHECK(answer.find(header) != std::string::npos);
    }
    CHECK(answer.find("Access-Control") == std::string::npos);
  }
}

TEST_CASE("what cannot be answered is refused with a sentence") {
  Fixture fixture;
  const std::string long_line = "GET /" + std::string(9000, 'a');
  const std::string chunks = "Transfer-Encoding: chunked\r\n";
  CHECK(StatusOf(fixture.Ask("GET /nothing")) == 404);
  const std::string wrong_method = fixture.Ask("DELETE /echo/x");
  CHECK(StatusOf(wrong_method) == 405);
  CHECK(wrong_method.find("Allow: GET, HEAD\r\n") != std::string::npos);
  CHECK(StatusOf(fixture.Ask(long_line)) == 414);
  CHECK(StatusOf(fixture.Ask("GET /%zz")) == 400);
  CHECK(StatusOf(fixture.Ask("GET /echo/x", std::string(kHost) + kHost)) == 400);
  CHECK(StatusOf(fixture.Ask("GET /echo/x", "Host: evil.example\r\n")) == 403);
  CHECK(StatusOf(fixture.Ask("GET /echo/x", "X: " + std::string(20'000, 'a') + "\r\n")) == 431);
  CHECK(StatusOf(fixture.Ask("GET /socket")) == 400);
  CHECK(StatusOf(fixture.Ask("POST /length", std::string(kHost) + "Content-Length: 1048577\r\n")) ==
        413);
  CHECK(StatusOf(fixture.Ask("POST /length", kHost + chunks, "zz\r\n")) == 400);
  CHECK(StatusOf(fixture.Ask("GET /throws")) == 500);
  CHECK(StatusOf(fixture.Ask("GET /silent")) == 500);
  for (const char* garbage :
       {"\r\n\r\n", "GET\r\n\r\n", "\x16\x03\x01", "GET / HTTP/9.9\r\n\r\n"}) {
    Client client(fixture.server->port());
    client.Send(garbage);
    client.Close();
  }
  CHECK(StatusOf(fixture.Ask("GET /echo/x")) == 200);
}

TEST_CASE("bodies reach their handler: in memory, in pieces, and as a file") {
  Fixture fixture;
  const std::string text(100'000, 'b');
  const std::string length = std::string(kHost) + "Content-Length: 100000\r\n";
  CHECK(fixture.Ask("POST /length", length, text).ends_with("\r\n\r\n100000"));
  CHECK(fixture
            .Ask("POST /length", std::string(kHost) + "Transfer-Encoding: chunked\r\n",
                 "3\r\nabc\r\n4\r\ndefg\r\n0\r\n\r\n")
            .ends_with("\r\n\r\n7"));
  CHECK(fixture.Ask("PUT /file", length, text).ends_with("\r\n\r\n100000"));
  REQUIRE(fixture.files.size() == 1);
  const std::string path = fixture.files[0]->path();
  std::ifstream file(path);
  CHECK(std::string(std::istreambuf_iterator<char>(file), {}) == text);
  fixture.files.clear();
  CHECK_FALSE(std::filesystem::exists(path));
}

TEST_CASE("who asks first whether a body is wanted hears so") {
  Fixture fixture;
  Client client(fixture.server->port());
  client.Send(
      std::string("POST /length HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 3\r\n") +
      kHost + "\r\n");
  CHECK(client.Read("\r\n\r\n").starts_with("HTTP/1.1 100 Continue"));
  client.Send("abc");
  CHECK(client.Read("\r\n\r\n3").find("200 OK") != std::string::npos);
}

TEST_CASE("a body that is over its bound is not read, and its sender still hears why") {
  Fixture fixture({.limits = {.file_bytes = 10'000}});
  const std::string chunked = std::string(kHost) + "Transfer-Encoding: chunked\r\n";
  std::string body;
  for (int i = 0; i < 10; ++i) body += "2710\r\n" + std::string(10'000, 'x') + "\r\n";
  CHECK(StatusOf(fixture.Ask("PUT /file", chunked, body)) == 413);
  CHECK(fixture.files.empty());
  CHECK(std::filesystem::is_empty(fixture.directory.path()));
}

TEST_CASE("who is slow with header or body is told so") {
  Fixture fixture(
      {.limits = {.header_time = 100 * kMillisecond, .stall_time = 100 * kMillisecond}});
  Client header(fixture.server->port());
  header.Send("GET /echo/x HT");
  CHECK(StatusOf(header.Read()) == 408);
  Client body(fixture.server->port());
  body.Send(std::string("POST /length HTTP/1.1\r\nContent-Length: 10\r\n") + kHost + "\r\nabc");
  CHECK(StatusOf(body.Read()) == 408);
}

TEST_CASE("connections beyond the bound are turned away, and those there are served") {
  Fixture fixture({.limits = {.connections = 2}});
  Client one(fixture.server->port()), two(fixture.server->port());
  const std::string ask = std::string("GET /echo/x HTTP/1.1\r\n") + kHost + "\r\n";
  one.Send(ask);
  two.Send(ask);
  CHECK(StatusOf(one.Read("\r\n\r\nx")) == 200);
  CHECK(StatusOf(two.Read("\r\n\r\nx")) == 200);
  Client three(fixture.server->port());
  const std::string refusal = three.Read();
  CHECK(StatusOf(refusal) == 429);
  CHECK(refusal.ends_with(
      "Content-Length: 25\r\nConnection: close\r\n\r\nToo many are connected.\r\n"));
  one.Close();
  CHECK(WaitUntil(kLong, [&] { return StatusOf(fixture.Ask("GET /echo/x")) == 200; }));
}

TEST_CASE("an answer may come later and from another thread; the server ends meanwhile, too") {
  Fixture fixture;
  Client client(fixture.server->port());
  client.Send(std::string("GET /later HTTP/1.1\r\n") + kHost + "\r\n");
  REQUIRE(WaitUntil(kLong, [&] {
    const MutexLock lock(fixture.mutex);
    return fixture.kept.size() == 1;
  }));
  CHECK(fixture.server->IdleFor() == 0);
  std::thread([&] { fixture.kept[0].Send({.body = "at last"}); }).join();
  CHECK(client.Read("at last").starts_with("HTTP/1.1 200"));
  fixture.kept[0].Send({.body = "again"});  // Counts for nothing.
  CHECK(WaitUntil(kLong, [&] { return fixture.server->IdleFor() > 0; }));

  client.Send(std::string("GET /later HTTP/1.1\r\n") + kHost + "\r\n");
  REQUIRE(WaitUntil(kLong, [&] {
    const MutexLock lock(fixture.mutex);
    return fixture.kept.size() == 2;
  }));
  fixture.server.reset();
  CHECK(client.Read().empty());
  fixture.kept[1].Send({.body = "too late"});
}

TEST_CASE("a stream sends what is written as it comes, and its end") {
  Fixture fixture;
  Client client(fixture.server->port());
  client.Send(std::string("GET /stream HTTP/1.1\r\n") + kHost + "\r\n");
  const std::shared_ptr<Stream> stream = fixture.AwaitStream();
  CHECK(stream->Write("first"));
  const std::string head = client.Read("first\r\n");
  CHECK(head.find("Content-Type: text/event-stream") != std::string::npos);
  CHECK(head.find("Transfer-Encoding: chunked") != std::string::npos);
  CHECK(stream->Write("second"));
  stream->Close(1000, "");
  CHECK_FALSE(stream->Write("third"));
  CHECK(client.Read() == "6\r\nsecond\r\n0\r\n\r\n");
}

TEST_CASE("a stream whose writer gives up ends without the end of its body") {
  Fixture fixture;
  Client client(fixture.server->port());
  client.Send(std::string("GET /stream HTTP/1.1\r\n") + kHost + "\r\n");
  std::shared_ptr<Stream> stream = fixture.AwaitStream();
  CHECK(stream->Write("first"));
  stream.reset();
  CHECK_FALSE(client.Read().ends_with("0\r\n\r\n"));
}

TEST_CASE("a viewer that does not read is not waited for, and one that goes is noticed") {
  Fixture fixture;
  Client client(fixture.server->port());
  client.Send(std::string("GET /stream HTTP/1.1\r\n") + kHost + "\r\n");
  const std::shared_ptr<Stream> stream = fixture.AwaitStream();
  std::atomic<int> changes = 0;
  stream->OnChange([&] { ++changes; });
  const std::string part(64 * 1024, 'p');
  uint64_t sent = 0;
  for (int full = 0; full < 50 && sent < (1u << 28);) {
    if (stream->Write(part)) {
      sent += part.size();
      full = 0;
    } else {
      ++full;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  }
  CHECK(sent < (1u << 28));
  uint64_t read = 0;
  while (read < sent / 2) read += client.Read("pppppppp").size();
  CHECK(WaitUntil(kLong, [&] { return changes > 0; }));
  CHECK(stream->Write(part));
  client.Close();
  CHECK(WaitUntil(kLong, [&] { return !stream->open(); }));
  CHECK_FALSE(stream->Write(part));
}

TEST_CASE("a viewer of what goes on may stop reading for as long as it likes, and misses nothing") {
  Fixture fixture({.limits = {.stall_time = 50 * kMillisecond, .bytes_per_second = 1 << 30}});
  Client client(fixture.server->port());
  client.Send(std::string("GET /stream HTTP/1.1\r\n") + kHost + "\r\n");
  const std::shared_ptr<Stream> stream = fixture.AwaitStream();
  const std::string part(64 * 1024, 'p');
  uint64_t sent = 0;
  for (int full = 0; full < 50;) {
    REQUIRE(sent < (1u << 28));
    if (stream->Write(part)) {
      sent += part.size();
      full = 0;
    } else {  // Twice the time in which an answer with an end has to go on, at the least.
      ++full;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  }
  CHECK(stream->open());
  stream->Close(1000, "");
  const std::string answer = client.Read();
  CHECK(static_cast<uint64_t>(std::count(answer.begin(), answer.end(), 'p')) >= sent);
  CHECK(answer.ends_with("0\r\n\r\n"));
}

TEST_CASE("more streams than the bound are refused") {
  Fixture fixture({.limits = {.streams = 1}});
  Client first(fixture.server->port());
  first.Send(std::string("GET /stream HTTP/1.1\r\n") + kHost + "\r\n");
  CHECK(StatusOf(first.Read("\r\n\r\n")) == 200);
  CHECK(StatusOf(fixture.Ask("GET /stream")) == 429);
}

constexpr char kUpgrade[] =
    "GET /socket HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";

TEST_CASE("a WebSocket sends messages, mends what is not UTF-8, and says why it closes") {
  Fixture fixture;
  Client client(fixture.server->port());
  client.Send(std::string(kUpgrade) + "\r\n");
  const std::shared_ptr<Stream> stream = fixture.AwaitStream();
  CHECK(stream->Write("text\xff"));
  stream->Close(1000, "done");
  const std::string answer = client.Read("done");
  CHECK(StatusOf(answer) == 101);
  CHECK(answer.find("s3pPLMBiTxaQ9kYGzzhZRbK+xOo=") != std::string::npos);
  CHECK(answer.find("\x81\x07text\xEF\xBF\xBD\x88\x06\x03\xE8"
                    "done") != std::string::npos);
  client.Send(std::string("\x88\x82\0\0\0\0\x03\xE8", 8));
  CHECK(client.Read().empty());
}

TEST_CASE("a server ends at once although streams and WebSockets are open") {
  Fixture fixture;
  Client socket(fixture.server->port()), stream(fixture.server->port());
  socket.Send(std::string(kUpgrade) + "\r\n");
  const std::shared_ptr<Stream> messages = fixture.AwaitStream();
  CHECK(StatusOf(socket.Read("\r\n\r\n")) == 101);
  stream.Send(std::string("GET /stream HTTP/1.1\r\n") + kHost + "\r\n");
  const std::shared_ptr<Stream> bytes = fixture.AwaitStream();
  CHECK(StatusOf(stream.Read("\r\n\r\n")) == 200);
  const Nanos begin = MonotonicNow();
  fixture.server.reset();
  CHECK(MonotonicNow() - begin < 5 * kSecond);
  CHECK_FALSE(messages->open());
  CHECK_FALSE(bytes->Write("too late"));
  CHECK(socket.Read().empty());
}

TEST_CASE("a page from elsewhere gets no WebSocket") {
  Fixture fixture;
  for (const char* origin : {"http://evil.example", "http://localhost:3000"}) {
    Client client(fixture.server->port());
    client.Send(std::string(kUpgrade) + "Origin: " + origin + "\r\n\r\n");
    CHECK(StatusOf(client.Read("\r\n\r\n")) == 403);
  }
}

TEST_CASE("a token is wanted beyond loopback, and a wrong one is heard ten times a minute") {
  Fixture fixture({.address = "0.0.0.0",
                   .token = "s3cret",
                   .access = {.trust = Trust::kTokenOnly},
                   .login = true});
  const std::string host = kHost;
  CHECK(StatusOf(fixture.Ask("GET /echo/x")) == 401);
  CHECK(StatusOf(fixture.Ask("GET /healthz")) == 200);
  CHECK(
      fixture.Ask("GET /api/authentication_mode").ends_with(R"({"authentication_mode":"token"})"));
  const std::string right = host + "Authorization: Bearer s3cret\r\n";
  CHECK(StatusOf(fixture.Ask("GET /echo/x", right)) == 200);
  const std::string login = fixture.Ask("POST /api/authenticate", right);
  const size_t cookie = login.find("sheaf-session=");
  REQUIRE(cookie != std::string::npos);
  const std::string session = "Cookie: " + login.substr(cookie, login.find(';', cookie) - cookie);
  CHECK(StatusOf(fixture.Ask("GET /echo/x", host + session + "\r\n")) == 200);
  CHECK(StatusOf(fixture.Ask("POST /length", host + session + "\r\nContent-Length: 0\r\n")) == 403);
  for (int i = 0; i < 10; ++i) {
    CHECK(StatusOf(fixture.Ask("GET /echo/x", host + "Authorization: Bearer no\r\n")) == 403);
  }
  CHECK(StatusOf(fixture.Ask("GET /echo/x", host + "Authorization: Bearer no\r\n")) == 429);
  CHECK(StatusOf(fixture.Ask("GET /echo/x", host + "Authorization: Bearer nay\r\n")) == 403);
  CHECK(StatusOf(fixture.Ask("GET /echo/x", right)) == 200);
  CHECK(StatusOf(fixture.Ask("GET /healthz")) == 200);
}

TEST_CASE("what cannot be served safely, or at all, is refused at the start") {
  const auto start = [](ServerOptions options) {
    return Server::Start(std::move(options), Router()).status().code();
  };
  CHECK(start({.address = "0.0.0.0"}) == absl::StatusCode::kFailedPrecondition);
  CHECK(start({.address = "0.0.0.0", .token = "x"}) == absl::StatusCode::kInvalidArgument);
  CHECK(start({.address = "localhost"}) == absl::StatusCode::kInvalidArgument);
  CHECK(start({.tls = {.certificate = "no PEM", .key = "nor this"}}) ==
        absl::StatusCode::kInvalidArgument);
  CHECK(Server::Check({.address = "0.0.0.0"}).code() == absl::StatusCode::kFailedPrecondition);
  CHECK(Server::Check({}).ok());
  const Fixture taken;
  CHECK(start({.port = taken.server->port()}) == absl::StatusCode::kUnavailable);
  auto next = Server::Start({.port = taken.server->port(), .ports = 20}, Router());
  REQUIRE(next.ok());
  CHECK((*next)->port() > taken.server->port());
}

}  // namespace
}  // namespace sheaf::http
