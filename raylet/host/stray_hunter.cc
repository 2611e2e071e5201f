// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "raylet/host/stray_hunter.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/config.h"
#include "raylet/host/proc_files.h"

namespace sheaf {

void BecomeSubreaper() { prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); }

std::string StrayHunter::Mark(JobNumber job) const { return absl::StrCat(session_, "/", job); }

StrayHunter::Stray StrayHunter::Identify(pid_t pid) const {
  Stray stray;
  if (const std::optional<std::string> mark = ReadProcVariable(pid, kJobVariable)) {
    absl::string_view text = *mark;
    if (absl::ConsumePrefix(&text, session_) && absl::ConsumePrefix(&text, "/") &&
        absl::SimpleAtoi(text, &stray.job)) {
      stray.ours = true;
      return stray;
    }
  }
  const std::optional<ProcStat> stat = ReadProcStat(pid);
  for (const pid_t leader : {stat ? stat->group : 0, stat ? stat->session : 0}) {
    const auto found = groups_.find(leader);
    if (found == groups_.end()) continue;
    return {found->second, true};
  }
  stray.ours = own_all_children_;
  return stray;
}

bool StrayHunter::IsHunted(pid_t pid, JobNumber job) const {
  const auto hunted = hunted_.find(job);
  if (hunted == hunted_.end()) return false;
  const std::optional<ProcStat> stat = ReadProcStat(pid);
  return stat && !hunted->second.contains(stat->group) && !hunted->second.contains(stat->session);
}

int StrayHunter::Sweep(const std::function<bool(pid_t)>& is_known, bool everything) {
  int killed = 0;
  absl::flat_hash_map<pid_t, Stray> seen;
  for (pid_t pid : ChildrenOfThisProcess()) {
    if (is_known(pid)) continue;
    const auto before = seen_.find(pid);
    const Stray stray = before != seen_.end() ? before->second : Identify(pid);
    if (!stray.ours) continue;
    if (everything || ended_.contains(stray.job) || IsHunted(pid, stray.job)) {
      // It is this process's child and not reaped yet, so its number is still its own.
      if (kill(pid, SIGKILL) == 0) ++killed;
    }
    if (waitpid(pid, nullptr, WNOHANG) == pid) continue;
    seen[pid] = stray;
  }
  seen_ = std::move(seen);
  return killed;
}

}  // namespace sheaf
