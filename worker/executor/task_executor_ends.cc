// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// How calls end at their executor: the answer, and what the owner is told beside it.
#include <utility>

#include "base/failpoint.h"
#include "worker/executor/task_executor.h"

namespace sheaf {

void TaskExecutor::NoteEnded(CallExecution* call) {
  if (closing_) [[unlikely]] {
    delete call;
    return;
  }
  ended_.push_back(call);
}

void TaskExecutor::FinishEnded() {
  for (size_t i = 0; i < ended_.size(); ++i) {  // By index: the end of one may end another.
    Answer(*ended_[i]);
    Recycle(ended_[i]);
  }
  ended_.clear();
}

void TaskExecutor::Answer(CallExecution& call) {
  if (call.group != nullptr) {
    --call.group->running;
    (call.previous_running != nullptr ? call.previous_running->next_running : running_) =
        call.next_running;
    if (call.next_running != nullptr) call.next_running->previous_running = call.previous_running;
    (call.started != 0 ? tasks_executed_ : calls_executed_).AddUnderLock();
  }
  const Nanos end = call.started != 0 ? clock_.Now() : 0;
  events_.OnEnd(call, end);
  bool keeps = false;
  for (ObjectEntry* entry : call.held) {
    keeps |=
        !entry->owned && (entry->uses > 1 || entry->handles.load(std::memory_order_acquire) != 0);
  }
  if (!call.discarded) {
    const uint64_t transit = transits_.Hold(call.owner, call.TakeReturnedNested());
    const auto run_ns = static_cast<uint64_t>(end != 0 ? end - call.started : 0);
    if (run_ns != 0) run_time_.ObserveUnderLock(static_cast<int64_t>(run_ns));
    SHEAF_FAILPOINT("worker.before_reply");
    Channel& owner = transport_.To(call.owner);
    call.SendReply(owner, run_ns, transit, keeps);
    const bool behind = owner.queued_bytes() >= limits_.max_untaken;
    if (behind || some_owner_behind()) [[unlikely]]
      NoteOwner(call.owner, behind);
    if (keeps) {
      references_.AfterRegistered(call.held, [this, owner = call.owner, head = call.head()] {
        transport_.To(owner).Send(Lane::kControl, FrameKind::kTransitDone,
                                  AsBytes(TransitDone{0, head.task_sequence_bits, head.cookie, 0}));
      });
    }
  }
  references_.DropUses(call.held);
  call.held.clear();
  if (returning_) [[unlikely]]
    ReturnLeaseIfIdle();
}

bool TaskExecutor::IsOwnerBehind(const CallExecution& call) {
  return !call.discarded && transport_.To(call.owner).queued_bytes() >= limits_.max_untaken;
}

void TaskExecutor::NoteOwner(ProcessId owner, bool behind) {
  if (behind) {
    owner_behind_.store(owner.packed(), std::memory_order_relaxed);
  } else if (owner_behind_.load(std::memory_order_relaxed) == owner.packed()) {
    owner_behind_.store(0, std::memory_order_relaxed);  // Another's next reply says it again.
  }
}

}  // namespace sheaf
