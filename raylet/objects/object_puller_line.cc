// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What is to be pulled, and what of it begins when.
#include <algorithm>
#include <memory>

#include "raylet/objects/object_puller.h"
#include "raylet/objects/pull_state.h"

namespace sheaf {

using Stage = ObjectPuller::PullState::Stage;

void ObjectPuller::Pull(ObjectId id, const ObjectLocation& hint, uint64_t size) {
  if (const auto known = pulls_.find(id); known != pulls_.end()) {
    PullState& pull = *known->second;
    if (pull.stage == Stage::kEnding) pull.stalled = true;  // Its end is no answer to this.
    const bool of_interest = hint.known() && (pull.hint.known() || pull.stage > Stage::kAsking);
    if (of_interest && hint.attempt > pull.attempt()) {
      pull.instead = FetchWanted{id, hint, size};
      const PullPtr kept = known->second;
      Fail(kept, LookupOutcome::kNotFound);
    } else if (!of_interest || hint.attempt == pull.attempt()) {
      pull.sources.Add(hint.node, /*partial=*/false);
    }
    return;
  }
  ++counts_.pulls;
  auto pull = std::make_shared<PullState>(options_);
  pull->id = pull->of = id;
  pull->hint = hint;
  pull->claimed =
      std::max(size, std::min<uint64_t>(options_.chunk_bytes, PullState::kCopiedAtOnce));
  pull->sources.Add(hint.node, /*partial=*/false);
  Start(pull);
}

void ObjectPuller::PullPart(const PartWanted& part, std::span<const NodeNumber> places) {
  const auto known = pulls_.find(part.id);
  const PullPtr pull =
      known != pulls_.end() ? known->second : std::make_shared<PullState>(options_);
  for (const NodeNumber node : places) {
    if (node == options_.node) {
      pull->sources.AddSelf();
    } else {
      pull->sources.Add(node, /*partial=*/false);
    }
  }
  if (known != pulls_.end()) {
    if (pull->stage == Stage::kEnding) pull->stalled = true;
    return;
  }
  ++counts_.pulls;
  pull->id = part.id;
  pull->of = part.of;
  pull->base = part.offset;
  pull->part_bytes = pull->claimed = part.bytes;
  pull->hint = part.hint;
  Start(pull);
}

void ObjectPuller::Start(const PullPtr& pull) {
  pulls_.emplace(pull->id, pull);
  (pull->is_part() ? part_queue_ : queue_).push_back(pull);
  Admit();
}

void ObjectPuller::Admit() {
  while (const PullPtr next = NextAdmitted()) Begin(next);
}

// Taken out of its queue. Null: none may begin now.
ObjectPuller::PullPtr ObjectPuller::NextAdmitted() {
  const auto fits = [&](uint64_t bytes, size_t count, const PullState& pull, uint64_t share) {
    return count == 0 || (bytes + pull.claimed <= options_.most_bytes / share &&
                          count < options_.most_pulls / share);
  };
  const auto fits_all = [&](const PullState& pull) {
    return fits(active_bytes_, running_.size(), pull, 1);
  };
  if (!queue_.empty() && fits_all(*queue_.front())) {
    const PullPtr next = queue_.front();
    queue_.pop_front();
    return next;
  }
  uint64_t part_bytes = 0;
  size_t parts = 0;
  absl::btree_map<NodeNumber, size_t> by_source;
  for (const PullPtr& pull : running_) {
    if (!pull->is_part()) continue;
    part_bytes += pull->claimed;
    ++parts;
    ++by_source[pull->hint.node];
  }
  const auto next = std::find_if(part_queue_.begin(), part_queue_.end(), [&](const PullPtr& pull) {
    return fits_all(*pull) && fits(part_bytes, parts, *pull, 2) &&
           fits(0, by_source[pull->hint.node], *pull, 8);
  });
  if (next == part_queue_.end()) return nullptr;
  const PullPtr part = *next;
  part_queue_.erase(next);
  return part;
}

void ObjectPuller::Begin(const PullPtr& pull) {
  pull->progress_at = deps_.clock.Now();
  active_bytes_ += pull->claimed;
  running_.push_back(pull);
  if (!pull->is_part()) {
    pull->stage = Stage::kAsking;
    return Ask(pull);
  }
  pull->arrival = {.id = pull->id, .size_bytes = pull->part_bytes};
  if (pull->hint.known()) pull->source_attempt = pull->hint.attempt;
  WaitForRoom(pull);
}

}  // namespace sheaf
