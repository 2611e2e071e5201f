// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What ranks tell each other about a call, whether in shared memory (rank_page.h) or over a link
// (net_records.h): a `Record` has the kind, type, op, count and peer of an Operation.
#pragma once

#include "collective/communicator.h"

namespace sheaf {

// Whether the operation's `peer` is its root.
constexpr bool IsRooted(CollectiveKind kind) {
  return kind == CollectiveKind::kReduce || kind == CollectiveKind::kBroadcast;
}
constexpr bool IsReduction(CollectiveKind kind) {
  return kind == CollectiveKind::kAllReduce || kind == CollectiveKind::kReduce ||
         kind == CollectiveKind::kReduceScatter;
}

template <class Record>
Operation OperationOf(const Record& record) {
  Operation operation;
  operation.kind = static_cast<CollectiveKind>(record.kind);
  operation.type = static_cast<DataType>(record.type);
  operation.op = static_cast<ReduceOp>(record.op);
  operation.count = record.count;
  operation.peer = record.peer;
  return operation;
}

// Whether two ranks mean the same.
template <class Record>
bool Match(const Record& a, const Record& b) {
  const auto kind = static_cast<CollectiveKind>(a.kind);
  if (a.kind != b.kind) return false;
  if (kind == CollectiveKind::kBarrier) return true;
  return a.type == b.type && a.count == b.count && (!IsReduction(kind) || a.op == b.op) &&
         (!IsRooted(kind) || a.peer == b.peer);
}

}  // namespace sheaf
