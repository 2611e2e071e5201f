// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What the ways to start a worker have in common (process_launcher.cc: exec;
// process_launcher_template.cc: fork).
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/unique_fd.h"
#include "proto/gcs.pb.h"
#include "raylet/workers/launcher.h"

namespace sheaf {

proto::Death MakeDeath(proto::Death::Cause cause, std::string message);

// Variables that differ between the workers of one job. kInvalidArgument: the environment is not
// one.
absl::StatusOr<std::vector<std::string>> VariablesOf(const WorkerSpec& spec);
// To append to; made (0600) where it is missing.
absl::StatusOr<UniqueFd> OpenLog(const std::string& path);

}  // namespace sheaf
