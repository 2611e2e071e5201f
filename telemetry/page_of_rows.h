// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The first rows of a table behind a place in it, in the order of their ids, whatever order they come
// in: what a question with `by_id` wants of each who answers. Several rows may have one id: an owner
// and a worker tell of the same call; they are on one page.
#pragma once

#include <cstddef>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"

namespace sheaf::telemetry {

template <class Row>
class PageOfRows {
 public:
  // Of those with an id behind `after`, the ones with the first `most` ids.
  PageOfRows(std::string_view after, size_t most) : after_(after), most_(most) {}

  // Whether one of that id belongs to the page, as far as is known: rows are costly to make.
  bool Wants(std::string_view id) {
    if (!after_.empty() && id <= after_) return false;
    if (rows_.size() < most_ || (most_ > 0 && id <= rows_.rbegin()->first)) return true;
    more_ = true;
    return false;
  }
  // One that is wanted.
  void Add(const std::string& id, Row row) {
    rows_[id].push_back(std::move(row));
    if (rows_.size() <= most_) return;
    rows_.erase(std::prev(rows_.end()));
    more_ = true;
  }
  // There are rows behind the page, or there may be.
  bool more() const { return more_; }
  // Calls `take` with each row, in their order, for it to be moved away.
  template <class Take>
  void Move(Take take) {
    for (auto& [id, rows] : rows_) {
      for (Row& row : rows) take(std::move(row));
    }
    rows_.clear();
  }

 private:
  const std::string after_;
  const size_t most_;
  absl::btree_map<std::string, std::vector<Row>> rows_;
  bool more_ = false;
};

}  // namespace sheaf::telemetry
