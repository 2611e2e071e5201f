// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// TCP sockets between the nodes of a group: non-blocking, closed in programs that this one starts.
#pragma once

#include <functional>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "base/unique_fd.h"

namespace sheaf {

struct NodeListener {
  UniqueFd fd;
  int port = 0;
};

// Listens on `host`, an address of this node, at a port that the system chooses. kUnavailable: it
// cannot; kInvalidArgument: `host` is no address.
absl::StatusOr<NodeListener> ListenOnNode(const std::string& host);
// Not valid: nobody is there any more.
UniqueFd AcceptFromNode(const NodeListener& listener);
// Begins to connect; it is writable when that is over, and then ConnectedToNode says how.
// kInvalidArgument: `host` is no address; kUnavailable: it cannot be reached.
absl::StatusOr<UniqueFd> DialNode(const std::string& host, int port);
bool ConnectedToNode(const UniqueFd& fd);

// What is written leaves at once.
void SendAtOnce(const UniqueFd& fd);
// The connection ends when nothing has crossed it for about 15 s though the other node was asked.
void NoticeSilence(const UniqueFd& fd);

// Closes connections without losing what was sent on them: a connection that is closed with bytes
// that nobody here has read, or that come later, is reset, and the other end never gets what it had
// no room for. Says that nothing more will be sent, and drops what comes until the other ends have
// all, or have ended, or `longest` is over; those that stopped reading may still get it then.
void CloseDelivered(std::span<UniqueFd> connections, Nanos longest);

// Calls `close` in a child that is being forked, as long as this lives: a copy of a connection there
// would keep the other end from noticing this process's end. `close` takes no locks.
class ClosedInChildren {
 public:
  explicit ClosedInChildren(std::function<void()> close);
  ~ClosedInChildren();
  ClosedInChildren(const ClosedInChildren&) = delete;
  ClosedInChildren& operator=(const ClosedInChildren&) = delete;

 private:
  static void CloseAll() ABSL_NO_THREAD_SAFETY_ANALYSIS;  // Unlocks what the fork locked.
  const std::function<void()> close_;
};

}  // namespace sheaf
