// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// By what a request is known: token, cookie of a login, certificate, or the user of its socket.
// Not thread-safe: the server's thread alone asks.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/clock.h"
#include "http/access.h"
#include "http/message.h"
#include "http/router.h"

namespace sheaf::http {

// "127.0.0.1:80" -> "127.0.0.1", "[::1]:80" -> "[::1]", in lower case.
std::string HostOf(std::string_view host_and_port);

inline constexpr std::string_view kSessionCookie = "sheaf-session";  // And "-", and the port.
inline constexpr Nanos kSessionLife = 12 * 3600 * kSecond;
inline constexpr int kWrongTokensPerMinute = 10;  // The same one, of one address; then 429.
inline constexpr size_t kMaxWatchedTokens = 1024;

inline constexpr std::string_view kTooManyWrong =
    "This wrong token has come from this address too often; try again in a minute.";

class Authenticator {
 public:
  // `hosts`: names by which requests may call this server, lower case, without port. `token`:
  // empty: there is none. `session_key`: whoever has it knows the logins of the others that do;
  // empty: logins end with this object.
  Authenticator(std::vector<std::string> hosts, std::string token, std::string session_key,
                const Clock& clock);

  // What `request` shows of its caller; all but `trusted_user`, which needs the socket.
  Caller Identify(const Request& request, bool web_socket, bool has_certificate);
  // Whether the token that `request` shows is wrong, and has been shown by its address so often that
  // it is not looked at for the rest of a minute. Who shares the address is not concerned.
  bool Blocked(const Request& request);

  // POST /api/authenticate, which gives a cookie for the token, and GET /api/authentication_mode.
  // `router` may call this object as long as requests come.
  void AddRoutes(Router& router);

 private:
  Credential CredentialOf(const Request& request);
  bool KnownHost(std::string_view host_and_port) const;
  Origin OriginOf(const Request& request) const;
  using Shown = std::pair<std::string, uint64_t>;  // An address, and the hash of a token.
  void CountWrong(const std::string& address, std::string_view token);
  Response LogIn(const Request& request);
  // When it ends, a number that no other has, and what only the key can make of the two: nobody needs
  // to remember it.
  std::string NewSession() const;
  bool IsSession(std::string_view session) const;
  std::string Seal(std::string_view text) const;

  const std::vector<std::string> hosts_;
  const std::string token_;
  const std::string session_key_;
  const Clock& clock_;
  absl::flat_hash_map<Shown, int> wrong_;  // How often in this minute.
  Nanos minute_end_ = 0;
};

}  // namespace sheaf::http
