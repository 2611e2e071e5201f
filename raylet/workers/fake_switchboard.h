// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Knows who is joined with whom, makes no rings.
#pragma once

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "raylet/workers/launcher.h"

namespace sheaf {

class FakeSwitchboard final : public Switchboard {
 public:
  absl::Status Connect(ProcessId a, ProcessId b) override {
    if (!error.ok()) return error;
    joined[a].insert(b);
    joined[b].insert(a);
    return absl::OkStatus();
  }
  void Remove(ProcessId process) override {
    removed.push_back(process);
    for (const ProcessId peer : joined[process]) joined[peer].erase(process);
    joined.erase(process);
  }
  std::pair<LeaseNumber, uint64_t> Started(ProcessId process, ProcessId caller) override {
    return started[{process, caller}];
  }
  std::vector<ProcessId> PeersOf(ProcessId process) override {
    const auto it = joined.find(process);
    if (it == joined.end()) return {};
    return {it->second.begin(), it->second.end()};
  }
  bool AreJoined(ProcessId a, ProcessId b) { return joined[a].contains(b); }

  std::map<ProcessId, std::set<ProcessId>> joined;
  // Of a process and a caller.
  std::map<std::pair<ProcessId, ProcessId>, std::pair<LeaseNumber, uint64_t>> started;
  std::vector<ProcessId> removed;
  absl::Status error;  // What Connect returns from now on, if not OK.
};

}  // namespace sheaf
