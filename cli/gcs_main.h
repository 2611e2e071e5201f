// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// sheaf gcs-serve: the process of a head's GCS, which its node starts (cli/gcs_child.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace sheaf::cli {

struct GcsFlags {
  int fd = -1;  // The node's end of a GcsPipe; its first packet holds the segment for metrics.
  std::string database;
  std::string address;        // Of the node.
  std::string log_directory;  // For gcs.log.
  uint64_t least_term = 0;
  uint32_t keep_jobs = 0;
  bool log_json = false;
  bool must_exist = false;  // The state of a cluster was there: without it nothing is served.

  // As arguments of `sheaf`.
  std::vector<std::string> Arguments() const;
};

// Runs until the node says so, or is gone; an ExitCode, or 74 when the disk fails.
int RunGcs(const GcsFlags& flags);

}  // namespace sheaf::cli
