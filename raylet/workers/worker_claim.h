// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Whose a worker's token is.
#pragma once

#include "base/ids.h"

namespace sheaf {

struct WorkerClaim {
  ProcessId process;
  JobNumber job = 0;  // The node's own number.
};

}  // namespace sheaf
