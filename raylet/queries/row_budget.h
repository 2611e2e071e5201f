// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// How much an answer to a state query may hold, whatever its limit says: so many rows of a kind,
// and so many bytes in all.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/message_limits.h"
#include "proto/raylet.pb.h"
#include "raylet/queries/state_asked.h"

namespace sheaf {

class RowBudget {
 public:
  // Of `asked`, which outlives this.
  explicit RowBudget(StateAsked& asked) : asked_(asked) {}

  // Whether another row fits behind `rows` of the answer; else it says that there are more.
  template <class Rows>
  bool HasRoom(const Rows& rows) {
    if (static_cast<uint32_t>(rows.size()) < asked_.limit && asked_.bytes < kMaxStateBytes)
      return true;
    asked_.answer.set_truncated(true);
    return false;
  }
  template <class Row>
  void Count(const Row& row) {
    asked_.bytes += row.ByteSizeLong();
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
  StateAsked& asked_;
};

}  // namespace sheaf
