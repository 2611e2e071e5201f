// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What the GCS says, and what it is told of this node.
#include "base/parse_frame.h"
#include "raylet/raylet.h"

namespace sheaf {

void Raylet::OnGcsFrame(const Frame& frame) {
  if (frame.kind != FrameKind::kGcsReply && frame.kind != FrameKind::kGcsEvent) return;
  const std::optional<ProcessId> addressee = router_.Addressee(frame.body);
  if (!addressee.has_value()) return;
  if (*addressee != RayletOf(options_.node)) {
    if (deaths_.IsAlive(*addressee)) router_.ToProcess(*addressee, frame);
    return;
  }
  if (frame.kind == FrameKind::kGcsReply) {
    const auto reply = ParseFrame<proto::GcsReply>(frame);
    if (!reply.ok()) return;
    if (reply->sequence() != 0) {
      gcs_.OnReply(*reply);
    } else if (reply->has_heartbeat()) {
      session_.OnHeartbeatReply(reply->heartbeat());
    }
  } else if (const auto event = ParseFrame<proto::GcsEvent>(frame); event.ok()) {
    OnGcsEvent(*event);
  }
  Settle();
}

void Raylet::OnGcsEvent(const proto::GcsEvent& event) {
  switch (event.body_case()) {
    case proto::GcsEvent::kStartActor:
      detached_.OnStart(event.start_actor());
      return;
    case proto::GcsEvent::kKillActor:
      detached_.OnKill(event.kill_actor());
      return;
    case proto::GcsEvent::kPlaceGroup:
      groups_.OnPlace(event.place_group());
      return;
    case proto::GcsEvent::kDropGroup:
      groups_.OnDrop(event.drop_group());
      return;
    case proto::GcsEvent::kDelta:
      follower_.OnDelta(event.delta());
      return;
    case proto::GcsEvent::kRestarted:
      session_.OnRestarted(event.restarted().term());
      return;
    default:
      return;
  }
}

void Raylet::FillReport(proto::NodeReport* report) const {
  ledger_.available().ToMap(*report->mutable_available()->mutable_amounts());
  detached_.FillReport(report);
  groups_.FillReport(report);
  for (const auto& [process, entry] : processes_) report->add_processes(process.packed());
}

void Raylet::OnGcsLink(bool up, uint64_t term) {
  if (up != gcs_.up()) silence_.OnGcsLink(up);
  session_.OnLink(up, term);
  Settle();
}

void Raylet::OnNodeLink(NodeNumber node, bool up) {
  silence_.OnNodeLink(node, up);
  follower_.OnNodeLink(node, up);
}

void Raylet::OnDraining() {
  detached_.OnDraining();
  groups_.OnRoom();  // Placement groups that were to come here go elsewhere.
}

}  // namespace sheaf
