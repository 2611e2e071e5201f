// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The questions of a pull that are under way, and those that are asked of another source as the
// answer comes too slowly.
#include <algorithm>

#include "raylet/objects/object_puller.h"
#include "raylet/objects/pull_state.h"

namespace sheaf {

using Stage = ObjectPuller::PullState::Stage;

uint64_t ObjectPuller::PullState::Asks(NodeNumber node, size_t chunk, Nanos now) {
  if (PullSource* source = sources.Find(node)) ++source->in_flight;
  coming.push_back(
      {.ask = ++asks, .node = node, .chunk = chunk, .asked_at = now, .looked_at = now});
  return asks;
}

std::optional<ObjectPuller::PullState::Coming> ObjectPuller::PullState::Ends(uint64_t ask) {
  const auto found = std::find_if(coming.begin(), coming.end(),
                                  [&](const Coming& each) { return each.ask == ask; });
  if (found == coming.end()) return std::nullopt;
  const Coming ended = *found;
  coming.erase(found);
  // It may have been dropped and found again meanwhile.
  PullSource* source = sources.Find(ended.node);
  if (source != nullptr && source->in_flight != 0) --source->in_flight;
  return ended;
}

// Who is asked answers others meanwhile, so the question may be in line; but not for ever.
void ObjectPuller::HeedLine(PullState& pull, NodeNumber node, Nanos asked_at) const {
  const PullSource* source = pull.sources.Find(node);
  if (source == nullptr || source->failures >= options_.most_in_vain) return;
  const Nanos answered_at = deps_.blocks.LastAnswer(node);
  if (answered_at > asked_at) pull.progress_at = std::max(pull.progress_at, answered_at);
}

// What was looked at before, and has come too slowly since, is missing again, and its source is the
// last to be asked for it. What comes of it later is not wanted.
void ObjectPuller::LeaveSlow(PullState& pull) {
  if (NextLook(pull) > deps_.clock.Now()) return;
  const std::vector<PullState::Coming> all = pull.coming;
  for (const PullState::Coming& each : all) {
    if (!IsTooSlow(pull, each.ask)) continue;
    pull.target->Abandon(each.ask);
    pull.Ends(each.ask);
    pull.sources.Slow(each.node, deps_.clock.Now());
    if (pull.stage == Stage::kReceiving) pull.chunks[each.chunk] = PullState::Chunk::kMissing;
  }
}

bool ObjectPuller::IsTooSlow(PullState& pull, uint64_t ask) const {
  const Nanos now = deps_.clock.Now();
  PullState::Coming& coming =
      *std::find_if(pull.coming.begin(), pull.coming.end(),
                    [&](const PullState::Coming& each) { return each.ask == ask; });
  const Nanos passed = now - coming.looked_at;
  if (coming.is_here || passed < options_.look_at_speed) return false;
  const std::optional<PullTarget::Progress> seen = pull.target->ProgressOf(ask);
  const bool had_begun = coming.begun;
  const uint64_t had_arrived = coming.arrived;
  coming.looked_at = now;
  coming.begun = seen.has_value();
  coming.arrived = seen ? seen->arrived : 0;
  PullSources::Pace pace{.node = coming.node,
                         .chunk = coming.chunk,
                         .size = options_.chunk_bytes,
                         .arrived = 0,
                         .speed = 0};
  if (!seen) {
    // What had begun has just ended.
    if (had_begun || now - coming.asked_at < options_.fetch_timeout) return false;
  } else {
    if (!had_begun) return false;  // It may have begun just now.
    pace.size = seen->size;
    pace.arrived = seen->arrived;
    pace.speed = PullSources::SpeedOf(seen->arrived - had_arrived, passed);
    if (PullSource* source = pull.sources.Find(coming.node)) source->speed = pace.speed;
  }
  return pull.sources.OtherIsFaster(pace, now);
}

// kForever: there is one source, or nothing is coming.
Nanos ObjectPuller::NextLook(const PullState& pull) const {
  Nanos next = kForever;
  if (pull.sources.size() < 2) return next;
  if (pull.stage != Stage::kAsking && pull.stage != Stage::kReceiving) return next;
  for (const PullState::Coming& coming : pull.coming) {
    if (!coming.is_here) next = std::min(next, coming.looked_at + options_.look_at_speed);
  }
  return next;
}

}  // namespace sheaf
