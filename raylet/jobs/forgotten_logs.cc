// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "raylet/jobs/forgotten_logs.h"

#include <optional>
#include <vector>

#include "raylet/logs/log_names.h"

namespace sheaf {

void ForgottenLogs::Tick() {
  if (deps_.logs == nullptr || looking_ || deps_.clock.Now() < next_look_) return;
  next_look_ = Deadline(deps_.clock.Now(), kPeriod);
  looking_ = true;
  proto::StateQuery query;
  query.set_what(proto::StateQuery::LOG_LIST);
  query.mutable_log()->set_name(JobLogName("*"));
  deps_.logs->Ask(query, [this](const proto::StateAnswer& here) { AskGcs(here); });
}

void ForgottenLogs::AskGcs(const proto::StateAnswer& here) {
  proto::GcsRequest request;
  proto::ForgottenSubmissions& asked = *request.mutable_forgotten_submissions();
  for (const proto::LogFile& file : here.log_files()) {
    const std::optional<std::string> id = SubmissionOfLog(file.name());
    if (id && !deps_.runs_entrypoint(*id)) asked.add_submission_ids(*id);
  }
  looking_ = asked.submission_ids_size() != 0;
  if (!looking_) return;
  deps_.gcs.Command(std::move(request), [this](const proto::GcsReply& reply) {
    looking_ = false;
    std::vector<std::string> names;
    for (const std::string& id : reply.forgotten_submissions().submission_ids()) {
      if (!deps_.runs_entrypoint(id)) names.push_back(JobLogName(id));  // It may have begun again.
    }
    if (!names.empty()) deps_.logs->Remove(std::move(names));
  });
}

}  // namespace sheaf
