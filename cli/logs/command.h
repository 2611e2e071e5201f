// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// `sheaf logs`: the logs of all nodes, listed, shown and followed.
#pragma once

#include <cstdint>
#include <string>

#include "cli/query.h"

namespace sheaf::cli {

struct LogsOptions {
  QueryOptions query;
  // "cluster", "actor", "task", "worker" or "job"; anything else is a glob for the first of these.
  std::string what;
  std::string name;  // A glob, an id, or a pid.
  std::string id;    // As `name`, as Ray's command line has it.
  std::string node;  // A number, as `sheaf list nodes` prints it, or an id.
  std::string node_ip;
  int64_t tail = 1000;  // Lines; below 0: all.
  uint32_t attempt = 0;
  bool follow = false;
  bool errors = false;
};

int RunLogs(const LogsOptions& options);

}  // namespace sheaf::cli
