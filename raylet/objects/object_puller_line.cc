// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What is to be pulled, and what of it begins when.
#include <algorithm>
#include <memory>
#include <utility>

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
  pull->claimed = std::clamp<uint64_t>(
      size, std::min<uint64_t>(options_.chunk_bytes, PullState::kCopiedAtOnce), kMaxPayloadBytes);
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
  pull->number = counts_.pulls;
  pulls_.emplace(pull->id, pull);
  LineOf(*pull).emplace(std::pair(pull->hint.node, pull->number), pull);
  Admit();
}

void ObjectPuller::Admit() {
  while (const PullPtr next = NextAdmitted()) {
    LineOf(*next).erase({next->hint.node, next->number});
    Begin(next);
  }
}

// The oldest of those that `may` begin, as far as their sources go. Of each source its first is looked
// at.
ObjectPuller::PullPtr ObjectPuller::OldestOf(const Line& line,
                                             absl::FunctionRef<bool(const PullState&)> may) {
  PullPtr oldest;
  for (auto at = line.begin(); at != line.end();
       at = line.upper_bound({at->first.first, UINT64_MAX})) {
    const PullPtr& first = at->second;
    if ((oldest == nullptr || first->number < oldest->number) && may(*first)) oldest = first;
  }
  return oldest;
}

// Null: none may begin now. One that waits for its source is passed by, and one that waits for all
// together is not, as it might wait for ever.
ObjectPuller::PullPtr ObjectPuller::NextAdmitted() const {
  if (running_.size() >= options_.most_pulls) return nullptr;
  if (queue_.empty() && part_queue_.empty()) return nullptr;
  const uint64_t half = options_.most_bytes / 2;
  Claims parts, all;
  bool one_exceeds = false;
  for (const auto& [node, claims] : part_claims_) {
    parts.bytes += claims.bytes;
    parts.pulls += claims.pulls;
  }
  for (const auto& [node, claims] : claims_) {
    all.bytes += std::min(claims.bytes, half);
    one_exceeds |= claims.bytes > half;
  }
  all.bytes += std::min(parts.bytes, half);
  all.pulls = running_.size();
  const auto claims_of = [](const auto& claims, const PullState& pull) {
    const auto found = claims.find(pull.hint.node);
    return found == claims.end() ? Claims() : found->second;
  };
  const auto fits = [&](const PullState& pull) {
    return all.bytes + std::min(pull.claimed, half) <= options_.most_bytes;
  };
  const PullPtr whole = OldestOf(queue_, [&](const PullState& pull) {
    if (pull.claimed > half && one_exceeds) return false;
    const Claims mine = claims_of(claims_, pull);
    return mine.pulls == 0 ||
           (mine.pulls + 1 + all.pulls + 1 <= options_.most_pulls &&
            mine.bytes + pull.claimed + all.bytes + pull.claimed <= options_.most_bytes);
  });
  if (whole != nullptr && fits(*whole)) return whole;
  const PullPtr part = OldestOf(part_queue_, [&](const PullState& pull) {
    const Claims mine = claims_of(part_claims_, pull);
    return mine.pulls == 0 || (mine.pulls < options_.most_pulls / 8 &&
                               mine.bytes + pull.claimed + parts.bytes + pull.claimed <= half);
  });
  if (part == nullptr || !fits(*part)) return nullptr;
  const bool fits_parts = parts.pulls == 0 || (parts.pulls < options_.most_pulls / 2 &&
                                               parts.bytes + part->claimed <= half);
  return fits_parts ? part : nullptr;
}

void ObjectPuller::Begin(const PullPtr& pull) {
  pull->progress_at = deps_.clock.Now();
  running_.push_back(pull);
  Claims& claims = ClaimsOf(*pull);
  ++claims.pulls;
  claims.bytes += pull->claimed;
  active_bytes_ += pull->claimed;
  if (!pull->is_part()) {
    pull->stage = Stage::kAsking;
    return Ask(pull);
  }
  pull->arrival = {.id = pull->id, .size_bytes = pull->part_bytes};
  if (pull->hint.known()) pull->source_attempt = pull->hint.attempt;
  WaitForRoom(pull);
}

// It is larger, or smaller, than was known.
void ObjectPuller::ClaimInstead(PullState& pull, uint64_t bytes) {
  ClaimsOf(pull).bytes += bytes - pull.claimed;
  active_bytes_ += bytes - pull.claimed;
  pull.claimed = bytes;
}

// It waits no more, or claims nothing any more.
void ObjectPuller::Leave(const PullPtr& pull) {
  const auto running = std::find(running_.begin(), running_.end(), pull);
  if (running == running_.end()) {
    LineOf(*pull).erase({pull->hint.node, pull->number});
    return;
  }
  running_.erase(running);
  active_bytes_ -= pull->claimed;
  Claims& claims = ClaimsOf(*pull);
  claims.bytes -= pull->claimed;
  if (--claims.pulls == 0) (pull->is_part() ? part_claims_ : claims_).erase(pull->hint.node);
}

ObjectPuller::Line& ObjectPuller::LineOf(const PullState& pull) {
  return pull.is_part() ? part_queue_ : queue_;
}

ObjectPuller::Claims& ObjectPuller::ClaimsOf(const PullState& pull) {
  return (pull.is_part() ? part_claims_ : claims_)[pull.hint.node];
}

}  // namespace sheaf
