// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// How a command finds its node and asks it. Answers come over the node's unix socket
// (shm/attach.h); every wait is bounded.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "base/unix_socket.h"
#include "proto/raylet.pb.h"

namespace sheaf::cli {

// What a shell gets. Documented in docs/cli.md.
enum ExitCode : int {
  kDone = 0,
  kFailed = 1,    // The node, or the system, could not do it; the text says why.
  kUsage = 2,     // The command line means nothing.
  kNoNode = 3,    // No node runs where the command looked.
  kNotThere = 4,  // The node knows nothing of that name.
  kTimedOut = 5,
};

// Of every command that speaks to a node.
struct QueryOptions {
  std::string address;  // A session directory, or one that holds sessions. Empty: SHEAF_ADDRESS,
                        // then the newest node.
  bool json = false;
  Nanos timeout = 10 * kSecond;
};

// A node of this user that answers its socket.
struct RunningNode {
  std::string session;  // Its directory.
  int os_pid = 0;       // Of the daemon, as the kernel says.
};

// The nodes that run below `address` (see QueryOptions), newest first; one at most if it is a
// session itself. kInvalidArgument: a setting in the environment is malformed.
absl::StatusOr<std::vector<RunningNode>> FindNodes(const std::string& address);

// The one that `options` mean. kNotFound: none runs.
absl::StatusOr<RunningNode> FindNode(const QueryOptions& options);

// Asks the node that `options` mean. kNotFound: none runs. kDeadlineExceeded: it did not answer in
// time.
absl::StatusOr<proto::StateAnswer> Ask(const QueryOptions& options, const proto::StateQuery& query);

// A node that is asked often: a connection that has answered is kept for the next question.
// Thread-safe.
class KeptNode {
 public:
  // `session`: its directory.
  explicit KeptNode(std::string session) : session_(std::move(session)) {}
  // As Ask.
  absl::StatusOr<proto::StateAnswer> Ask(const proto::StateQuery& query, Nanos timeout);

 private:
  std::optional<UnixSocket> Take();

  const std::string session_;
  Mutex mutex_;
  std::vector<UnixSocket> idle_ ABSL_GUARDED_BY(mutex_);
};

// Prints "sheaf: <why>" to the standard error stream; the exit code that fits.
int Complain(const absl::Status& status);

}  // namespace sheaf::cli
