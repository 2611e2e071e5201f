// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "gcs/submissions/submission_table.h"

namespace sheaf {
namespace {

// What stands behind each gcs:// in the JSON of an environment. One that is named twice is there
// twice.
std::vector<std::string> PackagesOf(const proto::Submission& info) {
  constexpr std::string_view kScheme = "gcs://";
  std::string text = info.entrypoint().runtime_env();
  std::erase(text, '\\');  // "gcs:\/\/" is the same.
  std::vector<std::string> names;
  for (size_t at = text.find(kScheme); at != std::string::npos; at = text.find(kScheme, at)) {
    at += kScheme.size();
    names.push_back(text.substr(at, text.find('"', at) - at));
  }
  return names;
}

}  // namespace

SubmissionEntry* SubmissionTable::Find(std::string_view id) {
  const auto found = submissions_.find(id);
  return found == submissions_.end() ? nullptr : &found->second;
}

const SubmissionEntry* SubmissionTable::Find(std::string_view id) const {
  const auto found = submissions_.find(id);
  return found == submissions_.end() ? nullptr : &found->second;
}

SubmissionEntry& SubmissionTable::Put(proto::Submission info) {
  const std::string id = info.entrypoint().submission_id();
  if (const SubmissionEntry* known = Find(id)) Unindex(known->info);
  by_number_[info.number()] = id;
  ++by_state_[info.state()];
  if (HasEnded(info.state())) {
    ended_.emplace(info.ended_unix_ms(), info.number());
  } else {
    living_.insert(id);
  }
  for (std::string& name : PackagesOf(info)) ++packages_[std::move(name)];
  SubmissionEntry& entry = submissions_[id];
  entry.info = std::move(info);
  return entry;
}

void SubmissionTable::Erase(std::string_view id) {
  const auto found = submissions_.find(id);
  if (found == submissions_.end()) return;
  Unindex(found->second.info);
  submissions_.erase(found);
}

void SubmissionTable::Unindex(const proto::Submission& info) {
  by_number_.erase(info.number());
  --by_state_[info.state()];
  living_.erase(info.entrypoint().submission_id());
  ended_.erase({info.ended_unix_ms(), info.number()});
  for (const std::string& name : PackagesOf(info)) {
    const auto found = packages_.find(name);
    if (--found->second == 0) packages_.erase(found);
  }
}

std::vector<std::string> SubmissionTable::LivingOn(NodeNumber node) const {
  std::vector<std::string> ids;
  for (const std::string& id : living_) {
    const proto::Submission& info = Find(id)->info;
    if (info.state() != proto::Submission::PENDING && info.node() == node) ids.push_back(id);
  }
  return ids;
}

std::vector<std::string> SubmissionTable::Surplus(size_t max) const {
  std::vector<std::string> ids;
  for (auto at = ended_.begin(); at != ended_.end() && ids.size() + max < ended_.size(); ++at)
    ids.push_back(by_number_.at(at->second));
  return ids;
}

}  // namespace sheaf
