// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The other end of a server, for tests.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <string>
#include <string_view>

#include "base/unique_fd.h"

namespace sheaf::http {

// A connection that says what the test wants, and hears whatever comes.
class Client {
 public:
  explicit Client(uint16_t port) : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const timeval bound{20, 0};
    setsockopt(fd_.get(), SOL_SOCKET, SO_RCVTIMEO, &bound, sizeof(bound));
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(port);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    REQUIRE(connect(fd_.get(), reinterpret_cast<sockaddr*>(&to), sizeof(to)) == 0);
  }
  void Send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return;  // The server has said enough.
      bytes.remove_prefix(static_cast<size_t>(sent));
    }
  }
  // What comes until `end` has come, or the server closes.
  std::string Read(std::string_view end = {}) {
    std::string text;
    char byte[4096];
    while (end.empty() || text.find(end) == std::string::npos) {
      const ssize_t got = recv(fd_.get(), byte, end.empty() ? sizeof(byte) : 1, 0);
      if (got <= 0) break;
      text.append(byte, static_cast<size_t>(got));
    }
    return text;
  }
  void Close() { fd_.Reset(); }
  int fd() const { return fd_.get(); }

 private:
  UniqueFd fd_;
};

// Of an answer as it came; 0: it is none.
inline int StatusOf(const std::string& answer) {
  return answer.starts_with("HTTP/1.1 ") ? std::stoi(answer.substr(9, 3)) : 0;
}

}  // namespace sheaf::http
