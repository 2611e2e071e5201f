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
      OnStartActor(event.start_actor());
      return;
    case proto::GcsEvent::kKillActor:
      OnKillActor(event.kill_actor());
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
  for (const auto& [id, actor] : detached_) *report->add_actors() = ReportOf(actor, processes_);
  // A GCS whose disk came back from a backup may not know how far their numbers went.
  for (const proto::ActorStateReport& ended : ended_detached_) {
    proto::ActorStateReport& actor = *report->add_actors();
    actor.set_actor_id(ended.actor_id());
    actor.set_incarnation(ended.incarnation());
    actor.mutable_died()->set_cause(ended.died().cause());
  }
  groups_.FillReport(report);
  for (const auto& [process, entry] : processes_) report->add_processes(process.packed());
}

void Raylet::OnGcsLink(bool up, uint64_t term) {
  if (up != gcs_.up()) silence_.OnGcsLink(up);
  session_.OnLink(up, term);
  Settle();
}

void Raylet::SendActorRows() {
  if (actor_rows_.empty() || !gcs_.up()) return;
  proto::GcsRequest request;
  for (auto& [id, row] : actor_rows_) {
    const auto actor = ActorId::FromHex(id);
    // Of a creator that died since, the GCS forgot the rows when it heard of that.
    if (actor.ok() && deaths_.IsAlive(actor->maker()))
      *request.mutable_actor_rows()->add_rows() = std::move(row);
  }
  actor_rows_.clear();
  gcs_.Report(std::move(request));
}

}  // namespace sheaf
