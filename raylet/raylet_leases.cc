// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Demands, grants, returns and blocked workers: between the lease queue, which decides, and the
// worker pool.
#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "base/environment.h"
#include "base/log.h"
#include "base/parse_frame.h"
#include "base/status_macros.h"
#include "raylet/raylet.h"

namespace sheaf {
namespace {

using metrics::Counter;
using metrics::CounterId;
using metrics::Histogram;
using metrics::HistogramId;

// What a worker needs to know of its lease; the strategy has done its work.
proto::LeaseSpec SpecForWorker(const LeaseSpec& spec) {
  proto::LeaseSpec message = ToMessage(spec);
  message.clear_strategy();
  return message;
}

}  // namespace

absl::Status Raylet::OnLeaseDemand(ProcessId owner, const Frame& frame) {
  SHEAF_ASSIGN_OR_RETURN(auto demand, ParseFrame<proto::LeaseDemand>(frame));
  const JobNumber job = processes_.at(owner).job;
  if (job == 0) {
    Refuse({owner, demand.key(), 0}, ErrorKind::kSystem, "this driver has no job");
    return absl::OkStatus();
  }
  if (demand.has_spec()) SHEAF_RETURN_IF_ERROR(AddJobEnvironment(job, demand.mutable_spec()));
  FollowGroupOf(demand.spec());
  queue_.OnDemand(owner, demand, Now(), ArgumentBytesOf(demand));
  return absl::OkStatus();
}

// What the driver set for all of its job's workers, below what the task sets for itself.
absl::Status Raylet::AddJobEnvironment(JobNumber local, proto::LeaseSpec* spec) const {
  const auto job = jobs_.find(local);
  if (job == jobs_.end() || job->second.start.default_environment().empty())
    return absl::OkStatus();
  SHEAF_ASSIGN_OR_RETURN(
      std::string merged,
      MergeEnvironments(job->second.start.default_environment(), spec->environment()));
  spec->set_environment(std::move(merged));
  return absl::OkStatus();
}

absl::Status Raylet::OnLeaseReturn(ProcessId owner, const Frame& frame) {
  SHEAF_ASSIGN_OR_RETURN(const auto message, ParseFrame<proto::LeaseReturn>(frame));
  if (const auto worker = revocations_.OnOwnerReturned(message.lease(), owner)) {
    pool_.SetShunned(*worker, owner, false);
    queue_.OnOwnerSpoke(owner, Now());
    return absl::OkStatus();
  }
  const Lease* lease = queue_.Find(message.lease());
  if (lease == nullptr) return absl::OkStatus();
  const auto it = worker_of_.find(lease->number);
  if (it != worker_of_.end() && it->second == owner && lease->revoked) {
    TakeLease(*lease, owner, message.discard_worker());
    return absl::OkStatus();
  }
  if (lease->demand.owner != owner) return absl::OkStatus();
  if (it == worker_of_.end()) {
    ReturnLease(lease->number);
    return absl::OkStatus();
  }
  const ProcessId worker = it->second;
  if (message.discard_worker() || lease->spec->actor) {
    // What it holds comes free with its exit.
    pool_.Kill(worker, lease->spec->actor ? "its actor ended" : "its owner has no more use for it");
    return absl::OkStatus();
  }
  proto::LeaseEnd end;
  end.set_lease(lease->number);
  SendMessage(To(worker), FrameKind::kLeaseEnd, end);
  queue_.OnUnneeded(lease->number);
  processes_.at(worker).lease = 0;
  pool_.OnReturned(worker,
                   /*discard=*/false);  // Before the queue grants to the next who needs one.
  ReturnLease(lease->number);
  return absl::OkStatus();
}

// The worker itself returns `lease`, as this raylet has told it to: its owner does not answer.
void Raylet::TakeLease(const Lease& lease, ProcessId worker, bool discard) {
  const LeaseNumber number = lease.number;
  Log(LogLevel::kInfo, lease.demand.owner.ToString(), " did not answer: lease ", number,
      " was taken from it");
  revocations_.OnTaken(number, lease.demand.owner, worker);
  pool_.SetShunned(worker, lease.demand.owner, true);
  queue_.OnOwnerSilent(number);
  processes_.at(worker).lease = 0;
  pool_.OnReturned(worker, discard);
  ReturnLease(number);
}

// An owner that was asked for a lease and does not answer is stopped, or cut off: the worker hands
// back what has not started, and the lease when nothing of it runs.
void Raylet::TakeOverdueLeases() {
  for (const LeaseNumber number : revocations_.TakeOverdue(Now())) {
    const Lease* lease = queue_.Find(number);
    if (lease == nullptr || lease->ending) continue;
    const auto it = worker_of_.find(number);
    if (it == worker_of_.end()) {  // Its worker is still to come, and its owner to hear of it.
      revocations_.OnAsked(number, Now());
      continue;
    }
    proto::LeaseRevoke message;
    message.set_lease(number);
    SendMessage(To(it->second), FrameKind::kLeaseRevoke, message);
    // It was granted after the first word, perhaps.
    if (MayHear(lease->demand.owner))
      SendMessage(To(lease->demand.owner), FrameKind::kLeaseRevoke, message);
  }
}

void Raylet::ReturnLease(LeaseNumber lease) {
  pool_.Forget(lease);
  worker_of_.erase(lease);
  if (!queue_.OnReturn(lease, Now())) return;
  room_came_ = true;
  Counter(world_.metrics, CounterId::kLeasesReturned).Add();
}

absl::Status Raylet::OnKillWorker(ProcessId owner, const Frame& frame) {
  SHEAF_ASSIGN_OR_RETURN(const auto message, ParseFrame<proto::KillWorker>(frame));
  if (message.lease() == 0) {  // It found damage in the rings that it shares with that process.
    const ProcessId peer = ProcessId::Unpack(message.process());
    const std::vector<ProcessId> peers = world_.switchboard.PeersOf(owner);
    if (!absl::c_linear_search(peers, peer)) return absl::OkStatus();
    Counter(world_.metrics, CounterId::kBadFrames).Add();
    // Either of the two may have done it, and nobody can tell which: users' own programs stay.
    for (const ProcessId end : {peer, owner}) {
      if (pool_.Find(end) != nullptr) pool_.Kill(end, message.reason());
    }
    return absl::OkStatus();
  }
  const Lease* lease = queue_.Find(message.lease());
  if (lease == nullptr || lease->demand.owner != owner) return absl::OkStatus();
  const auto it = worker_of_.find(lease->number);
  if (it == worker_of_.end() || it->second.packed() != message.process()) return absl::OkStatus();
  pool_.Kill(it->second, message.reason());
  return absl::OkStatus();
}

absl::Status Raylet::OnBlockedFrame(ProcessId worker, AttachedProcess& process,
                                    const Frame& frame) {
  SHEAF_ASSIGN_OR_RETURN(const auto message, ParseFrame<proto::Blocked>(frame));
  if (process.lease == 0 || !pool_.OnBlocked(worker, message.blocked())) return absl::OkStatus();
  if (message.blocked()) {
    queue_.OnBlocked(process.lease, Now(), arguments_.IsWaiting(worker));
  } else {
    queue_.OnUnblocked(process.lease, Now());
  }
  return absl::OkStatus();
}

absl::Status Raylet::OnConnectRequest(ProcessId from, const Frame& frame) {
  SHEAF_ASSIGN_OR_RETURN(const auto message, ParseFrame<proto::ConnectRequest>(frame));
  const ProcessId peer = ProcessId::Unpack(message.peer());
  if (peer == from) return absl::OkStatus();
  if (IsAlive(peer) && world_.switchboard.Connect(from, peer).ok()) return absl::OkStatus();
  proto::ConnectRefused refusal;
  refusal.set_peer(message.peer());
  *refusal.mutable_death() = DeathOf(peer);
  SendMessage(To(from), FrameKind::kConnectRefused, refusal);
  return absl::OkStatus();
}

void Raylet::OnWorkerReady(ProcessId worker) {
  const WorkerPool::Worker* entry = pool_.Find(worker);
  if (entry == nullptr) return;
  const Nanos asked_at = entry->since;
  if (!pool_.OnReady(worker)) return;
  Counter(world_.metrics, CounterId::kWorkersStarted).Add();
  Histogram(world_.metrics, HistogramId::kWorkerStart).Observe(Now() - asked_at);
}

void Raylet::Perform(const LeaseAction& action) {
  switch (action.kind) {
    case LeaseAction::Kind::kGrant:
      if (const Lease* lease = queue_.Find(action.lease); lease != nullptr && !lease->ending) {
        FindWorker(*lease);
      }
      return;
    case LeaseAction::Kind::kRevoke: {
      revocations_.OnAsked(action.lease, Now());
      if (!MayHear(action.demand.owner)) return;
      proto::LeaseRevoke message;
      message.set_lease(action.lease);
      SendMessage(To(action.demand.owner), FrameKind::kLeaseRevoke, message);
      Counter(world_.metrics, CounterId::kLeasesRevoked).Add();
      return;
    }
    case LeaseAction::Kind::kEnd:
      EndLease(action.lease, action.error,
               action.words.empty() ? "its owner is gone" : action.words);
      return;
    case LeaseAction::Kind::kRefuse:
      Counter(world_.metrics, CounterId::kLeasesRefused).Add();
      Refuse(action.demand, action.error, action.words);
      return;
    case LeaseAction::Kind::kNotice:
      Refuse(action.demand, ErrorKind::kNone, action.words);
      return;
    case LeaseAction::Kind::kSpillback:
    case LeaseAction::Kind::kGiveBack:
      HandOn(action);
      return;
  }
}

JobNumber Raylet::JobOf(const Lease& lease) const {
  if (lease.demand.owner == RayletOf(options_.node))
    return JobOfDetached(detached_, lease.demand.key);
  return JobOfOwner(lease.demand.owner);
}

void Raylet::FindWorker(const Lease& lease) {
  WorkerNeed need;
  need.ticket = lease.number;
  need.job = JobOf(lease);
  need.environment = lease.spec->environment;
  need.gpu_ids = lease.allocation.GpuIds();
  need.actor = lease.spec->actor;
  need.owner = lease.demand.owner;
  pool_.Need(std::move(need));
}

void Raylet::OnAssigned(LeaseNumber number, ProcessId worker) {
  const Lease* lease = queue_.Find(number);
  const auto process = processes_.find(worker);
  if (process == processes_.end()) {  // It died in this very transaction.
    if (lease != nullptr && !lease->ending) FindWorker(*lease);
    return;
  }
  if (lease == nullptr || lease->ending) {  // Its kEnd comes in this very transaction.
    pool_.OnReturned(worker, /*discard=*/pool_.Find(worker)->state == WorkerState::kActor);
    return;
  }
  const ProcessId owner = lease->demand.owner;
  const bool detached = owner == RayletOf(options_.node);
  if (owner.node != options_.node) {
    contacts_[worker].insert(owner);
  } else if (!detached) {
    const absl::Status connected = world_.switchboard.Connect(owner, worker);
    if (!connected.ok()) {
      pool_.OnReturned(worker, /*discard=*/true);
      if (absl::IsNotFound(connected)) {
        // One of them is gone; if it is the worker, there will be another. An actor's demand would
        // end with its lease, so that stays.
        if (lease->spec->actor) {
          FindWorker(*lease);
        } else {
          ReturnLease(number);
        }
      } else {
        queue_.OnGrantFailed(number, ErrorKind::kSystem, std::string(connected.message()), Now());
      }
      return;
    }
  }
  process->second.lease = number;
  worker_of_[number] = worker;
  const std::vector<uint32_t> gpu_ids = lease->allocation.GpuIds();
  proto::LeaseBegin begin;
  begin.set_lease(number);
  begin.set_owner(owner.packed());
  for (const uint32_t id : gpu_ids) begin.add_gpu_ids(id);
  if (const auto job = jobs_.find(JobOf(*lease)); job != jobs_.end()) {
    begin.set_job(job->second.number);
    begin.set_name_space(job->second.start.name_space());
  }
  *begin.mutable_spec() = SpecForWorker(*lease->spec);
  SendMessage(To(worker), FrameKind::kLeaseBegin, begin);
  Counter(world_.metrics, CounterId::kLeasesGranted).Add();
  Histogram(world_.metrics, HistogramId::kLeaseWait).Observe(Now() - lease->granted_at);
  if (detached) {
    OnDetachedPlaced(lease->demand.key, number, worker);
    return;
  }
  proto::LeaseGrant grant;
  grant.set_key(lease->demand.key);
  grant.set_lease(number);
  grant.set_worker(worker.packed());
  for (const uint32_t id : gpu_ids) grant.add_gpu_ids(id);
  SendMessage(To(owner), FrameKind::kLeaseGrant, grant);
}

void Raylet::EndLease(LeaseNumber lease, ErrorKind error, const std::string& words) {
  if (const auto it = worker_of_.find(lease); it != worker_of_.end()) {
    // It may run a task of this owner; what it holds comes free with its exit.
    pool_.Kill(it->second, words);
    return;
  }
  const Lease* ended = queue_.Find(lease);
  if (error != ErrorKind::kGroupRemoved || ended == nullptr || !ended->spec->actor) {
    ReturnLease(lease);
    return;
  }
  // An actor's demand ends with its lease, and no worker dies of which its owner would hear.
  pool_.Forget(lease);
  queue_.OnGrantFailed(lease, error, words, Now());
  room_came_ = true;
}

void Raylet::Refuse(const DemandId& demand, ErrorKind error, const std::string& words) {
  if (demand.owner == RayletOf(options_.node)) {
    OnDetachedRefused(demand.key, error, words);
    return;
  }
  if (!MayHear(demand.owner)) return;
  // Only this node ends: the owner's raylet will hear so, and look elsewhere.
  if (shutting_down_ && demand.owner.node != options_.node) return;
  proto::LeaseRefused message;
  message.set_key(demand.key);
  message.set_error(static_cast<uint32_t>(error));
  message.set_message(words);
  SendMessage(To(demand.owner), FrameKind::kLeaseRefused, message);
}

}  // namespace sheaf
