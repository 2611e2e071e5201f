// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What a rank of a group on several nodes leaves at the rendezvous for the others.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "collective/communicator.h"

namespace sheaf {

struct NetPublication {
  pid_t pid = 0;
  std::string node;  // NodeOf: ranks with the same share memory.
  std::string host;  // An address, where this rank listens.
  int port = 0;
  uint64_t challenge[2] = {};  // Whoever dials this rank must know it,
  uint64_t answer[2] = {};     // and whom this rank dials must know this.
  uint64_t epoch = 0;
  int world_size = 0;
};

std::string EncodeNetPublication(const NetPublication& publication);
// kInvalidArgument: it was published by another version, or by nobody.
absl::StatusOr<NetPublication> DecodeNetPublication(absl::string_view text);
bool IsNetPublication(absl::string_view text);
bool IsShmPublication(absl::string_view text);  // That of shm_formation.cc.

// Which ranks share memory: the machine, the namespace of process numbers, and options.node.
std::string NodeOf(const CommunicatorOptions& options);

}  // namespace sheaf
