// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "collective/communicator.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "collective/call_record.h"

namespace sheaf {
namespace {

constexpr char kRankUrl[] = "sheaf/collective/rank";

struct TypeRow {
  const char* name;
  size_t bytes;
};
constexpr TypeRow kTypes[kDataTypes] = {{"uint8", 1},   {"int32", 4},    {"int64", 8},
                                        {"float16", 2}, {"bfloat16", 2}, {"float32", 4},
                                        {"float64", 8}};
constexpr const char* kOps[kReduceOps] = {"sum", "product", "min", "max", "average"};
constexpr const char* kKinds[kCollectiveKinds] = {"barrier",        "all_reduce", "reduce",
                                                  "reduce_scatter", "all_gather", "broadcast",
                                                  "all_to_all",     "send",       "recv"};

bool HasPeer(CollectiveKind kind) {
  return kind == CollectiveKind::kReduce || kind == CollectiveKind::kBroadcast ||
         kind == CollectiveKind::kSend || kind == CollectiveKind::kReceive;
}

}  // namespace

size_t SizeOf(DataType type) { return kTypes[static_cast<int>(type)].bytes; }
const char* NameOf(DataType type) {
  return static_cast<int>(type) < kDataTypes ? kTypes[static_cast<int>(type)].name : "unknown type";
}
const char* NameOf(ReduceOp op) {
  return static_cast<int>(op) < kReduceOps ? kOps[static_cast<int>(op)] : "unknown reduction";
}
const char* NameOf(CollectiveKind kind) {
  return static_cast<int>(kind) < kCollectiveKinds ? kKinds[static_cast<int>(kind)]
                                                   : "unknown operation";
}

std::optional<int> RankOf(const absl::Status& status) {
  const absl::optional<absl::Cord> payload = status.GetPayload(kRankUrl);
  int rank = 0;
  if (!payload.has_value() || !absl::SimpleAtoi(std::string(*payload), &rank)) return std::nullopt;
  return rank;
}

absl::Status WithRank(absl::Status status, int rank) {
  if (!status.ok()) status.SetPayload(kRankUrl, absl::Cord(absl::StrCat(rank)));
  return status;
}

absl::Status CheckOperation(const Operation& operation, int rank, int world_size) {
  if (static_cast<int>(operation.kind) >= kCollectiveKinds ||
      static_cast<int>(operation.type) >= kDataTypes ||
      static_cast<int>(operation.op) >= kReduceOps) {
    return absl::InvalidArgumentError("an operation, type or reduction that does not exist");
  }
  const auto wrong = [&](auto... words) {
    return absl::InvalidArgumentError(absl::StrCat(Describe(operation), ": ", words...));
  };
  if (operation.timeout <= 0)
    return wrong("a timeout of ", operation.timeout, " ns: want more than 0");
  if (IsReduction(operation.kind) && operation.op == ReduceOp::kAverage &&
      operation.type == DataType::kUint8 && world_size > UINT8_MAX) {
    return wrong("uint8 cannot count ", world_size, " ranks to divide by: want int32");
  }
  if (HasPeer(operation.kind) && (operation.peer < 0 || operation.peer >= world_size)) {
    return wrong("there is no rank ", operation.peer, " among ", world_size);
  }
  const bool pairwise =
      operation.kind == CollectiveKind::kSend || operation.kind == CollectiveKind::kReceive;
  if (pairwise && operation.peer == rank) return wrong("the peer is this rank itself");
  if (operation.count > SIZE_MAX / 16 / static_cast<size_t>(world_size)) {
    return wrong("more elements than memory can hold");
  }
  if (operation.count == 0 || operation.kind == CollectiveKind::kBarrier) return absl::OkStatus();
  const bool reads = operation.kind != CollectiveKind::kReceive &&
                     (operation.kind != CollectiveKind::kBroadcast || operation.peer == rank);
  const bool writes = operation.kind != CollectiveKind::kSend &&
                      (operation.kind != CollectiveKind::kReduce || operation.peer == rank) &&
                      (operation.kind != CollectiveKind::kBroadcast || operation.peer != rank);
  if ((reads && operation.input == nullptr) || (writes && operation.output == nullptr)) {
    return wrong("no array given");
  }
  if (operation.kind == CollectiveKind::kAllToAll && operation.input == operation.output) {
    return wrong("input and output are one array: want two");
  }
  return absl::OkStatus();
}

std::string Describe(const Operation& operation) {
  std::string text = NameOf(operation.kind);
  if (operation.kind == CollectiveKind::kBarrier) return text;
  absl::StrAppend(&text, " (", NameOf(operation.type), " x ", operation.count);
  if (IsReduction(operation.kind)) absl::StrAppend(&text, ", ", NameOf(operation.op));
  if (operation.kind == CollectiveKind::kSend) {
    absl::StrAppend(&text, ", to ", operation.peer);
  } else if (operation.kind == CollectiveKind::kReceive) {
    absl::StrAppend(&text, ", from ", operation.peer);
  } else if (HasPeer(operation.kind)) {
    absl::StrAppend(&text, ", root ", operation.peer);
  }
  return text + ")";
}

}  // namespace sheaf
