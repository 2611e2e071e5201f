// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Functions and packages by the hash of their content, and the jobs that need them. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"

namespace sheaf {

class FunctionTable {
 public:
  static constexpr size_t kMaxHashBytes = 64;
  static constexpr size_t kMaxBlobBytes = 32 << 20;

  struct Blob {
    std::string data;
    std::set<JobNumber> jobs;  // Gone when empty.
  };
  const Blob* Find(std::string_view hash) const;
  void Put(std::string_view hash, std::string data);
  void AddJob(std::string_view hash, JobNumber job);  // After Put.
  // Forgets that `job` needs it, and the blob with its last job.
  void RemoveJob(std::string_view hash, JobNumber job);
  std::vector<std::string> HashesOf(JobNumber job) const;
  std::set<JobNumber> Jobs() const;

  size_t size() const { return blobs_.size(); }
  uint64_t bytes() const { return bytes_; }

 private:
  std::map<std::string, Blob, std::less<>> blobs_;
  std::map<JobNumber, std::set<std::string>> by_job_;
  uint64_t bytes_ = 0;
};

}  // namespace sheaf
