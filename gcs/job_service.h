// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Begin and end of jobs, durable both.
#pragma once

#include <array>
#include <functional>
#include <map>
#include <string_view>
#include <vector>

#include "gcs/command_pipeline.h"
#include "gcs/gcs_options.h"
#include "gcs/job_table.h"

namespace sheaf {

class JobService {
 public:
  // `on_ended` is called once per job, when its end is durable. An ended job is remembered at least
  // while `is_needed`.
  JobService(const GcsContext& context, std::function<void(JobNumber)> on_ended,
             std::function<bool(JobNumber)> is_needed);

  void LoadJob(std::string_view value);
  void LoadLastNumber(std::string_view value);

  void Register(CallPtr call, const proto::RegisterJob& request);
  void Finish(CallPtr call, const proto::FinishJob& request);
  void OnProcessGone(ProcessId process, const proto::Death& death);
  // Fails the running jobs whose drivers are gone.
  void EndWhere(const std::function<bool(ProcessId driver)>& is_gone);
  void List(const CallPtr& call) const;
  void AddSnapshot(proto::Snapshot* snapshot) const;
  void Tick();

  const JobTable& table() const { return table_; }
  // How many came into each JobInfo::State since the start.
  const std::array<uint64_t, 3>& told() const { return told_; }

 private:
  void End(CallPtr call, JobNumber job, JobEvent event);
  std::vector<JobNumber> Surplus() const;
  void Publish(const proto::JobInfo& info);
  void Tell(const proto::JobInfo& info);

  const GcsContext context_;
  const std::function<void(JobNumber)> on_ended_;
  const std::function<bool(JobNumber)> is_needed_;
  JobTable table_;
  JobNumber last_number_ = 0;
  std::array<uint64_t, 3> told_{};
  std::map<JobNumber, JobEvent> unended_;  // Their end did not get to disk: again at the next Tick.
};

}  // namespace sheaf
