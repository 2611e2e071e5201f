// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The processes of the node as the store knows them: those that live, and the dead ones whose
// mappings may be in use still. One thread.
#pragma once

#include <memory>
#include <utility>

#include "absl/container/btree_map.h"
#include "base/check.h"
#include "base/ids.h"
#include "shm/process_segment.h"
#include "shm/segment.h"

namespace sheaf {

class StoreProcesses {
 public:
  // `segment`: that of the process (shm/process_segment.h), readable here.
  void Add(ProcessId process, std::shared_ptr<Mapping> segment) {
    SHEAF_CHECK(segment != nullptr && segment->size() >= kProcessSegmentBytes,
                "the segment of a process holds its hazard list");
    processes_[process] = {std::move(segment), /*alive=*/true};
  }
  // False: it was not alive, or is not known.
  bool MarkDead(ProcessId process) {
    const auto found = processes_.find(process);
    return found != processes_.end() && std::exchange(found->second.alive, false);
  }
  // No mapping of it exists any more.
  void Remove(ProcessId process) { processes_.erase(process); }

  bool Has(ProcessId process) const { return processes_.contains(process); }
  bool IsAlive(ProcessId process) const {
    const auto found = processes_.find(process);
    return found != processes_.end() && found->second.alive;
  }
  // Of the dead ones, too; in order.
  template <class Visit>
  void ForEachSegment(Visit&& visit) const {
    for (const auto& [id, process] : processes_) visit(*process.segment);
  }

 private:
  struct Process {
    std::shared_ptr<Mapping> segment;
    bool alive = true;
  };
  absl::btree_map<ProcessId, Process> processes_;
};

}  // namespace sheaf
