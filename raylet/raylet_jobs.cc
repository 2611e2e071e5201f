// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// A driver's job, from its start to the end of its last worker.
#include "absl/strings/str_cat.h"
#include "base/parse_frame.h"
#include "base/status_macros.h"
#include "raylet/host/worker_variables.h"
#include "raylet/raylet.h"

namespace sheaf {
namespace {

void SendStarted(Channel& driver, JobNumber job, const std::string& name_space,
                 const std::string& error) {
  proto::JobStarted message;
  message.set_job(job);
  message.set_name_space(name_space);
  message.set_error(error);
  SendMessage(driver, FrameKind::kJobStarted, message);
}

}  // namespace

absl::Status Raylet::OnJobStart(ProcessId driver, AttachedProcess& process, const Frame& frame) {
  SHEAF_ASSIGN_OR_RETURN(proto::JobStart start, ParseFrame<proto::JobStart>(frame));
  if (process.job != 0) {  // A repeat; while the GCS has not answered, its answer will do.
    if (const NodeJob& job = jobs_.at(process.job); job.number != 0) {
      SendStarted(To(driver), job.number, job.start.name_space(), "");
    }
    return absl::OkStatus();
  }
  if (shutting_down_) {
    SendStarted(To(driver), 0, "", "this node is shutting down");
    return absl::OkStatus();
  }
  const JobNumber local = ++last_job_;
  process.job = local;
  NodeJob& job = jobs_[local];
  job.driver = driver;
  job.program.set_path(process.info.executable);
  job.started_at = Now();
  // Workers come up while the GCS makes the job durable: the first result needs both.
  world_.launcher.AddJob(local, driver, start);
  KeepWhatTravels(&start);  // The rest stays with the launcher: no other node, no disk gets it.
  job.start = start;
  pool_.AddJob(local, start.default_environment());

  proto::GcsRequest request;
  proto::RegisterJob& registration = *request.mutable_register_job();
  registration.set_driver(driver.packed());
  registration.set_os_pid(process.info.os_pid);
  registration.set_start_time_unix_s(UnixSecondsAt(options_, job.started_at));
  *registration.mutable_start() = std::move(start);
  gcs_.Command(std::move(request),
               [this, local](const proto::GcsReply& reply) { OnJobRegistered(local, reply); });
  return absl::OkStatus();
}

void Raylet::OnJobRegistered(JobNumber local, const proto::GcsReply& reply) {
  const auto it = jobs_.find(local);
  if (it == jobs_.end()) return;
  NodeJob& job = it->second;
  if (reply.error() != 0 || !reply.has_job_registered() || reply.job_registered().job() == 0) {
    if (deaths_.IsAlive(job.driver)) {
      SendStarted(To(job.driver), 0, "",
                  reply.error() != 0 ? reply.message() : "the GCS gave no job number");
      processes_.at(job.driver).job = 0;
    }
    job.ended = true;
    pool_.EndWorkers(local, {}, "its job was refused");
    RemoveJobIfOver(local);
    return;
  }
  job.number = reply.job_registered().job();
  job.start.set_name_space(reply.job_registered().name_space());
  if (job.ended) {  // Its driver died meanwhile.
    FinishJob(job);
    RemoveJobIfOver(local);
    return;
  }
  SendStarted(To(job.driver), job.number, job.start.name_space(), "");
}

void Raylet::EndJob(JobNumber local, const proto::Death& death) {
  const auto it = jobs_.find(local);
  if (it == jobs_.end()) return;
  NodeJob& job = it->second;
  job.only_detached = false;
  if (job.ended) return;
  job.ended = true;
  job.failed = !(death.cause() == proto::Death::LEFT ||
                 (death.cause() == proto::Death::EXITED && death.code() == 0));
  pool_.EndWorkers(local, Outliving(local),
                   absl::StrCat("its job ended: the driver ", job.driver.ToString(), " is gone"));
  // Else RemoveJob does it.
  if (HasDetachedActors(local) || HasOutlivingDemands(local)) world_.launcher.EndStrays(local);
  if (!job.remote) {
    if (job.number == 0) return;  // OnJobRegistered goes on.
    FinishJob(job);
  }
  RemoveJobIfOver(local);
}

void Raylet::FinishJob(const NodeJob& job) {
  proto::GcsRequest request;
  request.mutable_finish_job()->set_job(job.number);
  request.mutable_finish_job()->set_failed(job.failed);
  gcs_.Command(std::move(request), nullptr);
}

void Raylet::RemoveJobIfOver(JobNumber local) {
  const auto it = jobs_.find(local);
  if (it == jobs_.end() || !it->second.ended || it->second.keep_until > Now()) return;
  if (HasDetachedActors(local) || HasOutlivingDemands(local)) return;
  pool_.RemoveJob(local, "its job ended");
  world_.launcher.RemoveJob(local);
  absl::erase_if(told_jobs_, [local](const auto& entry) { return entry.second == local; });
  jobs_.erase(it);
}

// What goes on when the driver of the job is gone: its detached actors, and whoever works for them,
// here or on other nodes.
absl::btree_set<ProcessId> Raylet::Outliving(JobNumber local) const {
  absl::btree_set<ProcessId> processes = DetachedWorkersOf(local);
  for (const auto& [owner, entry] : remote_owners_) {
    if (entry.job == local && entry.outlives_driver) processes.insert(owner);
  }
  if (processes.empty()) return processes;
  const std::vector<const Lease*> leases = queue_.Leases();
  for (bool more = true; std::exchange(more, false);) {
    for (const Lease* lease : leases) {
      const auto worker = worker_of_.find(lease->number);
      if (worker == worker_of_.end() || !processes.contains(lease->demand.owner)) continue;
      more = processes.insert(worker->second).second || more;
    }
  }
  return processes;
}

bool Raylet::OutlivesDriver(ProcessId owner, JobNumber local) const {
  if (const auto it = remote_owners_.find(owner); it != remote_owners_.end())
    return it->second.outlives_driver;
  return Outliving(local).contains(owner);
}

// Whether an owner on another node that outlives the driver has, or waits for, workers here.
bool Raylet::HasOutlivingDemands(JobNumber local) const {
  const auto outlives = [&](ProcessId owner) {
    const auto it = remote_owners_.find(owner);
    return it != remote_owners_.end() && it->second.job == local && it->second.outlives_driver;
  };
  const bool has_any = std::any_of(
      remote_owners_.begin(), remote_owners_.end(),
      [&](const auto& entry) { return entry.second.job == local && entry.second.outlives_driver; });
  if (!has_any) return false;
  const std::vector<const Lease*> leases = queue_.Leases();
  const std::vector<LeaseQueue::Pending> pending = queue_.AllPending();
  return std::any_of(leases.begin(), leases.end(),
                     [&](const Lease* lease) { return outlives(lease->demand.owner); }) ||
         std::any_of(pending.begin(), pending.end(),
                     [&](const LeaseQueue::Pending& one) { return outlives(one.demand.owner); });
}

void Raylet::CheckJobs() {
  std::vector<JobNumber> ended;
  for (const auto& [local, job] : jobs_) {
    if (job.ended && (job.number != 0 || job.remote)) ended.push_back(local);
  }
  for (const JobNumber local : ended) RemoveJobIfOver(local);
}

JobNumber Raylet::LocalJob(JobNumber number) const {
  for (const auto& [local, job] : jobs_) {
    if (job.number == number) return local;
  }
  return 0;
}

}  // namespace sheaf
