// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// sheaf gcs backup, sheaf gcs restore: a copy of the state of a cluster, and a head's session made
// of one.
#pragma once

#include <string>

#include "cli/query.h"

namespace sheaf::cli {

struct GcsStateOptions {
  QueryOptions query;     // Of a backup: where the head is, and how long it may take.
  std::string file;       // The copy.
  std::string directory;  // Of a restore: that holds sessions. Empty: the one of `sheaf start`.
};

// Makes the file, which must not be there, while the head goes on.
int RunGcsBackup(const GcsStateOptions& options);
// Makes a session with the state in the file, for `sheaf start --head --resume`. What the cluster
// acknowledged after the copy was made is not in it; numbers of nodes and jobs that were given
// since are not given again.
int RunGcsRestore(const GcsStateOptions& options);

}  // namespace sheaf::cli
