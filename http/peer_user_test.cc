// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "http/peer_user.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <fstream>
#include <iterator>
#include <string>

#include "base/unique_fd.h"

namespace sheaf::http {
namespace {

// A connection within this process.
struct Connected {
  UniqueFd client, server;
  sockaddr_storage peer{}, own{};

  Connected() {
    const UniqueFd listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t bytes = sizeof(at);
    REQUIRE(bind(listener.get(), reinterpret_cast<sockaddr*>(&at), bytes) == 0);
    REQUIRE(listen(listener.get(), 1) == 0);
    REQUIRE(getsockname(listener.get(), reinterpret_cast<sockaddr*>(&at), &bytes) == 0);
    client.Reset(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    REQUIRE(connect(client.get(), reinterpret_cast<sockaddr*>(&at), bytes) == 0);
    bytes = sizeof(peer);
    server.Reset(accept(listener.get(), reinterpret_cast<sockaddr*>(&peer), &bytes));
    bytes = sizeof(own);
    REQUIRE(getsockname(server.get(), reinterpret_cast<sockaddr*>(&own), &bytes) == 0);
  }
};

std::string Table() {
  std::ifstream file("/proc/net/tcp");
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

TEST_CASE("a connection within this process belongs to its user") {
  const Connected connection;
  CHECK(UserOfPeer(connection.peer, connection.own) == geteuid());
  CHECK(UserInTable(Table(), connection.peer, connection.own) == geteuid());
  CHECK_FALSE(UserOfPeer(connection.own, connection.own).has_value());
}

TEST_CASE("who only listens at the address of a peer is not that peer") {
  const UniqueFd listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_storage listens{}, own{};
  auto& at = reinterpret_cast<sockaddr_in&>(listens);
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t bytes = sizeof(at);
  REQUIRE(bind(listener.get(), reinterpret_cast<sockaddr*>(&at), bytes) == 0);
  REQUIRE(listen(listener.get(), 1) == 0);
  REQUIRE(getsockname(listener.get(), reinterpret_cast<sockaddr*>(&at), &bytes) == 0);
  own = listens;
  reinterpret_cast<sockaddr_in&>(own).sin_port = htons(1);
  CHECK_FALSE(UserOfPeer(listens, own).has_value());
}

TEST_CASE("a peer that has closed its socket is nobody, and not root") {
  Connected connection;
  connection.client.Reset();
  CHECK_FALSE(UserOfPeer(connection.peer, connection.own).has_value());
  CHECK_FALSE(UserInTable(Table(), connection.peer, connection.own).has_value());
}

TEST_CASE("the user of a connection is read from the kernel's table") {
  const auto end = [](const char* address, uint16_t port) {
    sockaddr_storage storage{};
    auto& v4 = reinterpret_cast<sockaddr_in&>(storage);
    v4.sin_family = AF_INET;
    v4.sin_port = htons(port);
    inet_pton(AF_INET, address, &v4.sin_addr);
    return storage;
  };
  const std::string table =
      "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout "
      "inode\n"
      "   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  7  0 11 1\n"
      "   1: 0100007F:A001 0100007F:1F90 01 00000000:00000000 00:00000000 00000000  1000  0 12 1\n"
      "   2: 0100007F:A002 0100007F:1F90 08 00000000:00000000 00:00000000 00000000  0  0 0 1\n"
      "   3: broken\n";
  const sockaddr_storage own = end("127.0.0.1", 8080);
  CHECK(UserInTable(table, end("127.0.0.1", 0xA001), own) == 1000);
  CHECK_FALSE(UserInTable(table, end("127.0.0.1", 0xA002), own).has_value());  // No inode.
  CHECK_FALSE(UserInTable(table, end("127.0.0.1", 0xA003), own).has_value());
  CHECK_FALSE(UserInTable(table, end("127.0.0.2", 0xA001), own).has_value());
}

}  // namespace
}  // namespace sheaf::http
