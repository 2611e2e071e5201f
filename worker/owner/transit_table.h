// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// References inside frames on their way: the sender keeps them alive until the receiver says that
// their owners know of it (kTransitDone), or is dead.
#pragma once

#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/flat_hash_map.h"
#include "base/ids.h"
#include "worker/owner/object_handle.h"

namespace sheaf {

class TransitTable {
 public:
  // The number that the frame carries; 0 for none.
  uint64_t Hold(ProcessId receiver, std::vector<ObjectHandle> references) {
    if (references.empty()) return 0;
    transits_[receiver].emplace(next_, std::move(references));
    ++size_;
    return next_++;
  }
  void Done(ProcessId from, uint64_t transit) {
    const auto to = transits_.find(from);
    if (to == transits_.end()) return;
    size_ -= to->second.erase(transit);
    if (to->second.empty()) transits_.erase(to);
  }
  void ProcessDied(ProcessId process) {
    const auto to = transits_.find(process);
    if (to == transits_.end()) return;
    size_ -= to->second.size();
    transits_.erase(to);
  }
  size_t size() const { return size_; }

 private:
  // By receiver and number.
  absl::flat_hash_map<ProcessId, absl::btree_map<uint64_t, std::vector<ObjectHandle>>> transits_;
  size_t size_ = 0;
  uint64_t next_ = 1;
};

}  // namespace sheaf
