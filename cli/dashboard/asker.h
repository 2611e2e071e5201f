// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The node that a command works through, as what lies in dashboard/ asks it.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "base/ids.h"
#include "cli/query.h"
#include "dashboard/asker.h"

namespace sheaf::cli {

// The number that the node has written into its session; 0: it has not.
NodeNumber NumberOf(const RunningNode& node);
// Thread-safe.
dashboard::AskNode AskerOf(const std::string& session);

}  // namespace sheaf::cli
