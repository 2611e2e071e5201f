// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "gcs/function_table.h"

#include <utility>

namespace sheaf {

const FunctionTable::Blob* FunctionTable::Find(std::string_view hash) const {
  const auto found = blobs_.find(hash);
  return found == blobs_.end() ? nullptr : &found->second;
}

void FunctionTable::Put(std::string_view hash, std::string data) {
  bytes_ += data.size();
  blobs_[std::string(hash)].data = std::move(data);
}

void FunctionTable::AddJob(std::string_view hash, JobNumber job) {
  const auto found = blobs_.find(hash);
  if (found == blobs_.end()) return;
  found->second.jobs.insert(job);
  by_job_[job].insert(std::string(hash));
}

void FunctionTable::RemoveJob(std::string_view hash, JobNumber job) {
  const auto found = blobs_.find(hash);
  if (found == blobs_.end()) return;
  if (const auto of_job = by_job_.find(job); of_job != by_job_.end()) {
    of_job->second.erase(std::string(hash));
    if (of_job->second.empty()) by_job_.erase(of_job);
  }
  found->second.jobs.erase(job);
  if (!found->second.jobs.empty()) return;
  bytes_ -= found->second.data.size();
  blobs_.erase(found);
}

std::vector<std::string> FunctionTable::HashesOf(JobNumber job) const {
  const auto found = by_job_.find(job);
  if (found == by_job_.end()) return {};
  return {found->second.begin(), found->second.end()};
}

std::set<JobNumber> FunctionTable::Jobs() const {
  std::set<JobNumber> jobs;
  for (const auto& [job, hashes] : by_job_) jobs.insert(job);
  return jobs;
}

}  // namespace sheaf
