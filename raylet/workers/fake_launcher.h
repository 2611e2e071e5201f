// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Remembers every call, starts nothing.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "raylet/workers/launcher.h"

namespace sheaf {

class FakeLauncher final : public WorkerLauncher {
 public:
  void AddJob(JobNumber job, ProcessId driver, const proto::JobStart& start) override {
    jobs[job] = driver;
    starts[job] = start;
  }
  void AddRemoteJob(JobNumber job, ProcessId driver, const proto::JobStart&,
                    const proto::Program&) override {
    jobs[job] = driver;
  }
  void RemoveJob(JobNumber job) override { jobs.erase(job); }
  void EndStrays(JobNumber job) override { strays_ended.push_back(job); }
  absl::Status Start(const WorkerSpec& spec) override {
    if (!error.ok()) return error;
    started.push_back(spec);
    return absl::OkStatus();
  }
  void Kill(ProcessId process, const std::string& reason) override {
    killed.emplace_back(process, reason);
  }

  bool WasKilled(ProcessId process) const {
    for (const auto& [id, reason] : killed) {
      if (id == process) return true;
    }
    return false;
  }
  std::vector<WorkerSpec> TakeStarted() { return std::exchange(started, {}); }

  std::map<JobNumber, ProcessId> jobs;
  std::map<JobNumber, proto::JobStart> starts;  // Of drivers here.
  std::vector<WorkerSpec> started;
  std::vector<JobNumber> strays_ended;
  std::vector<std::pair<ProcessId, std::string>> killed;
  absl::Status error;  // What Start returns from now on, if not OK.
};

}  // namespace sheaf
