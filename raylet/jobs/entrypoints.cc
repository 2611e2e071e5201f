// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "raylet/jobs/entrypoints.h"

#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/resources.h"

namespace sheaf {

void Entrypoints::OnStart(const proto::StartEntrypoint& message) {
  const proto::Entrypoint& wanted = message.entrypoint();
  const std::string& id = wanted.submission_id();
  if (const auto known = entrypoints_.find(id); known != entrypoints_.end()) {
    // The order is repeated. One of another attempt waits until the earlier one is gone.
    if (known->second.report.attempt() == message.attempt()) Report(known->second.report);
    return;
  }
  const Attempt attempt{id, message.attempt()};
  if (unacknowledged_.contains(attempt)) return;  // It has ended, and says so.
  if (const auto over = over_.find(attempt); over != over_.end()) return Report(over->second);
  const absl::StatusOr<Resources> resources = Resources::FromMap(wanted.resources().amounts());
  if (!resources.ok()) return GiveBack(message, std::string(resources.status().message()));
  const auto here = deps_.view.nodes.find(deps_.view.local);
  if (here != deps_.view.nodes.end() && here->second.draining)
    return GiveBack(message, "the node drains");
  std::optional<Allocation> allocation = deps_.ledger.Acquire(*resources);
  if (!allocation) {
    return GiveBack(message, absl::StrCat("no room on node ", deps_.view.local, " for ",
                                          resources->ToString()));
  }
  Running& running = entrypoints_[id];
  running.allocation = *std::move(allocation);
  running.report.set_submission_id(id);
  running.report.set_attempt(message.attempt());
  running.report.set_pending(wanted.prepares() ? "its runtime environment" : "its process");
  Report(running.report);
  deps_.launcher.StartEntrypoint(wanted, running.allocation.GpuIds());
}

void Entrypoints::GiveBack(const proto::StartEntrypoint& message, const std::string& why) {
  proto::EntrypointReport report;
  report.set_submission_id(message.entrypoint().submission_id());
  report.set_attempt(message.attempt());
  report.set_given_back(why);
  ReportEnd(std::move(report));
}

void Entrypoints::OnStop(const proto::StopEntrypoint& message) {
  const auto known = entrypoints_.find(message.submission_id());
  if (known != entrypoints_.end() && known->second.report.attempt() <= message.attempt())
    return deps_.launcher.StopEntrypoint(message.submission_id());
  if (unacknowledged_.contains({message.submission_id(), message.attempt()})) return;
  proto::EntrypointReport report;
  report.set_submission_id(message.submission_id());
  report.set_attempt(message.attempt());
  report.mutable_ended()->mutable_death()->set_cause(proto::Death::KILLED);
  report.mutable_ended()->mutable_death()->set_message("it is not on this node any more");
  ReportEnd(std::move(report));
}

void Entrypoints::OnRunning(const std::string& submission_id,
                            const proto::EntrypointReport::Running& running) {
  const auto known = entrypoints_.find(submission_id);
  if (known == entrypoints_.end()) return;
  *known->second.report.mutable_running() = running;
  Report(known->second.report);
}

void Entrypoints::OnEnded(const std::string& submission_id, proto::EntrypointReport::Ended ended) {
  const auto known = entrypoints_.find(submission_id);
  if (known == entrypoints_.end()) return;
  const Running was = std::move(known->second);
  entrypoints_.erase(known);
  deps_.ledger.Release(was.allocation);
  proto::EntrypointReport report = was.report;
  *report.mutable_ended() = std::move(ended);
  ReportEnd(std::move(report));
  deps_.on_room();
}

void Entrypoints::StopAll() {
  for (const auto& [id, running] : entrypoints_) deps_.launcher.StopEntrypoint(id);
}

void Entrypoints::Report(const proto::EntrypointReport& report) {
  proto::GcsRequest request;
  *request.mutable_entrypoint_report() = report;
  deps_.gcs.Command(std::move(request), nullptr);
}

void Entrypoints::ReportEnd(proto::EntrypointReport report) {
  const Attempt attempt{report.submission_id(), report.attempt()};
  proto::GcsRequest request;
  *request.mutable_entrypoint_report() = report;
  unacknowledged_[attempt] = std::move(report);
  deps_.gcs.Insist(std::move(request),
                   [this, attempt](const proto::GcsReply&) { Remember(attempt); });
}

void Entrypoints::Remember(const Attempt& attempt) {
  const auto told = unacknowledged_.extract(attempt);
  if (told.empty() || !over_.emplace(attempt, std::move(told.mapped())).second) return;
  over_order_.push_back(attempt);
  if (over_order_.size() <= kRemembered) return;
  over_.erase(over_order_.front());
  over_order_.pop_front();
}

void Entrypoints::FillReport(proto::NodeReport* report) const {
  for (const auto& [id, running] : entrypoints_) *report->add_entrypoints() = running.report;
  for (const auto& [attempt, ended] : unacknowledged_) *report->add_entrypoints() = ended;
}

}  // namespace sheaf
