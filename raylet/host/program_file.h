// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The file of a job's program: which one it is, and what is in it. Any thread.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace sheaf {

struct ProgramFile {
  uint64_t size_bytes = 0;
  // Two descriptors with equal identities are open on the same unchanged file of the same machine.
  std::string identity;
};

// What `fd` is open on. kFailedPrecondition: no regular file; else the system's error.
absl::StatusOr<ProgramFile> ExamineProgram(int fd);
// SHA-256 of the whole file, 32 bytes. Reads at positions, so `fd` may be shared.
absl::StatusOr<std::string> DigestOfProgram(int fd, uint64_t size_bytes);
// Reads [offset, offset + length) or as much as there is.
absl::StatusOr<std::string> ReadProgram(int fd, uint64_t offset, uint64_t length);

}  // namespace sheaf
