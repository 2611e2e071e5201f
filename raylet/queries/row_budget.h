// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// How much an answer to a state query may hold, whatever its limit says: so many rows of a kind,
// and so many bytes in all.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/message_limits.h"
#include "proto/raylet.pb.h"

namespace sheaf {

class RowBudget {
 public:
  // Of `answer`, which outlives this; with `limit` rows of a kind. Measures what is there already.
  RowBudget(proto::StateAnswer& answer, uint32_t limit)
      : answer_(answer), limit_(limit), bytes_(answer.ByteSizeLong()) {}

  // Whether another row fits behind `rows` of the answer; else it says that there are more.
  template <class Rows>
  bool HasRoom(const Rows& rows) {
    if (static_cast<uint32_t>(rows.size()) < limit_ && bytes_ < kMaxStateBytes) return true;
    answer_.set_truncated(true);
    return false;
  }
  template <class Row>
  void Count(const Row& row) {
    bytes_ += row.ByteSizeLong();
  }
  // Moves the rows of `from` behind `to`, as far as they fit.
  template <class Rows>
  void Append(Rows* from, Rows* to) {
    for (auto& row : *from) {
      if (!HasRoom(*to)) return;
      Count(row);
      *to->Add() = std::move(row);
    }
  }

 private:
  proto::StateAnswer& answer_;
  const uint32_t limit_;
  size_t bytes_;
};

}  // namespace sheaf
