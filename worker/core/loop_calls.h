// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The calls of an async actor whose language runs them in an event loop: those that may start are
// the loop's at once; those whose arguments must be waited for are a helper's until they are there,
// and hold back the later ones of their group: each would hold its arguments, and the store is small. Guarded by the runtime's lock.
#pragma once

#include <list>
#include <memory>
#include <vector>

#include "worker/core/argument_fetch.h"
#include "worker/core/process_core.h"

namespace sheaf {

class LoopCalls {
 public:
  explicit LoopCalls(ProcessCore& core) : core_(core) {}

  // Adds to `calls` those that may start. Sets `waits` if some are the helper's from now on.
  void Collect(std::vector<std::shared_ptr<Execution>>* calls, bool* waits);

  // The helper has something to do.
  bool any_waits() const { return !waiting_.empty(); }
  // To be asked when something has changed: the arguments of one are there, whatever the other
  // groups wait for, or it shall not start. EndWait is next.
  bool Look();
  // Ends the wait for that one, or for the first if `waited` says why nobody waits any more: it is
  // the loop's, or has failed.
  void EndWait(const absl::Status& waited);

 private:
  ProcessCore& core_;
  std::list<ArgumentFetch> waiting_;
  std::list<ArgumentFetch>::iterator ready_ = waiting_.end();  // What Look has found.
  std::vector<std::shared_ptr<Execution>> fetched_;            // For the loop.
};

}  // namespace sheaf
