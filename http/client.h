// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Questions to a server, this machine's or another's, in clear or by TLS.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/clock.h"

namespace sheaf::http {

// http[s]://HOST[:PORT][/PATH]; HOST is a name, an IPv4 address, or an IPv6 one in brackets.
struct Url {
  bool tls = false;
  std::string host;  // Without brackets.
  uint16_t port = 0;
  std::string target;  // The path and what follows; "/" where there is none.

  // This machine's own: "localhost", or a numeric address that reaches no other.
  bool is_loopback() const;
};
// kInvalidArgument: it is none, which the text says.
absl::StatusOr<Url> ParseUrl(std::string_view text);

struct Question {
  std::string method = "GET";
  std::vector<std::pair<std::string, std::string>> headers{};
  std::string body{};
};
struct Answer {
  int status = 0;
  std::string body;
  std::string retry_after;  // The header; "": none.
};

// Asks one question after the other, each over a connection of its own. Ask is for one thread.
class Client {
 public:
  // `authorities`: a PEM file with the certificates that a server's must come from; "": the
  // system's. kInvalidArgument: the file cannot be read.
  static absl::StatusOr<std::unique_ptr<Client>> Make(Url url, const std::string& authorities = "");
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  // An answer of at most 64 MiB, whatever its status. Blocks. kDeadlineExceeded: it was not there
  // within `timeout`. kUnavailable: no connection, or one that ended; a certificate that does not
  // prove the host. kCancelled: Cancel was called.
  absl::StatusOr<Answer> Ask(const Question& question, Nanos timeout);
  // Ends the Ask that is under way, and all later ones, at once. Any thread.
  void Cancel();

 private:
  class Parts;
  explicit Client(std::unique_ptr<Parts> parts);
  const std::unique_ptr<Parts> parts_;
};

}  // namespace sheaf::http
