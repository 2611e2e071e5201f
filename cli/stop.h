// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// sheaf stop: ends the nodes of this user, each with all its processes.
#pragma once

#include "cli/query.h"

namespace sheaf::cli {

struct StopOptions {
  QueryOptions query;  // `timeout`: how long a node may take to end by itself before it is killed.
  bool force = false;  // Kill at once.
};

// Ends every node that FindNodes(address) finds. Returns once their processes are gone, at most one
// second after the timeout. kDone also when none ran.
int RunStop(const StopOptions& options);

}  // namespace sheaf::cli
