// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "gcs/key_value_table.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gcs/row_key.h"

namespace sheaf {
namespace {

constexpr size_t kLengthBytes = 4;

}  // namespace

absl::StatusOr<std::string> KeyValueTable::RowOf(std::string_view name_space,
                                                 std::string_view key) {
  if (name_space.size() > kMaxKeyBytes || key.size() > kMaxKeyBytes) {
    return absl::InvalidArgumentError(absl::StrCat("a key of ", key.size(),
                                                   " bytes in a name space of ", name_space.size(),
                                                   ": at most ", kMaxKeyBytes, " each"));
  }
  std::string row = RowKey(static_cast<uint32_t>(name_space.size()));
  row.append(name_space).append(key);
  return row;
}

std::string_view KeyValueTable::NameSpaceOf(std::string_view row) {
  const uint32_t size = NumberFromRowKey<uint32_t>(row.substr(0, kLengthBytes)).value_or(0);
  return row.substr(std::min(kLengthBytes, row.size()), size);
}

std::string_view KeyValueTable::KeyOf(std::string_view row) {
  return row.substr(std::min(kLengthBytes + NameSpaceOf(row).size(), row.size()));
}

const std::string* KeyValueTable::Find(std::string_view row) const {
  const auto found = rows_.find(row);
  return found == rows_.end() ? nullptr : &found->second;
}

std::vector<std::string> KeyValueTable::WithPrefix(std::string_view row_prefix) const {
  std::vector<std::string> rows;
  VisitPrefix(row_prefix, [&](const std::string& row, const std::string&) { rows.push_back(row); });
  return rows;
}

void KeyValueTable::Put(std::string row, std::string value) {
  Erase(row);
  bytes_ += row.size() + value.size();
  rows_.emplace(std::move(row), std::move(value));
}

void KeyValueTable::Erase(std::string_view row) {
  const auto found = rows_.find(row);
  if (found == rows_.end()) return;
  bytes_ -= found->first.size() + found->second.size();
  rows_.erase(found);
}

}  // namespace sheaf
