// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "gcs/submissions/deleted_submissions.h"

namespace sheaf {

proto::Submission DeletedSubmissions::RestOf(const proto::Submission& info, int64_t unix_ms) {
  proto::Submission rest;
  rest.mutable_entrypoint()->set_submission_id(info.entrypoint().submission_id());
  rest.set_number(info.number());
  rest.set_state(info.state());
  rest.set_attempt(info.attempt());
  rest.set_idempotency_key(info.idempotency_key());
  rest.set_deleted_unix_ms(unix_ms);
  return rest;
}

void DeletedSubmissions::Put(proto::Submission rest) {
  const std::string id = rest.entrypoint().submission_id();
  Erase(id);
  by_time_.emplace(rest.deleted_unix_ms(), id);
  by_id_[id] = std::move(rest);
}

void DeletedSubmissions::Erase(std::string_view id) {
  const auto found = by_id_.find(id);
  if (found == by_id_.end()) return;
  by_time_.erase({found->second.deleted_unix_ms(), found->first});
  by_id_.erase(found);
}

const proto::Submission* DeletedSubmissions::Find(std::string_view id) const {
  const auto found = by_id_.find(id);
  return found == by_id_.end() ? nullptr : &found->second;
}

std::vector<std::string> DeletedSubmissions::Surplus(int64_t unix_ms, size_t max) const {
  std::vector<std::string> ids;
  for (const auto& [deleted, id] : by_time_) {
    if (deleted >= unix_ms && ids.size() + max >= by_time_.size()) break;
    ids.push_back(id);
  }
  return ids;
}

}  // namespace sheaf
