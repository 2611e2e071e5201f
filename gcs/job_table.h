// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The jobs of the cluster: one per driver. Numbers are given once, from 1.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

#include "base/ids.h"
#include "proto/gcs.pb.h"

namespace sheaf {

enum class JobEvent : uint8_t { kFinished, kFailed };

// RUNNING -> FINISHED or FAILED. nullopt: `event` changes nothing.
constexpr std::optional<proto::JobInfo::State> Next(proto::JobInfo::State state, JobEvent event) {
  if (state != proto::JobInfo::RUNNING) return std::nullopt;
  return event == JobEvent::kFinished ? proto::JobInfo::FINISHED : proto::JobInfo::FAILED;
}
static_assert(!Next(proto::JobInfo::FAILED, JobEvent::kFinished));

class JobTable {
 public:
  const proto::JobInfo* Find(JobNumber job) const;
  const proto::JobInfo* FindByDriver(ProcessId driver) const;
  void Put(proto::JobInfo info);
  void Erase(JobNumber job);
  const std::map<JobNumber, proto::JobInfo>& all() const { return jobs_; }
  size_t running() const { return running_; }
  size_t ended() const { return jobs_.size() - running_; }

 private:
  std::map<JobNumber, proto::JobInfo> jobs_;
  std::map<ProcessId, JobNumber> by_driver_;
  size_t running_ = 0;
};

}  // namespace sheaf
