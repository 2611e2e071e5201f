// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Users' keys and values, by name space. Pure: what a command would write is computed first
// (kv_handlers.cc runs it through the pipeline), and applied once it is durable.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/status/statusor.h"

namespace sheaf {

class KeyValueTable {
 public:
  static constexpr size_t kMaxKeyBytes = 4096;
  static constexpr size_t kMaxValueBytes = 32 << 20;

  // The key of a row on disk and in memory: rows of one name space stand together, in the order of
  // their keys. kInvalidArgument: too long.
  static absl::StatusOr<std::string> RowOf(std::string_view name_space, std::string_view key);
  // The key within its name space.
  static std::string_view KeyOf(std::string_view row);
  static std::string_view NameSpaceOf(std::string_view row);

  const std::string* Find(std::string_view row) const;
  // Rows that begin with the row of a name space and a prefix, in byte order.
  std::vector<std::string> WithPrefix(std::string_view row_prefix) const;
  void Put(std::string row, std::string value);
  void Erase(std::string_view row);
  template <class Visit>  // Visit(row, value).
  void VisitPrefix(std::string_view row_prefix, Visit visit) const {
    for (auto at = rows_.lower_bound(row_prefix);
         at != rows_.end() && at->first.starts_with(row_prefix); ++at) {
      visit(at->first, at->second);
    }
  }

  size_t size() const { return rows_.size(); }
  uint64_t bytes() const { return bytes_; }

 private:
  absl::btree_map<std::string, std::string, std::less<>> rows_;
  uint64_t bytes_ = 0;  // Keys and values.
};

}  // namespace sheaf
