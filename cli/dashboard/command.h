// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// sheaf dashboard: serves the state of a cluster over HTTP, in the foreground. It reads through a
// node, as sheaf list does, and may end or be killed at any time: nothing is lost with it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/query.h"
#include "http/server.h"

namespace sheaf::cli {

inline constexpr uint16_t kDashboardPort = 8265;
inline constexpr int kDashboardPortsTried = 100;  // From there, where none is named.

struct DashboardFlags {
  QueryOptions query;
  std::string host = "127.0.0.1";  // Numeric.
  std::optional<uint16_t> port;    // Nothing: kDashboardPort, or the next that is free.
  std::string token_file;          // The cluster's token; empty: as for a node.
  // Files in PEM; both empty: no TLS.
  std::string tls_certificate;
  std::string tls_key;
  // Who shows a certificate of it needs no token. Empty: certificates of clients are not asked for.
  std::string tls_client_authority;
  bool read_only = false;
  bool writable = false;  // Who logged in with a browser may change, too.
  int listener_fd = -1;   // A socket that listens already, of the node that started this.
  int metrics_fd = -1;    // Its metrics page for this.
  double idle_limit = 0;  // Seconds without a viewer after which it ends; 0: never.
  bool log_json = false;

  bool IsLocal() const { return host.starts_with("127.") || host == "::1"; }
  // The command line that gives these flags again.
  std::vector<std::string> Arguments() const;
};

// What a server with these flags needs before it listens. kInvalidArgument, kFailedPrecondition: as
// http::Server::Check. kNotFound, kPermissionDenied: a file cannot be read.
absl::StatusOr<http::ServerOptions> ServerOptionsOf(const DashboardFlags& flags);

// Prints the URL and serves until SIGTERM, SIGINT, the end of the node, or `idle_limit`; one that a
// node started also ends when other certificates lie in the place of its own: the next one reads
// them.
int RunDashboard(const DashboardFlags& flags);

// Prints HttpToken. kFailed: there is none.
int RunToken(const std::string& file);

// What HTTP requests carry ("Authorization: Bearer TOKEN"), made from the cluster's token, which
// itself never travels; or RAY_AUTH_TOKEN, where the cluster's token is made of that. Empty: there is no cluster token in `file`, nor where nodes look for it.
// kInvalidArgument, kPermissionDenied: as LoadToken.
absl::StatusOr<std::string> HttpToken(const std::string& file);

}  // namespace sheaf::cli
