// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What ranks tell each other before data moves, as plain bytes, and what follows from it.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "collective/communicator.h"
#include "collective/nccl/nccl_library.h"

namespace sheaf {

// One call of one rank. Equal calls have equal bytes: what an operation does not use is zero.
struct NcclCall {
  uint64_t count;
  uint64_t sequence;
  int32_t peer;
  uint8_t kind;
  uint8_t type;
  uint8_t op;
  uint8_t zero;
};
static_assert(sizeof(NcclCall) == 24);

NcclCall CallOf(const Operation& operation, uint64_t sequence);
// "all_reduce (float32 x 1024, sum) #17". A call of another process may hold anything.
std::string Describe(const NcclCall& call);
// OK: all called the same. kInvalidArgument: the message names the first rank that called something
// else than most ranks, and what. The same on all ranks that have the same calls.
absl::Status Compare(const std::vector<NcclCall>& calls);

// What a sender tells its receiver.
struct NcclMessage {
  NcclCall call;      // Of kSend, with the receiver as peer.
  nccl::UniqueId id;  // Of the first message: where the two meet.
};
static_assert(sizeof(NcclMessage) == 152);
// OK: rank `rank` receives what `message` of rank `operation.peer` announces.
absl::Status Compare(const NcclMessage& message, const Operation& operation, uint64_t sequence,
                     int rank);

// The arrays that `operation` reads and writes on rank `rank`; nullptr: none.
std::array<const void*, 2> ArraysOf(const Operation& operation, int rank);

}  // namespace sheaf
