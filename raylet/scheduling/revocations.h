// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Leases that were asked back: which owners have not answered in time, and whose leases were ended
// at the worker for that. Such an owner may still push for the lease when it goes on (those pushes
// bounce), until it says itself that it returns it, or has heard that the worker died meanwhile.
// Pure; one thread.
#pragma once

#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "base/clock.h"
#include "base/ids.h"

namespace sheaf {

class Revocations {
 public:
  static constexpr Nanos kPatience = kSecond;  // An owner that is not stopped answers far sooner.

  void OnAsked(LeaseNumber lease, Nanos now) {
    asked_.emplace_back(Deadline(now, kPatience), lease);
  }
  // Those asked back so long ago; each once. Some were returned since.
  std::vector<LeaseNumber> TakeOverdue(Nanos now) {
    std::vector<LeaseNumber> overdue;
    for (; !asked_.empty() && asked_.front().first <= now; asked_.pop_front())
      overdue.push_back(asked_.front().second);
    return overdue;
  }

  void OnTaken(LeaseNumber lease, ProcessId owner, ProcessId worker) {
    taken_[lease] = {owner, worker};
  }
  // `owner` returns `lease`, which was taken from it: the worker that it had.
  std::optional<ProcessId> OnOwnerReturned(LeaseNumber lease, ProcessId owner) {
    const auto it = taken_.find(lease);
    if (it == taken_.end() || it->second.owner != owner) return std::nullopt;
    const ProcessId worker = it->second.worker;
    taken_.erase(it);
    return worker;
  }
  // `owner` has heard that `worker` is dead, so it returns nothing of it. Whether something was
  // taken from it there.
  bool OnDeathHeard(ProcessId owner, ProcessId worker) {
    return absl::erase_if(taken_, [&](const auto& entry) {
             return entry.second.owner == owner && entry.second.worker == worker;
           }) > 0;
  }
  // Owners that will never speak again.
  template <class Gone>
  void ForgetOwners(Gone gone) {
    absl::erase_if(taken_, [&](const auto& entry) { return gone(entry.second.owner); });
  }

 private:
  struct Taken {
    ProcessId owner;
    ProcessId worker;
  };
  std::deque<std::pair<Nanos, LeaseNumber>> asked_;
  absl::btree_map<LeaseNumber, Taken> taken_;
};

}  // namespace sheaf
