// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// A GCS with a node, for tests that submit commands and play the raylet that runs them.
#pragma once

#include <string>
#include <vector>

#include "gcs/gcs_world_for_test.h"

namespace sheaf {

class SubmissionWorld : public GcsWorld {
 public:
  explicit SubmissionWorld(GcsOptions options = {}) : GcsWorld(std::move(options)) {
    node = AddNode();
    tool = RayletOf(node);
  }
  static proto::GcsRequest Submission(const std::string& id, int64_t cpus = 0) {
    proto::GcsRequest request;
    proto::Entrypoint* wanted = request.mutable_submit_entrypoint()->mutable_entrypoint();
    wanted->set_submission_id(id);
    wanted->set_command("python main.py");
    if (cpus != 0) (*wanted->mutable_resources()->mutable_amounts())["CPU"] = cpus * 10'000;
    return request;
  }
  proto::GcsReply Submit(const std::string& id, int64_t cpus = 0) {
    return Ask(tool, Submission(id, cpus));
  }
  proto::Submission Get(const std::string& id) {
    proto::GcsRequest request;
    request.mutable_get_submission()->set_submission_id(id);
    return Ask(tool, request).submission();
  }
  proto::GcsReply Stop(const std::string& id) {
    proto::GcsRequest request;
    request.mutable_stop_submission()->set_submission_id(id);
    return Ask(tool, request);
  }
  proto::GcsReply Delete(const std::string& id) {
    proto::GcsRequest request;
    request.mutable_delete_submission()->set_submission_id(id);
    return Ask(tool, request);
  }
  proto::SubmissionList List(uint32_t limit, uint64_t before = 0) {
    proto::GcsRequest request;
    request.mutable_list_submissions()->set_limit(limit);
    request.mutable_list_submissions()->set_before(before);
    return Ask(tool, request).submissions();
  }
  // Of the attempt that the GCS has now, or of that one.
  proto::EntrypointReport Report(const std::string& id, uint32_t attempt = 0) {
    proto::EntrypointReport report;
    report.set_submission_id(id);
    report.set_attempt(attempt != 0 ? attempt : Get(id).attempt());
    return report;
  }
  void Send(NodeNumber from, const proto::EntrypointReport& report) {
    proto::GcsRequest request;
    *request.mutable_entrypoint_report() = report;
    GcsWorld::Send(RayletOf(from), request);
  }
  void Runs(const std::string& id, uint32_t attempt = 0) {
    proto::EntrypointReport report = Report(id, attempt);
    report.mutable_running()->set_os_pid(77);
    report.mutable_running()->set_started_unix_ms(1000);
    Send(node, report);
  }
  void Ends(const std::string& id, int code, uint32_t attempt = 0) {
    proto::EntrypointReport report = Report(id, attempt);
    report.mutable_ended()->mutable_death()->set_cause(proto::Death::EXITED);
    report.mutable_ended()->mutable_death()->set_code(code);
    Send(node, report);
  }
  void GivesBack(const std::string& id, uint32_t attempt = 0) {
    proto::EntrypointReport report = Report(id, attempt);
    report.set_given_back("no room");
    Send(node, report);
  }
  // Orders to start that `of` was given since the last call.
  std::vector<proto::StartEntrypoint> TakeStarts(NodeNumber of) {
    std::vector<proto::StartEntrypoint> starts;
    for (const proto::GcsEvent& event : TakeEvents(RayletOf(of))) {
      if (event.has_start_entrypoint()) starts.push_back(event.start_entrypoint());
      if (event.has_stop_entrypoint()) stops.push_back(event.stop_entrypoint());
    }
    return starts;
  }

  NodeNumber node = 0;
  ProcessId tool;
  std::vector<proto::StopEntrypoint> stops;  // That TakeStarts came across.
};

}  // namespace sheaf
