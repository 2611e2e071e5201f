// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// sheaf stack: what the threads of drivers and workers do now.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/query.h"

namespace sheaf::cli {

struct StackOptions {
  QueryOptions query;
  std::vector<std::string> names;  // Pids, NODE.PROCESS, ids of actors or tasks. Empty: all.
  uint32_t node = 0;               // 0: of all nodes.
};

// The stacks of what is named, asked of the node at `options.query.address`. Blocks.
// kInvalidArgument: what cannot be a name. kNotFound: nothing that runs has it.
absl::StatusOr<proto::StateAnswer> CollectStacks(const StackOptions& options);

int RunStack(const StackOptions& options);

}  // namespace sheaf::cli
