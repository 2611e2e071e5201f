// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "worker/core/loop_calls.h"

#include <iterator>
#include <utility>

#include "base/failpoint.h"

namespace sheaf {

void LoopCalls::Collect(std::vector<std::shared_ptr<Execution>>* calls, bool* waits) {
  calls->insert(calls->end(), std::make_move_iterator(fetched_.begin()),
                std::make_move_iterator(fetched_.end()));
  fetched_.clear();
  for (auto& group : core_.executor.groups()) {
    while (core_.executor.HasWork(*group) &&
           group->queue.front()->spec().kind() == proto::TaskTemplate::ACTOR_METHOD) {
      SHEAF_FAILPOINT("worker.before_call");
      std::shared_ptr<CallExecution> call = core_.executor.Take(*group);
      if (!call->has_store_arguments()) [[likely]] {
        calls->push_back(std::move(call));
        continue;
      }
      ArgumentFetch& fetch = waiting_.emplace_back(core_, std::move(call));
      if (fetch.Begin() && fetch.call()->Unpack()) {
        calls->push_back(fetch.call());
        waiting_.pop_back();
        continue;
      }
      group->held_back = true;
      *waits = true;
    }
  }
}

bool LoopCalls::Look() {
  for (ready_ = waiting_.begin(); ready_ != waiting_.end(); ++ready_) {
    if (ready_->Look()) return true;
  }
  return false;
}

void LoopCalls::EndWait(const absl::Status& waited) {
  const auto ended = waited.ok() ? ready_ : waiting_.begin();
  const std::shared_ptr<CallExecution> call = ended->call();
  const absl::Status fetched = ended->End(waited);
  call->group->held_back = false;
  if (ProcessCore::MayStart(*call, fetched)) fetched_.push_back(call);
  waiting_.erase(ended);
}

}  // namespace sheaf
