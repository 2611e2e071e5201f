// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The directory of one node's run: raylet.sock, gcs.db, logs/, spill/, token. Mode 0700, files
// 0600: it is what protects the node from other users.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace sheaf::cli {

struct Session {
  std::string directory;
  std::string socket;  // Nobody listens yet.
  std::string database;
  std::string logs;
  std::string spill;
  std::string token;  // 64 hexadecimal digits, as in the file `token`.
};

// Makes `base_directory` (and its parents) if need be, and in it session-<start time>-<pid>.
// Removes sessions that ended over `keep_hours` ago. kPermissionDenied: `base_directory` is another
// user's, or open to others.
absl::StatusOr<Session> CreateSession(const std::string& base_directory, int64_t keep_hours);

// Lets the link `latest` beside the session point to it. For when the node is ready.
absl::Status PublishLatest(const Session& session);

}  // namespace sheaf::cli
