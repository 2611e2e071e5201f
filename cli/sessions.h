// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// sheaf sessions, sheaf gcs remove: what nodes of this user have left on this machine.
#pragma once

#include <string>

#include "dashboard/tables/cells.h"

namespace sheaf::cli {

struct SessionsOptions {
  std::string directory;  // That holds sessions. Empty: the one of `sheaf start`.
  std::string session;    // Of RunRemoveSession.
};

int RunSessions(const SessionsOptions& options, bool json);
// Removes the session with all that is in it, the state of a cluster too. Refuses one whose node
// runs.
int RunRemoveSession(const SessionsOptions& options);

}  // namespace sheaf::cli
