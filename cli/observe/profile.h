// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// sheaf profile: where the time of calls went.
#pragma once

#include <cstdint>
#include <string>

#include "cli/query.h"

namespace sheaf::cli {

struct ProfileOptions {
  QueryOptions query;
  std::string function;         // Empty: all.
  uint32_t job = 0;             // 0: of all.
  uint32_t node = 0;            // 0: of all.
  double seconds = 600;         // The last ones.
  std::string format = "text";  // One of dashboard::kProfileFormats.
};

int RunProfile(const ProfileOptions& options);

}  // namespace sheaf::cli
