// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The node that a command works through, as what lies in dashboard/ asks it.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "cli/query.h"
#include "dashboard/asker.h"

namespace sheaf::cli {

// Thread-safe.
dashboard::AskNode AskerOf(const std::string& session);

}  // namespace sheaf::cli
