// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Submissions by id and by number, those that have ended for a while as well.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "gcs/submissions/submission_state.h"
#include "proto/gcs.pb.h"

namespace sheaf {

// `info` is what is on disk; all else is soft.
struct SubmissionEntry {
  proto::Submission info;
  std::string pending_words;  // Of PENDING and STARTING: what it waits for.
  bool infeasible = false;    // No node could ever run it, when one was looked for last.
  NodeNumber avoid = 0;       // The raylet that gave it back: not asked again at once.
  Nanos next_order = 0;       // When its node is looked for, or told, again.
  Nanos give_up_at = 0;       // When it fails if it does not run.
};

class SubmissionTable {
 public:
  SubmissionEntry* Find(std::string_view id);
  const SubmissionEntry* Find(std::string_view id) const;
  // Adds it, or replaces what is durable of it.
  SubmissionEntry& Put(proto::Submission info);
  void Erase(std::string_view id);

  // Not ended, in the order of ids.
  const std::set<std::string, std::less<>>& living() const { return living_; }
  std::vector<std::string> LivingOn(NodeNumber node) const;
  // Those that ended first, when more than `max` that have ended are remembered.
  std::vector<std::string> Surplus(size_t max) const;
  // By number, which is the order of acceptance.
  const std::map<uint64_t, std::string>& by_number() const { return by_number_; }
  size_t size() const { return submissions_.size(); }
  // How many there are in each Submission::State.
  const std::array<uint64_t, 6>& by_state() const { return by_state_; }
  // Whether the runtime environment of one of them has gcs://`name`.
  bool NamesPackage(std::string_view name) const { return packages_.contains(name); }

 private:
  void Unindex(const proto::Submission& info);

  std::map<std::string, SubmissionEntry, std::less<>> submissions_;
  std::map<uint64_t, std::string> by_number_;
  std::set<std::string, std::less<>> living_;
  std::set<std::pair<int64_t, uint64_t>> ended_;         // {time of its end, number}.
  std::map<std::string, size_t, std::less<>> packages_;  // How many name each.
  std::array<uint64_t, 6> by_state_{};
};

}  // namespace sheaf
