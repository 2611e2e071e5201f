// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "raylet/cluster/cluster_membership.h"

#include <optional>

#include "base/parse_frame.h"

namespace sheaf {

ClusterMembership::ClusterMembership(const Deps& deps)
    : deps_(deps),
      router_(deps.options.node, deps.transport),
      gcs_(deps.options.node, deps.clock, deps.transport),
      follower_({.options = deps.options,
                 .clock = deps.clock,
                 .gcs = gcs_,
                 .links = deps.links,
                 .queue = deps.queue,
                 .view = deps.view,
                 .deaths = deps.deaths,
                 .observer = deps.node}),
      session_({.options = deps.options,
                .clock = deps.clock,
                .transport = deps.transport,
                .gcs = gcs_,
                .view = deps.view,
                .queue = deps.queue,
                .processes = deps.processes,
                .node = deps.node,
                .follow_again = [this] { follower_.Follow(); }}),
      silence_({.node = deps.options.node,
                .limit = deps.options.silence_limit,
                .clock = deps.clock,
                .transport = deps.transport,
                .processes = deps.processes,
                .deaths = deps.deaths}) {}

bool ClusterMembership::OnGcsFrame(const Frame& frame) {
  if (frame.kind != FrameKind::kGcsReply && frame.kind != FrameKind::kGcsEvent) return false;
  const std::optional<ProcessId> addressee = router_.Addressee(frame.body);
  if (!addressee.has_value()) return false;
  if (*addressee != RayletOf(deps_.options.node)) {
    if (deps_.deaths.IsAlive(*addressee)) router_.ToProcess(*addressee, frame);
    return false;
  }
  if (frame.kind == FrameKind::kGcsReply) {
    const auto reply = ParseFrame<proto::GcsReply>(frame);
    if (!reply.ok()) return false;
    if (reply->sequence() != 0) {
      gcs_.OnReply(*reply);
    } else if (reply->has_heartbeat()) {
      session_.OnHeartbeatReply(reply->heartbeat());
    }
    return true;
  }
  const auto event = ParseFrame<proto::GcsEvent>(frame);
  if (!event.ok()) return false;
  switch (event->body_case()) {
    case proto::GcsEvent::kDelta:
      follower_.OnDelta(event->delta());
      break;
    case proto::GcsEvent::kRestarted:
      session_.OnRestarted(event->restarted().term());
      break;
    default:
      deps_.node.OnGcsEvent(*event);
  }
  return true;
}

absl::Status ClusterMembership::OnGcsRequest(ProcessId from, const Frame& frame) {
  if (!router_.ToGcs(from, frame.body, gcs_.up()))
    return absl::InvalidArgumentError("a malformed request to the GCS");
  return absl::OkStatus();
}

void ClusterMembership::OnGcsLink(bool up, uint64_t term) {
  if (up != gcs_.up()) silence_.OnGcsLink(up);
  session_.OnLink(up, term);
}

void ClusterMembership::OnNodeLink(NodeNumber node, bool up) {
  silence_.OnNodeLink(node, up);
  follower_.OnNodeLink(node, up);
}

void ClusterMembership::Tick() {
  gcs_.Tick();
  follower_.Tick();
  silence_.Tick();
  session_.Tick();
}

}  // namespace sheaf
