// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// A node of this process's own: `sheaf node`, started by Init, which ends when this process does.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/unique_fd.h"

namespace sheaf::inline v1::internal {

class EmbeddedNode {
 public:
  // `executable`: of the `sheaf` program; empty: beside this library, or in PATH. `flags`: of
  // `sheaf node`. kNotFound: no such program. kAborted: it ended before it was ready (its words are
  // on stderr). kDeadlineExceeded. kCancelled: `interrupted`, asked each 100 ms and when a signal
  // comes, said so.
  static absl::StatusOr<std::unique_ptr<EmbeddedNode>> Start(
      const std::string& executable, const std::vector<std::string>& flags,
      const std::function<bool()>& interrupted = nullptr);
  ~EmbeddedNode();  // Ends it, and waits for that.
  EmbeddedNode(const EmbeddedNode&) = delete;
  EmbeddedNode& operator=(const EmbeddedNode&) = delete;

  const std::string& session() const { return session_; }  // Its directory.

 private:
  EmbeddedNode() = default;

  pid_t pid_ = 0;
  UniqueFd alive_;  // The node ends when the other end of this pipe sees it closed.
  std::string session_;
};

// The `sheaf` program as EmbeddedNode::Start finds it. kNotFound: the text says where it was
// sought.
absl::StatusOr<std::string> FindExecutable(const std::string& wanted);

}  // namespace sheaf::inline v1::internal
