// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// References inside frames on their way: the sender keeps them alive until the receiver says that
// their owners know of it (kTransitDone), or is dead.
#pragma once

#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "base/ids.h"
#include "worker/object_handle.h"

namespace sheaf {

class TransitTable {
 public:
  // The number that the frame carries; 0 for none.
  uint64_t Hold(ProcessId receiver, std::vector<ObjectHandle> references) {
    if (references.empty()) return 0;
    transits_[next_] = {receiver, std::move(references)};
    return next_++;
  }
  void Done(ProcessId from, uint64_t transit) {
    auto found = transits_.find(transit);
    if (found != transits_.end() && found->second.receiver == from) transits_.erase(found);
  }
  void ProcessDied(ProcessId process) {
    for (auto transit = transits_.begin(); transit != transits_.end();) {
      transit = transit->second.receiver == process ? transits_.erase(transit) : std::next(transit);
    }
  }
  size_t size() const { return transits_.size(); }

 private:
  struct Transit {
    ProcessId receiver;
    std::vector<ObjectHandle> references;
  };
  absl::btree_map<uint64_t, Transit> transits_;
  uint64_t next_ = 1;
};

}  // namespace sheaf
