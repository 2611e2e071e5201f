// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// How the files of a node's processes are called, and whose a file is.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/ids.h"

namespace sheaf {

// "job-driver-ID.log": what a submitted command writes.
std::string JobLogName(std::string_view submission_id);
// "job-driver-ID.log" -> ID. nullopt: it is another's.
std::optional<std::string> SubmissionOfLog(std::string_view name);
// "worker-1.7.out", "worker-1.7.err.1" -> 1.7. nullopt: it is another's.
std::optional<ProcessId> WorkerOfLog(std::string_view name);

}  // namespace sheaf
