// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// sheaf start: begins a node in the background and returns once it is ready.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/query.h"

namespace sheaf::cli {

// In place of a session to resume: the one of this kind, of a head or not, that was started last; a
// new one if there is none.
inline constexpr char kLatestSession[] = "latest";

// What `sheaf start` and `sheaf node` have in common. Texts are checked by the node, which knows
// their forms.
struct NodeFlags {
  std::string directory;     // That holds sessions. Empty: SHEAF_DIR and so on (base/config.h).
  std::string resume;        // A session to go on with, or kLatestSession; empty: a new one.
  std::string cpus;          // Empty: what the kernel lets this process use.
  std::string gpus;          // Empty: what is found.
  std::string resources;     // "apple:2,pear:0.5".
  std::string labels;        // "zone=a,disk=ssd".
  std::string memory;        // "4GiB".
  std::string store_memory;  // "1GiB".
  std::string metrics_address;
  int metrics_port = 0;                   // 0: a free one.
  bool ray_metric_names = false;          // All figures under Ray's names, too.
  std::string metrics_token_file;         // Empty: SHEAF_METRICS_TOKEN_FILE, or none.
  std::string include_dashboard;          // "true", "false"; empty: of a head that runs by itself.
  std::string dashboard_host;             // Empty: 127.0.0.1.
  int dashboard_port = -1;                // -1: 8265, or the next that is free.
  std::string dashboard_tls_certificate;  // Files in PEM; empty: as docs/cli.md says.
  std::string dashboard_tls_key;
  bool dashboard_writable = false;   // Browsers that logged in may change something, too.
  bool dashboard_read_only = false;  // Nobody may, by it.
  std::string targets_file;          // Of a head, for Prometheus. Empty: in its session.
  std::string join;                  // HOST:PORT of the head. Empty: be the head of a cluster.
  std::string host;                  // Where this node listens; empty: 127.0.0.1.
  std::string advertise;             // HOST:PORT that others dial; empty: as it listens.
  int port = -1;           // -1: of a head 6379, or a free one if that is taken; else a free one.
  int health_port = -1;    // For probes, beside `port`; -1: none.
  std::string token_file;  // Counts before the environment. Empty: SHEAF_TOKEN, SHEAF_TOKEN_FILE,
                           // or `token` in the directory of sessions.
  double unheard_limit = 15;       // Seconds; docs/cli.md.
  double join_timeout = 10;        // Seconds that the head may take to answer a node that joins.
  double gcs_lost_timeout = 1800;  // Seconds, 0: for ever; docs/cli.md.
  std::string log_format;          // "text", "json"; empty: SHEAF_LOG_FORMAT.
  uint32_t keep_jobs = 10'000;     // Submitted ones that have ended.
  std::string tls_directory;       // Empty: SHEAF_TLS_DIR, or no TLS.
  std::string tls_peer_name;       // Empty: SHEAF_TLS_PEER_NAME, or any.

  // As arguments of `sheaf node`.
  std::vector<std::string> Arguments() const;
};

struct StartOptions {
  QueryOptions query;  // `timeout`: how long the node may take to be ready.
  NodeFlags node;
  bool head = false;
};

// kDone: the node is ready, and its daemon has a session of its own (setsid). Else nothing is left
// running.
int RunStart(const StartOptions& options);

// What a node writes, as one line, to its --ready-fd when it is ready.
struct ReadyLine {
  std::string session;
  std::string metrics_url;
  std::string address;            // Of the cluster's head, HOST:PORT; empty: the node is alone.
  uint32_t node = 0;              // Its number.
  std::string dashboard_url{};    // Empty: there is none.
  std::string Text() const;       // "ready SESSION URL ADDRESS NODE DASHBOARD\n".
  std::string ForPeople() const;  // "node 3 of 10.0.0.1:6379, session SESSION".
  static bool Parse(const std::string& text, ReadyLine& out);
};

}  // namespace sheaf::cli
