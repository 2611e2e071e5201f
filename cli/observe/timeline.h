// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// sheaf timeline: when calls ran, as a file for viewers of traces.
#pragma once

#include <cstdint>
#include <string>

#include "cli/query.h"

namespace sheaf::cli {

struct TimelineOptions {
  QueryOptions query;
  std::string file;             // Empty: the standard output.
  uint32_t job = 0;             // 0: of all.
  std::string format = "json";  // As telemetry::ParseTraceFormat.
};

int RunTimeline(const TimelineOptions& options);

}  // namespace sheaf::cli
