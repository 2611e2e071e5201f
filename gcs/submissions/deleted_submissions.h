// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The keys of submissions that were deleted: who repeats the request that made one, as its answer
// was lost, must not start the command again.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "proto/gcs.pb.h"

namespace sheaf {

class DeletedSubmissions {
 public:
  // What is left of `info` when it is deleted at `unix_ms`, to be written in its place: its id,
  // number and key, and no word of what it ran.
  static proto::Submission RestOf(const proto::Submission& info, int64_t unix_ms);

  // Adds what RestOf made, in the place of one of the same id.
  void Put(proto::Submission rest);
  void Erase(std::string_view id);
  // nullptr: none of this id, or the id is another's now.
  const proto::Submission* Find(std::string_view id) const;
  // Those that were deleted before `unix_ms`, and the first of more than `max`.
  std::vector<std::string> Surplus(int64_t unix_ms, size_t max) const;

 private:
  std::map<std::string, proto::Submission, std::less<>> by_id_;
  std::set<std::pair<int64_t, std::string>> by_time_;
};

}  // namespace sheaf
