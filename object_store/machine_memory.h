// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// How much memory this process may use, and how much of it is left: the tightest of the machine and
// every control group above it (versions 1 and 2).
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace sheaf {

struct MachineMemory {
  int64_t limit_bytes = 0;      // 0: nothing could be read.
  int64_t available_bytes = 0;  // Without anybody being killed; file cache counts as available.
};

// Reads below `root` ("/" on real machines): proc/meminfo, proc/self/cgroup, sys/fs/cgroup. Takes
// about 50 us.
MachineMemory ReadMachineMemory(const std::string& root = "/");

// Whether `bytes` more may be used and 64 MiB are left to others then. kResourceExhausted: no.
absl::Status CheckMemoryFor(size_t bytes);

}  // namespace sheaf
