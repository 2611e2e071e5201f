// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// sheaf node: a GCS and a raylet in one process, with the node's metrics endpoint. `sheaf start`
// runs it in the background, Init inside a program runs it as that program's own.
#pragma once

#include "cli/start.h"

namespace sheaf::cli {

struct NodeOptions {
  NodeFlags flags;     // What they leave open comes from the environment (base/config.h), then from
                       // the machine.
  int ready_fd = -1;   // Gets one ReadyLine when the node is ready, then is closed.
  int parent_fd = -1;  // A pipe of the program whose own node this is: it ends when that does, and
                       // leaves nothing behind.
};

// Runs until SIGTERM, SIGINT, the end of the parent, or because it cannot go on (the GCS declares
// it dead or is lost, its directory was removed: kFailed); then ends all processes of the node and
// returns an ExitCode. Takes over this process: signal
// mask, descriptors, children.
int RunNode(const NodeOptions& options);

}  // namespace sheaf::cli
