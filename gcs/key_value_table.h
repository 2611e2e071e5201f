// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Keys and values, by name space, and the jobs that own them; those of users have no owner. Pure:
// what a command would write is computed first (key_value_service.cc runs it through the pipeline),
// and applied once it is durable.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/status/statusor.h"
#include "base/ids.h"

namespace sheaf {

class KeyValueTable {
 public:
  static constexpr size_t kMaxKeyBytes = 4096;
  static constexpr size_t kMaxValueBytes = 32 << 20;
  // Owns what was uploaded for jobs that are still to be submitted.
  static constexpr JobNumber kNoJobYet = UINT32_MAX;

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
  // With its owners.
  void Erase(std::string_view row);
  // Who owns a row of the table; empty: nobody, it stays until it is deleted.
  const std::set<JobNumber>& OwnersOf(std::string_view row) const;
  void AddOwner(std::string_view row, JobNumber job);
  void RemoveOwner(std::string_view row, JobNumber job);
  std::vector<std::string> RowsOf(JobNumber job) const;
  std::set<JobNumber> Owners() const;
  // Keys and values that have owners. Visits them all.
  uint64_t OwnedBytes() const;
  template <class Visit>  // Visit(row, value). An empty prefix: all.
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
  absl::btree_map<std::string, std::set<JobNumber>, std::less<>> owners_;  // None is empty.
  std::map<JobNumber, std::set<std::string, std::less<>>> by_owner_;
  uint64_t bytes_ = 0;  // Keys and values.
};

}  // namespace sheaf
