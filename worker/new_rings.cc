// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "worker/new_rings.h"

#include <algorithm>
#include <utility>

namespace sheaf {

absl::StatusOr<std::vector<ProcessId>> NewRings::Match(Nanos now, Receive receive, Add add) {
  std::vector<ProcessId> lost;
  const auto take = [&](NewRingPair& pair) {  // False: not announced.
    const auto known = std::find_if(announced_.begin(), announced_.end(), [&](const Announced& a) {
      return a.ring == pair.ring && a.peer == pair.peer;
    });
    if (known == announced_.end()) return false;
    announced_.erase(known);
    const ProcessId peer = pair.peer;
    const absl::Status added = add(std::move(pair));
    if (!added.ok() && !absl::IsAlreadyExists(added)) lost.push_back(peer);
    return true;
  };
  std::erase_if(early_, take);
  while (!announced_.empty()) {
    absl::StatusOr<NewRingPair> pair = receive();
    if (absl::IsUnavailable(pair.status())) return pair.status();
    if (absl::IsDeadlineExceeded(pair.status())) break;
    if (!pair.ok()) continue;  // Its ring goes without.
    if (!take(*pair)) early_.push_back(*std::move(pair));
  }
  std::erase_if(announced_, [&](const Announced& waiting) {
    const bool over = now - waiting.since >= kPatience;
    if (over) lost.push_back(waiting.peer);
    return over;
  });
  return lost;
}

}  // namespace sheaf
