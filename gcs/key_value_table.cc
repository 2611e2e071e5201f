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
  const auto [at, added] = rows_.try_emplace(std::move(row));
  if (added) bytes_ += at->first.size();
  bytes_ += value.size() - at->second.size();
  at->second = std::move(value);
}

void KeyValueTable::Erase(std::string_view row) {
  const auto found = rows_.find(row);
  if (found == rows_.end()) return;
  for (const JobNumber job : std::set<JobNumber>(OwnersOf(row))) RemoveOwner(row, job);
  bytes_ -= found->first.size() + found->second.size();
  rows_.erase(found);
}

const std::set<JobNumber>& KeyValueTable::OwnersOf(std::string_view row) const {
  static const std::set<JobNumber>& none = *new std::set<JobNumber>();
  const auto found = owners_.find(row);
  return found == owners_.end() ? none : found->second;
}

void KeyValueTable::AddOwner(std::string_view row, JobNumber job) {
  if (Find(row) == nullptr) return;
  owners_[std::string(row)].insert(job);
  by_owner_[job].emplace(row);
}

void KeyValueTable::RemoveOwner(std::string_view row, JobNumber job) {
  if (const auto found = owners_.find(row); found != owners_.end()) {
    found->second.erase(job);
    if (found->second.empty()) owners_.erase(found);
  }
  if (const auto found = by_owner_.find(job); found != by_owner_.end()) {
    if (const auto at = found->second.find(row); at != found->second.end()) found->second.erase(at);
    if (found->second.empty()) by_owner_.erase(found);
  }
}

std::vector<std::string> KeyValueTable::RowsOf(JobNumber job) const {
  const auto found = by_owner_.find(job);
  if (found == by_owner_.end()) return {};
  return {found->second.begin(), found->second.end()};
}

std::set<JobNumber> KeyValueTable::Owners() const {
  std::set<JobNumber> jobs;
  for (const auto& [job, rows] : by_owner_) jobs.insert(job);
  return jobs;
}

uint64_t KeyValueTable::OwnedBytes() const {
  uint64_t bytes = 0;
  for (const auto& [row, jobs] : owners_) bytes += row.size() + Find(row)->size();
  return bytes;
}

}  // namespace sheaf
