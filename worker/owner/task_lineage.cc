// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The lineage of the task table: finished calls that can make their results again. They hold their
// arguments for lineage alone, so the bytes of those are not kept (reference_table.h); what is kept
// is bounded, the oldest recipes go first. A call that runs again takes its arguments back, and has
// those made again before it of which nothing else is left: by a list, however long the chain.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "worker/owner/task_table.h"

namespace sheaf {

void TaskTable::DropArguments(TaskRecord& task) {
  if (!task.references) return;
  for (auto& argument : std::exchange(task.references->arguments, {})) {
    references_.DropUse(*argument.object);
  }
  references_.DropUses(std::exchange(task.references->nested, {}));
}

bool TaskTable::MayRunAgain(const TaskRecord& task) {
  return task.retries_left != 0 && task.spec->spec.kind() == proto::TaskTemplate::TASK;
}

// What is kept of it, with the entries of its results: those that only other recipes name would go
// without it.
uint32_t TaskTable::LineageBytes(const TaskRecord& task) {
  size_t bytes = sizeof(TaskRecord) + task.arguments.size() + sizeof(ObjectEntry);
  if (task.references) {
    const TaskReferences& references = *task.references;
    bytes += sizeof references + references.name.size() +
             references.arguments.size() * sizeof(TaskReferences::Argument) +
             references.nested.size() * sizeof(ObjectEntry*) +
             references.more_returns.size() * (sizeof(ObjectEntry) + sizeof(ObjectEntry*));
  }
  return static_cast<uint32_t>(std::min<size_t>(bytes, UINT32_MAX));
}

void TaskTable::EnterLineage(TaskRecord& task) {
  task.lineage_bytes = LineageBytes(task);
  lineage_bytes_ += task.lineage_bytes;
  lineage_.PushBack(&task);
  if (task.references) {
    for (auto& argument : task.references->arguments) references_.UseForLineage(*argument.object);
    for (ObjectEntry* inner : task.references->nested) references_.UseForLineage(*inner);
  }
  EvictLineage();
}

void TaskTable::LeaveLineage(TaskRecord& task) {
  lineage_bytes_ -= std::exchange(task.lineage_bytes, 0);
  lineage_.Remove(&task);
  if (!task.references) return;
  for (auto& argument : std::exchange(task.references->arguments, {})) {
    references_.DropLineageUse(*argument.object);
  }
  for (ObjectEntry* inner : std::exchange(task.references->nested, {})) {
    references_.DropLineageUse(*inner);
  }
}

// The reverse of EnterLineage. Those of its arguments that must be made first are added to
// `before`.
void TaskTable::TakeArgumentsBack(TaskRecord& task, std::vector<ObjectEntry*>* before) {
  lineage_bytes_ -= std::exchange(task.lineage_bytes, 0);
  lineage_.Remove(&task);
  if (!task.references) return;
  for (auto& argument : task.references->arguments) {
    references_.UseAgain(*argument.object);
    if (argument.object->released) before->push_back(argument.object);
  }
  for (ObjectEntry* inner : task.references->nested) references_.UseAgain(*inner);
}

void TaskTable::EvictLineage() {
  while (lineage_bytes() > lineage_bound_ && !lineage_.empty()) ForgetRecipe(*lineage_.first);
}

void TaskTable::ForgetRecipe(TaskRecord& task) {
  if (task.stream) return ForgetRecipeOfStream(task);
  const auto forget = [](ObjectEntry* result) {
    if (result == nullptr) return;
    result->task = nullptr;
    result->recipe_evicted = true;
  };
  forget(task.first_return);
  if (task.references) {
    for (ObjectEntry* more : task.references->more_returns) forget(more);
  }
  LeaveLineage(task);
  Delete(&task);
}

void TaskTable::ReleaseLineage(ObjectEntry& entry) {
  TaskRecord& task = *entry.task;
  // The CreatedActors ends it.
  if (task.spec->spec.kind() == proto::TaskTemplate::ACTOR_CREATION) return;
  entry.task = nullptr;
  if (task.stream) return ReleaseOfStream(task, entry);
  // Unfinished calls hold their results, so this is none.
  if (task.state != TaskState::kFinished) return;
  if (task.first_return == &entry) task.first_return = nullptr;
  bool others = task.first_return != nullptr;
  if (task.references) {
    auto& more = task.references->more_returns;
    std::erase(more, &entry);
    others |= !more.empty();
  }
  if (others) return;
  LeaveLineage(task);
  Delete(&task);
}

bool TaskTable::Reconstruct(ObjectEntry& entry, TaskDispatcher& dispatcher) {
  std::vector<ObjectEntry*> before;
  if (!RunAgain(entry, dispatcher, &before)) return false;
  while (!before.empty()) {
    ObjectEntry& argument = *before.back();
    before.pop_back();
    if (!argument.released) continue;  // It was an argument of several.
    if (!argument.owned) {
      references_.BorrowAgain(argument);
      if (want_borrowed_) want_borrowed_(argument);
    } else if (!RunAgain(argument, dispatcher, &before)) {
      references_.SetError(argument,
                           {ErrorKind::kReconstructionFailed,
                            absl::StrCat("the object ", argument.id.ToHex(),
                                         ", which is needed to make a lost one again, cannot be "
                                         "made again itself: ",
                                         WhyNotAgain(argument)),
                            {}});
    }
  }
  return true;
}

void TaskTable::Remake(ObjectEntry& entry, TaskDispatcher& dispatcher) {
  if (!entry.released) return;
  if (!entry.owned) {
    references_.BorrowAgain(entry);
    return;
  }
  references_.AddUse(entry);
  if (!Reconstruct(entry, dispatcher)) {
    references_.SetError(entry, {ErrorKind::kReconstructionFailed,
                                 absl::StrCat("the object ", entry.id.ToHex(),
                                              " cannot be made again: ", WhyNotAgain(entry)),
                                 {}});
  }
  references_.DropUse(entry);
}

std::string TaskTable::WhyNotAgain(const ObjectEntry& entry) const {
  const TaskRecord* task = entry.task;
  if (task != nullptr && task->cancelled) return absl::StrCat(Describe(*task), " was cancelled");
  if (task != nullptr && task->retries_left == 0)
    return absl::StrCat(Describe(*task), " has used up its retries (max_retries)");
  if (task != nullptr) return {};
  if (entry.recipe_evicted) {
    return absl::StrCat("the process that owns it keeps the calls that made its objects, up to ",
                        lineage_bound_ >> 20, " MiB of them, and this one was among the oldest");
  }
  return "no call made it that may run again: it was put, or came from an actor, or from a call "
         "that has no retries left; hold a reference to what must outlive the loss of a node";
}

bool TaskTable::RunAgain(ObjectEntry& entry, TaskDispatcher& dispatcher,
                         std::vector<ObjectEntry*>* before) {
  TaskRecord* task = MakerOf(entry);
  if (task == nullptr) return false;
  if (task->stream) return ReconstructItem(*task, dispatcher, before);
  if (task->lineage_bytes == 0 || !TakeRetry(*task)) return false;
  TakeArgumentsBack(*task, before);
  if (task->first_return == nullptr) {
    // Its handle is gone, the slot is needed for the reply all the same.
    task->first_return = references_.NewOwned(ReturnOf(IdOf(*task), 0));
    task->first_return->task = task;
  }
  const auto rerun = [&](ObjectEntry& result) {
    references_.AddUse(result);
    // What is there stays: somebody may be looking at it.
    const bool lost = result.state == ObjectState::kStore && !result.location.known();
    if (&result == &entry || lost || result.released) references_.SetPending(result);
  };
  rerun(*task->first_return);
  if (task->references) {
    for (ObjectEntry* more : task->references->more_returns) rerun(*more);
  }
  ++reconstructions_;
  Start(*task, dispatcher);
  return true;
}

}  // namespace sheaf
