// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Which file of which node is meant by an actor, a task, a process, a submission or a name.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/ids.h"
#include "dashboard/asker.h"
#include "dashboard/logs/node_log.h"

namespace sheaf::dashboard {

// Empty ones say nothing. The first of `name`, `submission_id`, `actor_id`, `task_id` and `pid` that
// is there counts.
struct LogWanted {
  std::string node_id{};  // As NodeIdText writes it.
  std::string node_ip{};
  std::string name{};
  std::string submission_id{};
  bool waits = false;  // One that has no node yet is found, too: of node 0.
  std::string actor_id{};
  std::string task_id{};
  uint32_t attempt = 0;  // Of the task.
  std::optional<int32_t> pid{};
  bool errors = false;  // Of a process: what it wrote as errors.
};

// What a submitted command writes.
std::string JobLogOf(const std::string& submission_id);

// kInvalidArgument: nothing names a log, or several processes have that pid. kNotFound: there is no
// such thing, or it has no process yet; the text says which. kUnavailable: no answer. Blocks.
absl::StatusOr<LogName> FindLog(const AskNode& ask, NodeNumber here, const LogWanted& wanted);

}  // namespace sheaf::dashboard
