// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "raylet/jobs/group_placers.h"

#include <utility>

#include "base/error_kind.h"

namespace sheaf {

NodeNumber GroupPlacers::Of(PlacementGroupId id) const {
  const auto it = moved_.find(id);
  const NodeNumber node = it == moved_.end() ? id.maker().node : it->second.node;
  return node == deps_.local || deps_.deaths.IsNodeDead(node) ? 0 : node;
}

bool GroupPlacers::IsBy(PlacementGroupId id, NodeNumber node) const {
  const auto it = moved_.find(id);
  return (it == moved_.end() ? id.maker().node : it->second.node) == node;
}

void GroupPlacers::Ask(PlacementGroupId id) {
  Moved& moved = moved_[id];
  if (std::exchange(moved.asked, true)) return;
  moved.ask_again = kForever;
  proto::GcsRequest request;
  request.mutable_lookup_group()->set_group_id(id.Binary());
  deps_.gcs.Command(std::move(request),
                    [this, id](const proto::GcsReply& reply) { OnReply(id, reply); });
}

void GroupPlacers::OnReply(PlacementGroupId id, const proto::GcsReply& reply) {
  const auto it = moved_.find(id);
  if (it == moved_.end()) return;
  it->second.asked = false;
  const proto::GroupInfo& info = reply.group();
  const bool none = static_cast<ErrorKind>(reply.error()) == ErrorKind::kNotFound;
  // One that is not detached ends with its maker, which the GCS may be about to find out.
  if (none ||
      (reply.error() == 0 && !info.detached() && deps_.deaths.IsNodeDead(id.maker().node))) {
    moved_.erase(it);
    return told_(id, 0);
  }
  it->second.node = info.raylet();
  if (const NodeNumber node = Of(id); node != 0) return told_(id, node);
  it->second.ask_again = Deadline(deps_.clock.Now(), kAskAgainAfter);
}

void GroupPlacers::Tick() {
  std::vector<PlacementGroupId> due;
  for (const auto& [id, moved] : moved_) {
    if (deps_.clock.Now() >= moved.ask_again) due.push_back(id);
  }
  for (const PlacementGroupId id : due) Ask(id);
}

}  // namespace sheaf
