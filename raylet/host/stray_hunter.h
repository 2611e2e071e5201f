// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Finds descendants of workers that outlived them: orphans that the kernel gave to this process,
// their subreaper. They are kept while their job lives, killed when it ends, and reaped in any
// case. One thread.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "base/ids.h"

namespace sheaf {

// Orphans of this process's descendants become its children from here on. Once per process.
void BecomeSubreaper();

class StrayHunter {
 public:
  // `session`: the first part of SHEAF_JOB in the processes of this node. `own_all_children`:
  // whoever is a child of this process and unknown is a stray; else only who carries the mark or
  // belongs to a worker's process group.
  StrayHunter(std::string session, bool own_all_children)
      : session_(std::move(session)), own_all_children_(own_all_children) {}

  // The value of SHEAF_JOB for processes of `job`.
  std::string Mark(JobNumber job) const;
  // A worker of `job` leads the process group `pid`.
  void AddGroup(pid_t pid, JobNumber job) { groups_[pid] = job; }
  // From here on strays of `job` are killed.
  void EndJob(JobNumber job) { ended_.insert(job); }

  // Until EndHunt: strays of `job` are killed unless they are in the process group or session of
  // one of `spared`.
  void Hunt(JobNumber job, absl::flat_hash_set<pid_t> spared) { hunted_[job] = std::move(spared); }
  void EndHunt(JobNumber job) { hunted_.erase(job); }

  // Reaps dead strays and kills those whose job has ended, or all (`everything`). `is_known`:
  // children that somebody else waits for. Returns the number of those killed now; their own
  // children become strays in turn, so sweep again until it is 0.
  int Sweep(const std::function<bool(pid_t)>& is_known, bool everything);

 private:
  struct Stray {
    JobNumber job = 0;  // 0: unknown.
    bool ours = false;
  };
  Stray Identify(pid_t pid) const;
  bool IsHunted(pid_t pid, JobNumber job) const;

  const std::string session_;
  const bool own_all_children_;
  absl::flat_hash_map<pid_t, Stray> seen_;  // Living ones, so that each is looked at once.
  absl::flat_hash_map<pid_t, JobNumber> groups_;
  absl::flat_hash_set<JobNumber> ended_;
  // With those that are spared.
  absl::flat_hash_map<JobNumber, absl::flat_hash_set<pid_t>> hunted_;
};

}  // namespace sheaf
