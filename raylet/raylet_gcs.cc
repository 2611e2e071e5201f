// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What the GCS says, and what it is told of this node.
#include <utility>

#include "raylet/raylet.h"

namespace sheaf {

void Raylet::OnGcsFrame(const Frame& frame) {
  if (cluster_.OnGcsFrame(frame)) Settle();
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
    case proto::GcsEvent::kStartEntrypoint:
      entrypoints_.OnStart(event.start_entrypoint());
      return;
    case proto::GcsEvent::kStopEntrypoint:
      entrypoints_.OnStop(event.stop_entrypoint());
      return;
    default:
      return;
  }
}

void Raylet::OnEntrypointEnded(const std::string& submission_id,
                               proto::EntrypointReport::Ended ended) {
  entrypoints_.OnEnded(submission_id, std::move(ended));
  Settle();
}

void Raylet::FillReport(proto::NodeReport* report) const {
  ledger_.available().ToMap(*report->mutable_available()->mutable_amounts());
  detached_.FillReport(report);
  groups_.FillReport(report);
  entrypoints_.FillReport(report);
  for (const auto& [process, entry] : processes_) report->add_processes(process.packed());
}

void Raylet::OnGcsLink(bool up, uint64_t term) {
  cluster_.OnGcsLink(up, term);
  Settle();
}

void Raylet::OnDraining() {
  detached_.OnDraining();
  pool_.Drain();
  groups_.OnRoom();  // Placement groups that were to come here go elsewhere.
}

}  // namespace sheaf
