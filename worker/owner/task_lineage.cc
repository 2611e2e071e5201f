// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The lineage of the task table: finished calls that can make their results again. They hold their
// arguments for lineage alone, so the bytes of those are not kept (reference_table.h); what is kept
// is bounded, the oldest recipes go first. A call that runs again takes its arguments back, and has
// those made again before it of which nothing else is left: by a list, however long the chain.
#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
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

namespace {

// Neither do the calls take a retry whose results are made again for one that was given up.
void PassOnGivenUp(const TaskRecord& task) {
  if (!task.given_up || !task.references) return;
  const auto pass_on = [](const ObjectEntry& used) {
    const bool goes_again = used.owned && used.released && used.task != nullptr;
    if (goes_again && used.task->state == TaskState::kFinished) used.task->given_up = true;
  };
  for (const auto& argument : task.references->arguments) pass_on(*argument.object);
  for (const ObjectEntry* inner : task.references->nested) pass_on(*inner);
}

}  // namespace

bool TaskTable::RunAgain(ObjectEntry& entry, TaskDispatcher& dispatcher,
                         std::vector<ObjectEntry*>* before) {
  TaskRecord* task = MakerOf(entry);
  if (task == nullptr) return false;
  PassOnGivenUp(*task);
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

namespace {

// Whether the calls that made `entry` can run again, with all that they would need.
absl::Status CheckRecipe(const TaskTable& tasks, const ObjectEntry& entry) {
  std::vector<const ObjectEntry*> left{&entry};
  absl::flat_hash_set<const TaskRecord*> seen;
  // What nobody holds goes, or went; a value that no call made stays as a part of the recipe.
  const auto look = [&left](const ObjectEntry& used) {
    if (used.held() || (used.state == ObjectState::kValue && used.task == nullptr)) return;
    left.push_back(&used);
  };
  while (!left.empty()) {
    const ObjectEntry& next = *left.back();
    left.pop_back();
    const TaskRecord* const maker = next.owned ? next.task : nullptr;
    if (maker != nullptr && maker->state != TaskState::kFinished) continue;  // It is made just now.
    if (maker == nullptr || maker->cancelled || maker->lineage_bytes == 0) {
      return absl::FailedPreconditionError(absl::StrCat(
          "the object ", entry.id.ToHex(), " could not be made again: ",
          &next == &entry ? "" : absl::StrCat("it would need ", next.id.ToHex(), ", and "),
          next.owned ? tasks.WhyNotAgain(next) : "its owner may have freed that"));
    }
    if (!seen.insert(maker).second || !maker->references) continue;
    if (seen.size() > kMostRecipes) {
      return absl::FailedPreconditionError(
          absl::StrCat("over ", kMostRecipes, " calls may have to run again for the object ",
                       entry.id.ToHex(), ": hold a reference to something on the way"));
    }
    for (const auto& argument : maker->references->arguments) look(*argument.object);
    for (const ObjectEntry* inner : maker->references->nested) look(*inner);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status GiveUp(TaskTable& tasks, ObjectEntry& entry, bool though_used) {
  const std::string name = absl::StrCat("the object ", entry.id.ToHex());
  if (!entry.owned) {
    return absl::InvalidArgumentError(absl::StrCat(name, " belongs to the process ",
                                                   entry.id.maker().ToString(),
                                                   ", which alone gives it up"));
  }
  if (entry.released) return absl::OkStatus();
  const bool is_made =
      entry.ready() && (entry.task == nullptr ||  // Else all of its call runs again.
                        entry.task->state == TaskState::kFinished);
  if (!is_made) return absl::UnavailableError(absl::StrCat(name, " is being made"));
  if (entry.state != ObjectState::kStore) {
    return absl::FailedPreconditionError(
        absl::StrCat(name, " is in no store: it is a small value, or an error"));
  }
  SHEAF_RETURN_IF_ERROR(CheckRecipe(tasks, entry));
  if (entry.uses != 0 && !though_used)
    return absl::UnavailableError(absl::StrCat(name, " is used by a call, or is inside a value"));
  if (entry.extra) entry.extra->unreachable = false;
  tasks.references().SetPending(entry);
  entry.released = entry.task->given_up = true;
  return absl::OkStatus();
}

}  // namespace sheaf
