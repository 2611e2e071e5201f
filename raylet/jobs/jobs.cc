// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "raylet/jobs/jobs.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/environment.h"
#include "base/parse_frame.h"
#include "base/status_macros.h"
#include "raylet/host/worker_variables.h"

namespace sheaf {
namespace {

// How long a job that has ended stays known without work, once a detached actor of another node has
// asked for workers.
constexpr Nanos kKeepForOutliving = 10 * kSecond;
constexpr size_t kMostEndedElsewhere = 1000;

void SendStarted(Channel& driver, JobNumber job, const std::string& name_space,
                 const std::string& error) {
  proto::JobStarted message;
  message.set_job(job);
  message.set_name_space(name_space);
  message.set_error(error);
  SendMessage(driver, FrameKind::kJobStarted, message);
}

// Where the program of a job lies whose driver never attached here: as its command line says.
std::string ProgramOf(const proto::JobStart& start) {
  if (start.argv().empty()) return "";
  const std::string& program = start.argv(0);
  return program.empty() || program[0] == '/' ? program
                                              : absl::StrCat(start.working_dir(), "/", program);
}

}  // namespace

absl::Status Jobs::OnStart(ProcessId driver, const Frame& frame) {
  SHEAF_ASSIGN_OR_RETURN(proto::JobStart start, ParseFrame<proto::JobStart>(frame));
  AttachedProcess& process = deps_.processes.at(driver);
  Channel& channel = deps_.transport.To(driver);
  if (process.job != 0) {  // A repeat; while the GCS has not answered, its answer will do.
    if (const NodeJob& job = jobs_.at(process.job); job.number != 0) {
      SendStarted(channel, job.number, job.start.name_space(), "");
    }
    return absl::OkStatus();
  }
  if (closed_) {
    SendStarted(channel, 0, "", "this node is shutting down");
    return absl::OkStatus();
  }
  const JobNumber local = ++last_job_;
  process.job = local;
  NodeJob& job = jobs_[local];
  job.driver = driver;
  job.program.set_path(process.info.executable);
  job.started_at = Now();
  // Workers come up while the GCS makes the job durable: the first result needs both.
  deps_.launcher.AddJob(local, driver, start);
  KeepWhatTravels(&start);  // The rest stays with the launcher: no other node, no disk gets it.
  job.start = start;
  deps_.pool.AddJob(local, start.default_environment());

  proto::GcsRequest request;
  proto::RegisterJob& registration = *request.mutable_register_job();
  registration.set_driver(driver.packed());
  registration.set_os_pid(process.info.os_pid);
  registration.set_start_time_unix_s(UnixSecondsAt(deps_.options, job.started_at));
  *registration.mutable_start() = std::move(start);
  deps_.gcs.Command(std::move(request),
                    [this, local](const proto::GcsReply& reply) { OnRegistered(local, reply); });
  return absl::OkStatus();
}

void Jobs::OnRegistered(JobNumber local, const proto::GcsReply& reply) {
  const auto it = jobs_.find(local);
  if (it == jobs_.end()) return;
  NodeJob& job = it->second;
  if (reply.error() != 0 || !reply.has_job_registered() || reply.job_registered().job() == 0) {
    if (deps_.deaths.IsAlive(job.driver)) {
      SendStarted(deps_.transport.To(job.driver), 0, "",
                  reply.error() != 0 ? reply.message() : "the GCS gave no job number");
      deps_.processes.at(job.driver).job = 0;
    }
    job.ended = true;
    deps_.pool.EndWorkers(local, {}, "its job was refused");
    RemoveIfOver(local);
    return;
  }
  job.number = reply.job_registered().job();
  job.start.set_name_space(reply.job_registered().name_space());
  if (job.ended) {  // Its driver died meanwhile.
    Finish(job);
    RemoveIfOver(local);
    return;
  }
  SendStarted(deps_.transport.To(job.driver), job.number, job.start.name_space(), "");
}

absl::Status Jobs::OnRemoteJob(const Frame& frame) {
  SHEAF_ASSIGN_OR_RETURN(auto message, ParseFrame<proto::RemoteJob>(frame));
  const ProcessId driver = ProcessId::Unpack(message.driver());
  if (driver.process == 0 || driver.node == kGcs.node) {
    return absl::InvalidArgumentError(
        absl::StrCat("the driver of job ", message.job(), " is ", driver.ToString()));
  }
  if (driver.node == deps_.options.node) return absl::OkStatus();
  if (const JobNumber known = OfDriver(driver); known != 0) {
    NodeJob& job = jobs_.at(known);
    if (job.number == 0) job.number = message.job();
    if (job.only_detached && deps_.deaths.IsReachable(driver)) {
      job.ended = job.only_detached = false;
    }
    return absl::OkStatus();
  }
  const bool over = deps_.deaths.IsDead(driver) || ended_elsewhere_.contains(message.job());
  if (closed_ || (over && !message.outlives_driver())) {
    return absl::OkStatus();  // Its owners end with it; what they ask for meanwhile is dropped.
  }
  const JobNumber local = ++last_job_;
  NodeJob& job = jobs_[local];
  job.number = message.job();
  job.driver = driver;
  job.start = *message.mutable_start();
  job.started_at = Now();
  job.remote = true;
  job.program = std::move(*message.mutable_program());
  if (over) {
    job.ended = true;
    job.keep_until = Now() + kKeepForOutliving;
  }
  AddRemote(local, job, /*driver_is_gone=*/false);
  // Its demand comes with it, and may be for one worker, or go back.
  deps_.pool.AddJob(local, job.start.default_environment(), /*ahead=*/false);
  return absl::OkStatus();
}

JobNumber Jobs::AddForActor(const proto::StartActor& message) {
  if (const JobNumber known = LocalNumber(message.job().job()); known != 0) return known;
  // Its driver was on another node, or ended before this raylet started.
  const JobNumber local = ++last_job_;
  NodeJob& job = jobs_[local];
  job.number = message.job().job();
  job.driver = ProcessId::Unpack(message.job().driver());
  job.start = message.job().start();
  job.ended = job.only_detached = true;
  job.remote = job.driver.node != deps_.options.node;
  job.started_at = Now();
  job.program.set_path(ProgramOf(job.start));
  // The GCS knows of the death of a node also before it has described the nodes to this one.
  AddRemote(local, job, message.driver_is_gone());
  return local;
}

// A node that is dead is not asked for the program, which would take a while for each job.
void Jobs::AddRemote(JobNumber local, const NodeJob& job, bool driver_is_gone) {
  const bool is_gone = driver_is_gone || deps_.deaths.IsNodeDead(job.driver.node);
  deps_.launcher.AddRemoteJob(local, is_gone ? ProcessId() : job.driver, job.start, job.program);
}

bool Jobs::OnSpillbackDemand(ProcessId driver, ProcessId owner, bool outlives_driver) {
  const JobNumber local = OfDriver(driver);
  if (local == 0) return false;
  NodeJob& job = jobs_.at(local);
  if (job.ended && !outlives_driver) return false;
  if (outlives_driver) job.keep_until = Now() + kKeepForOutliving;
  if (owner.node != deps_.options.node) remote_owners_[owner] = {local, outlives_driver};
  return true;
}

void Jobs::End(JobNumber local, const proto::Death& death) {
  const auto it = jobs_.find(local);
  if (it == jobs_.end()) return;
  NodeJob& job = it->second;
  job.only_detached = false;
  if (job.ended) return;
  job.ended = true;
  deps_.on_driver_gone(job.driver);
  job.failed = !(death.cause() == proto::Death::LEFT ||
                 (death.cause() == proto::Death::EXITED && death.code() == 0));
  deps_.pool.EndWorkers(
      local, Outliving(local),
      absl::StrCat("its job ended: the driver ", job.driver.ToString(), " is gone"));
  // Else the removal of the job does it.
  if (deps_.has_detached_actors(local) || HasOutlivingDemands(local)) {
    deps_.launcher.EndStrays(local);
  }
  if (!job.remote) {
    if (job.number == 0) return;  // OnRegistered goes on.
    Finish(job);
  }
  RemoveIfOver(local);
}

void Jobs::OnOver(const proto::JobInfo& info) {
  const JobNumber local = OfDriver(ProcessId::Unpack(info.driver()));
  if (local == 0) {  // Another raylet may be about to describe it.
    ended_elsewhere_.insert(info.job());
    if (ended_elsewhere_.size() > kMostEndedElsewhere) {
      ended_elsewhere_.erase(ended_elsewhere_.begin());
    }
    return;
  }
  if (!jobs_.at(local).remote) return;
  proto::Death death;
  death.set_cause(proto::Death::LEFT);
  End(local, death);
}

void Jobs::OnNodeDead(NodeNumber node, const proto::Death& death) {
  absl::erase_if(remote_owners_, [node](const auto& entry) { return entry.first.node == node; });
  absl::erase_if(told_, [node](const auto& entry) { return entry.first == node; });
  std::vector<JobNumber> over;
  for (const auto& [local, job] : jobs_) {
    if (job.driver.node == node) over.push_back(local);
  }
  for (const JobNumber local : over) End(local, death);
}

void Jobs::Finish(const NodeJob& job) {
  proto::GcsRequest request;
  request.mutable_finish_job()->set_job(job.number);
  request.mutable_finish_job()->set_failed(job.failed);
  deps_.gcs.Command(std::move(request), nullptr);
}

void Jobs::RemoveIfOver(JobNumber local) {
  const auto it = jobs_.find(local);
  if (it == jobs_.end() || !it->second.ended || it->second.keep_until > Now()) return;
  if (deps_.has_detached_actors(local) || HasOutlivingDemands(local)) return;
  deps_.pool.RemoveJob(local, "its job ended");
  deps_.launcher.RemoveJob(local);
  absl::erase_if(told_, [local](const auto& entry) { return entry.second == local; });
  absl::erase_if(remote_owners_, [local](const auto& entry) { return entry.second.job == local; });
  jobs_.erase(it);
}

void Jobs::Tick() {
  std::vector<JobNumber> ended;
  for (const auto& [local, job] : jobs_) {
    if (job.ended && (job.number != 0 || job.remote)) ended.push_back(local);
  }
  for (const JobNumber local : ended) RemoveIfOver(local);
}

bool Jobs::Sweep(JobNumber local) {
  const NodeJob* job = Find(local);
  if (job == nullptr || job->ended || deps_.deaths.IsReachable(job->driver)) return false;
  End(local, deps_.deaths.DeathOf(job->driver));
  return true;
}

void Jobs::Keep(JobNumber local, Nanos duration) {
  const auto it = jobs_.find(local);
  if (it != jobs_.end()) it->second.keep_until = Now() + duration;
}

void Jobs::Close(const std::string& reason) {
  closed_ = true;
  for (const auto& [local, job] : jobs_) deps_.pool.RemoveJob(local, reason);
}

const NodeJob* Jobs::Find(JobNumber local) const {
  const auto it = jobs_.find(local);
  return it == jobs_.end() ? nullptr : &it->second;
}

JobNumber Jobs::LocalNumber(JobNumber number) const {
  for (const auto& [local, job] : jobs_) {
    if (job.number == number) return local;
  }
  return 0;
}

JobNumber Jobs::OfDriver(ProcessId driver) const {
  for (const auto& [local, job] : jobs_) {
    if (job.driver == driver) return local;
  }
  return 0;
}

JobNumber Jobs::OfRemoteOwner(ProcessId owner) const {
  const auto it = remote_owners_.find(owner);
  return it == remote_owners_.end() ? 0 : it->second.job;
}

absl::Status Jobs::AddEnvironment(JobNumber local, proto::LeaseSpec* spec) const {
  const NodeJob* job = Find(local);
  if (job == nullptr || job->start.default_environment().empty()) return absl::OkStatus();
  SHEAF_ASSIGN_OR_RETURN(std::string merged,
                         MergeEnvironments(job->start.default_environment(), spec->environment()));
  spec->set_environment(std::move(merged));
  return absl::OkStatus();
}

void Jobs::TellNode(NodeNumber node, JobNumber local, bool outlives_driver) {
  if (!told_.insert({node, local}).second && !outlives_driver) return;
  const NodeJob& job = jobs_.at(local);
  proto::RemoteJob message;
  message.set_outlives_driver(outlives_driver);
  message.set_job(job.number);
  message.set_driver(job.driver.packed());
  *message.mutable_start() = job.start;
  *message.mutable_program() = job.program;
  SendMessage(deps_.transport.To(RayletOf(node)), FrameKind::kRemoteJob, message);
}

std::vector<NodeNumber> Jobs::NodesToldOf(ProcessId driver) const {
  std::vector<NodeNumber> nodes;
  const JobNumber own = OfDriver(driver);
  for (const auto& [node, job] : told_) {
    if (own != 0 && job == own) nodes.push_back(node);
  }
  return nodes;
}

// An owner on another node that belongs to the job, and outlives its driver.
bool Jobs::IsHeir(ProcessId owner, JobNumber local) const {
  const auto it = remote_owners_.find(owner);
  return it != remote_owners_.end() && it->second.job == local && it->second.outlives_driver;
}

// What goes on when the driver of the job is gone: its detached actors, and whoever works for them,
// here or on other nodes.
absl::btree_set<ProcessId> Jobs::Outliving(JobNumber local) const {
  absl::btree_set<ProcessId> processes = deps_.detached_workers_of(local);
  for (const auto& [owner, entry] : remote_owners_) {
    if (IsHeir(owner, local)) processes.insert(owner);
  }
  if (processes.empty()) return processes;
  const std::vector<const Lease*> leases = deps_.queue.Leases();
  for (bool more = true; std::exchange(more, false);) {
    for (const Lease* lease : leases) {
      const auto worker = deps_.worker_of.find(lease->number);
      if (worker == deps_.worker_of.end() || !processes.contains(lease->demand.owner)) continue;
      more = processes.insert(worker->second).second || more;
    }
  }
  return processes;
}

bool Jobs::OutlivesDriver(ProcessId owner, JobNumber local) const {
  const auto it = remote_owners_.find(owner);
  return it != remote_owners_.end() ? it->second.outlives_driver : Outliving(local).contains(owner);
}

// Whether an owner on another node that outlives the driver has, or waits for, workers here.
bool Jobs::HasOutlivingDemands(JobNumber local) const {
  const bool has_any = std::any_of(remote_owners_.begin(), remote_owners_.end(),
                                   [&](const auto& entry) { return IsHeir(entry.first, local); });
  if (!has_any) return false;
  const std::vector<const Lease*> leases = deps_.queue.Leases();
  const std::vector<LeaseQueue::Pending> pending = deps_.queue.AllPending();
  return std::any_of(leases.begin(), leases.end(),
                     [&](const Lease* lease) { return IsHeir(lease->demand.owner, local); }) ||
         std::any_of(pending.begin(), pending.end(), [&](const LeaseQueue::Pending& one) {
           return IsHeir(one.demand.owner, local);
         });
}

}  // namespace sheaf
