// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "collective/nccl/nccl_agreement.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "collective/call_record.h"

namespace sheaf {
namespace {

bool Same(const NcclCall& a, const NcclCall& b) { return std::memcmp(&a, &b, sizeof a) == 0; }

}  // namespace

NcclCall CallOf(const Operation& operation, uint64_t sequence) {
  NcclCall call = {};
  call.sequence = sequence;
  call.kind = static_cast<uint8_t>(operation.kind);
  if (operation.kind == CollectiveKind::kBarrier) return call;
  call.count = operation.count;
  call.type = static_cast<uint8_t>(operation.type);
  switch (operation.kind) {
    case CollectiveKind::kReduce:
      call.op = static_cast<uint8_t>(operation.op);
      call.peer = operation.peer;
      break;
    case CollectiveKind::kAllReduce:
    case CollectiveKind::kReduceScatter:
      call.op = static_cast<uint8_t>(operation.op);
      break;
    case CollectiveKind::kBroadcast:
    case CollectiveKind::kSend:
    case CollectiveKind::kReceive:
      call.peer = operation.peer;
      break;
    default:
      break;
  }
  return call;
}

std::string Describe(const NcclCall& call) {
  return absl::StrCat(Describe(OperationOf(call)), " #", call.sequence);
}

absl::Status Compare(const std::vector<NcclCall>& calls) {
  const auto alike = [&](const NcclCall& call) {
    return std::count_if(calls.begin(), calls.end(),
                         [&](const NcclCall& other) { return Same(call, other); });
  };
  // Of several that are as common, the one of the lowest rank.
  size_t usual = 0;
  for (size_t rank = 1; rank < calls.size(); ++rank) {
    if (alike(calls[rank]) > alike(calls[usual])) usual = rank;
  }
  for (size_t rank = 0; rank < calls.size(); ++rank) {
    if (Same(calls[rank], calls[usual])) continue;
    return WithRank(absl::InvalidArgumentError(
                        absl::StrCat("rank ", rank, " called ", Describe(calls[rank]),
                                     " where rank ", usual, " called ", Describe(calls[usual]))),
                    static_cast<int>(rank));
  }
  return absl::OkStatus();
}

absl::Status Compare(const NcclMessage& message, const Operation& operation, uint64_t sequence,
                     int rank) {
  Operation expected = operation;
  expected.kind = CollectiveKind::kSend;
  expected.peer = rank;
  if (Same(message.call, CallOf(expected, sequence))) return absl::OkStatus();
  return WithRank(absl::InvalidArgumentError(absl::StrCat(
                      "rank ", operation.peer, " called ", Describe(message.call), " where rank ",
                      rank, " called ", Describe(CallOf(operation, sequence)))),
                  operation.peer);
}

std::array<const void*, 2> ArraysOf(const Operation& operation, int rank) {
  const bool root = operation.peer == rank;
  switch (operation.kind) {
    case CollectiveKind::kBarrier:
      return {nullptr, nullptr};
    case CollectiveKind::kSend:
      return {operation.input, nullptr};
    case CollectiveKind::kReceive:
      return {nullptr, operation.output};
    case CollectiveKind::kBroadcast:
      return {root ? operation.input : nullptr, root ? nullptr : operation.output};
    case CollectiveKind::kReduce:
      return {operation.input, root ? operation.output : nullptr};
    default:
      return {operation.input, operation.output};
  }
}

}  // namespace sheaf
