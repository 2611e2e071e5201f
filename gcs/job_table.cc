// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "gcs/job_table.h"

#include <utility>

namespace sheaf {

const proto::JobInfo* JobTable::Find(JobNumber job) const {
  const auto found = jobs_.find(job);
  return found == jobs_.end() ? nullptr : &found->second;
}

const proto::JobInfo* JobTable::FindByDriver(ProcessId driver) const {
  const auto found = by_driver_.find(driver);
  return found == by_driver_.end() ? nullptr : Find(found->second);
}

void JobTable::Put(proto::JobInfo info) {
  const JobNumber job = info.job();
  Erase(job);
  by_driver_[ProcessId::Unpack(info.driver())] = job;
  if (info.state() == proto::JobInfo::RUNNING) ++running_;
  jobs_[job] = std::move(info);
}

void JobTable::Erase(JobNumber job) {
  const auto found = jobs_.find(job);
  if (found == jobs_.end()) return;
  if (found->second.state() == proto::JobInfo::RUNNING) --running_;
  by_driver_.erase(ProcessId::Unpack(found->second.driver()));
  jobs_.erase(found);
}

}  // namespace sheaf
