// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// An HTTP/1.1 server on one thread of its own, with TLS and WebSockets, built on Boost.Beast. It
// bounds all that a peer can make it hold, asks http/access.h who may what, and no request, no
// handler's exception and no slow viewer ends it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/unique_fd.h"
#include "http/access.h"
#include "http/router.h"

namespace sheaf::http {

struct Limits {
  int connections = 256;
  int connections_per_address = 32;  // Not of loopback, where all viewers have one address.
  int streams = 64;                  // Answers that go on, of all connections.
  size_t header_bytes = 16 * 1024;
  size_t body_bytes = 1024 * 1024;                    // Of Body::kMemory.
  uint64_t file_bytes = uint64_t{512} * 1024 * 1024;  // Of Body::kFile.
  Nanos header_time = 5 * kSecond;                    // From its first byte to its last.
  Nanos idle_time = 60 * kSecond;  // Between two requests; 0: one request a connection.
  // A viewer takes nothing of an answer, or a body does not go on, nor makes this much on average. An
  // answer that goes on waits for a viewer as long as that one's machine answers.
  Nanos stall_time = 20 * kSecond;
  uint64_t bytes_per_second = 16 * 1024;
};

// PEM texts; all empty: no TLS.
struct TlsOptions {
  std::string certificate{};
  std::string key{};
  std::string
      client_authority{};  // Not empty: a client that shows a certificate of it is believed.
};

// Told, on the server's thread, of what it does; each may be empty, and none waits or throws.
struct ServerEvents {
  // A request was answered with that status, 4xx of a refusal included, `took` after its header had
  // come; of an answer that goes on, its beginning.
  std::function<void(int status, Nanos took)> answered{};
  std::function<void(int open)> connections{};  // So many are open now.
  std::function<void()> turned_away{};          // A connection that there was no room for.
};

struct ServerOptions {
  std::string address = "127.0.0.1";  // Numeric, IPv4 or IPv6 without brackets.
  uint16_t port = 0;                  // 0: a free one.
  int ports = 1;                      // Taken ports are skipped, up to `port` + `ports` - 1.
  UniqueFd listener{};                // Valid: a socket that listens already, instead of a new one.
  std::string host_name{};            // A further name that requests may call this host by.
  // Not empty: who shows it is believed. What is reachable from other machines needs it, or
  // `tls.client_authority`.
  std::string token{};
  // With it a login lasts its 12 hours, whichever server with this key is asked; empty: it ends with
  // this server.
  std::string session_key{};
  AccessRules access{};
  bool login = false;  // Serves /api/authenticate and /api/authentication_mode.
  TlsOptions tls{};
  Limits limits{};
  std::string spool_directory{};  // Where bodies that become files lie. Empty: there are none.
  std::string thread_name = "sheaf-http";
  ServerEvents events{};
};

class Server {
 public:
  // kFailedPrecondition: beyond loopback, with neither a token nor an authority of clients.
  // kInvalidArgument: not a numeric address, beyond loopback with more trust than
  // Trust::kTokenOnly, or certificates that cannot be read. kUnavailable: the ports are taken.
  static absl::StatusOr<std::unique_ptr<Server>> Start(ServerOptions options, Router router);
  // What Start would say of `options` before it listens: ok, kFailedPrecondition or
  // kInvalidArgument.
  static absl::Status Check(const ServerOptions& options);
  // Ends all connections and the thread: a few milliseconds, plus what a handler takes that runs.
  // Replies that are still out there count for nothing from then on.
  virtual ~Server() = default;
  virtual uint16_t port() const = 0;
  virtual std::string url() const = 0;  // "http://127.0.0.1:8265", without a slash.
  // For how long nobody has asked or been sent anything; 0 while somebody is being answered.
  // Thread-safe.
  virtual Nanos IdleFor() const = 0;
};

}  // namespace sheaf::http
