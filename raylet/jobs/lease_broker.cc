// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "raylet/jobs/lease_broker.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/parse_frame.h"
#include "base/status_macros.h"
#include "metrics/counter.h"

namespace sheaf {
namespace {

using metrics::Counter;
using metrics::CounterId;
using metrics::Histogram;
using metrics::HistogramId;

constexpr Nanos kKillAgain = 3 * kSecond;

// What a worker needs to know of its lease; the strategy has done its work.
proto::LeaseSpec SpecForWorker(const LeaseSpec& spec) {
  proto::LeaseSpec message = ToMessage(spec);
  message.clear_strategy();
  return message;
}

ArgumentBytes ArgumentBytesOf(const proto::LeaseDemand& demand) {
  ArgumentBytes bytes;
  for (int i = 0; i < std::min(demand.argument_nodes_size(), demand.argument_node_bytes_size());
       ++i) {
    bytes.emplace_back(demand.argument_nodes(i), demand.argument_node_bytes(i));
  }
  return bytes;
}

}  // namespace

absl::Status LeaseBroker::OnDemand(ProcessId owner, const Frame& frame) {
  SHEAF_ASSIGN_OR_RETURN(auto demand, ParseFrame<proto::LeaseDemand>(frame));
  const JobNumber job = deps_.processes.at(owner).job;
  if (job == 0) {
    Refuse({owner, demand.key(), 0}, ErrorKind::kSystem, "this driver has no job");
    return absl::OkStatus();
  }
  if (demand.has_spec())
    SHEAF_RETURN_IF_ERROR(deps_.jobs.AddEnvironment(job, demand.mutable_spec()));
  deps_.groups.FollowGroupOf(demand.spec());
  deps_.queue.OnDemand(owner, demand, Now(), ArgumentBytesOf(demand));
  return absl::OkStatus();
}

// An owner that was asked for a lease and does not answer is stopped, or cut off: the worker hands
// back what has not started, and the lease when nothing of it runs.
void LeaseBroker::Tick() {
  for (const LeaseNumber number : revocations_.TakeOverdue(Now())) {
    const Lease* lease = deps_.queue.Find(number);
    if (lease == nullptr || lease->ending || lease->leaving) continue;
    const auto it = deps_.worker_of.find(number);
    if (it == deps_.worker_of.end()) {  // Its worker is still to come, and its owner to hear of it.
      revocations_.OnAsked(number, Now());
      continue;
    }
    SendRevoke(it->second, number);
    // It was granted after the first word, perhaps.
    SendRevoke(lease->demand.owner, number);
  }
}

void LeaseBroker::SendRevoke(ProcessId to, LeaseNumber lease) {
  if (!deps_.deaths.IsReachable(to)) return;
  proto::LeaseRevoke message;
  message.set_lease(lease);
  SendMessage(To(to), FrameKind::kLeaseRevoke, message);
}

void LeaseBroker::Return(LeaseNumber lease) {
  deps_.pool.Forget(lease);
  deps_.worker_of.erase(lease);
  if (!deps_.queue.OnReturn(lease, Now())) return;
  deps_.groups.OnRoom();
  Counter(deps_.metrics, CounterId::kLeasesReturned).Add();
}

absl::Status LeaseBroker::OnBlocked(ProcessId worker, const Frame& frame) {
  SHEAF_ASSIGN_OR_RETURN(const auto message, ParseFrame<proto::Blocked>(frame));
  const AttachedProcess& process = deps_.processes.at(worker);
  if (process.lease == 0 || !deps_.pool.OnBlocked(worker, message.blocked())) {
    return absl::OkStatus();
  }
  if (message.blocked()) {
    deps_.queue.OnBlocked(process.lease, Now(), deps_.arguments.IsWaiting(worker));
  } else {
    deps_.queue.OnUnblocked(process.lease, Now());
  }
  return absl::OkStatus();
}

void LeaseBroker::OnProcessGone(ProcessId process) {
  revocations_.ForgetOwners([process](ProcessId gone) { return gone == process; });
  deps_.queue.OnOwnerGone(process, Now());
}

void LeaseBroker::OnPeerDrained(ProcessId owner, ProcessId worker) {
  if (revocations_.OnDeathHeard(owner, worker)) deps_.queue.OnOwnerSpoke(owner, Now());
}

void LeaseBroker::OnNodeDead(NodeNumber node) {
  revocations_.ForgetOwners([node](ProcessId gone) { return gone.node == node; });
}

void LeaseBroker::OnWorkerReady(ProcessId worker) {
  const WorkerPool::Worker* entry = deps_.pool.Find(worker);
  if (entry == nullptr) return;
  const Nanos asked_at = entry->since;
  if (!deps_.pool.OnReady(worker)) return;
  Counter(deps_.metrics, CounterId::kWorkersStarted).Add();
  Histogram(deps_.metrics, HistogramId::kWorkerStart).Observe(Now() - asked_at);
}

bool LeaseBroker::ApplyQueue() {
  const std::vector<LeaseAction> actions = deps_.queue.TakeActions();
  for (const LeaseAction& action : actions) Apply(action);
  return !actions.empty();
}

bool LeaseBroker::Settle() {
  bool any = ApplyQueue();
  for (const WorkerPool::Assigned& assigned : deps_.pool.TakeAssigned()) {
    OnAssigned(assigned.ticket, assigned.worker);
    any = true;
  }
  for (const WorkerPool::Leaving& leaving : deps_.pool.TakeLeaving()) TellToLeave(leaving);
  for (const WorkerPool::Failed& failed : deps_.pool.TakeFailed()) {
    deps_.queue.OnGrantFailed(failed.ticket, failed.error.kind, failed.error.message, Now());
    any = true;
  }
  return any;
}

void LeaseBroker::Apply(const LeaseAction& action) {
  switch (action.kind) {
    case LeaseAction::Kind::kGrant:
      if (const Lease* lease = deps_.queue.Find(action.lease); lease != nullptr && !lease->ending) {
        FindWorker(*lease);
      }
      return;
    case LeaseAction::Kind::kRevoke:
      revocations_.OnAsked(action.lease, Now());
      if (!deps_.deaths.IsReachable(action.demand.owner)) return;
      SendRevoke(action.demand.owner, action.lease);
      Counter(deps_.metrics, CounterId::kLeasesRevoked).Add();
      return;
    case LeaseAction::Kind::kEnd:
      End(action.lease, action.error,
          action.message.empty() ? "its owner is gone" : action.message);
      return;
    case LeaseAction::Kind::kRefuse:
      Counter(deps_.metrics, CounterId::kLeasesRefused).Add();
      Refuse(action.demand, action.error, action.message);
      return;
    case LeaseAction::Kind::kNotice: {
      const LeaseSpec* spec = deps_.queue.FindSpec(action.demand);
      deps_.on_infeasible(spec, action.message);
      const bool named = spec != nullptr && !spec->name.empty();
      Refuse(action.demand, ErrorKind::kNone,
             named ? absl::StrCat(spec->name, ": ", action.message) : action.message);
      return;
    }
    case LeaseAction::Kind::kSpillback:
    case LeaseAction::Kind::kGiveBack:
      SendSpillback(action);
      return;
  }
}

JobNumber LeaseBroker::JobOf(const Lease& lease) const {
  if (lease.demand.owner == Self()) return JobOfDetached(deps_.detached.all(), lease.demand.key);
  return JobOfOwner(lease.demand.owner);
}

void LeaseBroker::FindWorker(const Lease& lease) {
  WorkerNeed need;
  need.ticket = lease.number;
  need.job = JobOf(lease);
  need.environment = lease.spec->environment;
  need.gpu_ids = lease.allocation.GpuIds();
  need.actor = lease.spec->actor;
  need.owner = lease.demand.owner;
  deps_.pool.Need(std::move(need));
}

void LeaseBroker::OnAssigned(LeaseNumber number, ProcessId worker) {
  const Lease* lease = deps_.queue.Find(number);
  const auto process = deps_.processes.find(worker);
  if (process == deps_.processes.end()) {  // It died in this very transaction.
    if (lease != nullptr && !lease->ending) FindWorker(*lease);
    return;
  }
  if (lease == nullptr || lease->ending) {  // Its kEnd comes in this very transaction.
    if (deps_.pool.Find(worker)->state == WorkerState::kActor)
      return deps_.pool.Retire(worker, kForever, "its actor is wanted no more");
    return deps_.pool.OnReturned(worker, /*discard=*/false);
  }
  if (Join(*lease, worker)) Bind(*lease, worker, process->second);
}

// The owner and the worker of its lease can speak with each other. False: they cannot, and the
// worker is gone.
bool LeaseBroker::Join(const Lease& lease, ProcessId worker) {
  const ProcessId owner = lease.demand.owner;
  if (owner == Self()) return true;
  if (owner.node != deps_.node) {
    deps_.contacts.Add(worker, owner);
    return true;
  }
  const absl::Status connected = deps_.switchboard.Connect(owner, worker);
  if (connected.ok()) return true;
  deps_.pool.Kill(worker, "its owner cannot reach it");
  if (!absl::IsNotFound(connected)) {
    deps_.queue.OnGrantFailed(lease.number, ErrorKind::kSystem, std::string(connected.message()),
                              Now());
  } else if (lease.spec->actor) {
    // One of them is gone; if it is the worker, there will be another. An actor's demand would end
    // with its lease, so that stays.
    FindWorker(lease);
  } else {
    Return(lease.number);
  }
  return false;
}

// Tells both ends.
void LeaseBroker::Bind(const Lease& lease, ProcessId worker, AttachedProcess& process) {
  const ProcessId owner = lease.demand.owner;
  process.lease = lease.number;
  deps_.worker_of[lease.number] = worker;
  const std::vector<uint32_t> gpu_ids = lease.allocation.GpuIds();
  proto::LeaseBegin begin;
  begin.set_lease(lease.number);
  begin.set_owner(owner.packed());
  for (const uint32_t id : gpu_ids) begin.add_gpu_ids(id);
  if (const NodeJob* job = deps_.jobs.Find(JobOf(lease)); job != nullptr) {
    begin.set_job(job->number);
    begin.set_name_space(job->start.name_space());
  }
  *begin.mutable_spec() = SpecForWorker(*lease.spec);
  SendMessage(To(worker), FrameKind::kLeaseBegin, begin);
  Counter(deps_.metrics, CounterId::kLeasesGranted).Add();
  Histogram(deps_.metrics, HistogramId::kLeaseWait).Observe(Now() - lease.granted_at);
  if (owner == Self()) {
    deps_.detached.OnPlaced(lease.demand.key, lease.number, worker);
    return;
  }
  proto::LeaseGrant grant;
  grant.set_key(lease.demand.key);
  grant.set_lease(lease.number);
  grant.set_worker(worker.packed());
  for (const uint32_t id : gpu_ids) grant.add_gpu_ids(id);
  grant.set_calls(deps_.pool.CallsOf(worker, lease.spec->name));
  SendMessage(To(owner), FrameKind::kLeaseGrant, grant);
}

void LeaseBroker::End(LeaseNumber lease, ErrorKind error, const std::string& reason) {
  if (const auto it = deps_.worker_of.find(lease); it != deps_.worker_of.end()) {
    // It may run a task of this owner; what it holds comes free with its exit.
    deps_.pool.Kill(it->second, reason);
    return;
  }
  const Lease* ended = deps_.queue.Find(lease);
  if (error != ErrorKind::kGroupRemoved || ended == nullptr || !ended->spec->actor) {
    Return(lease);
    return;
  }
  // An actor's demand ends with its lease, and no worker dies of which its owner would hear.
  deps_.pool.Forget(lease);
  deps_.queue.OnGrantFailed(lease, error, reason, Now());
  deps_.groups.OnRoom();
}

void LeaseBroker::Refuse(const DemandId& demand, ErrorKind error, const std::string& reason) {
  if (demand.owner == Self()) {
    deps_.detached.OnRefused(demand.key, error, reason);
    return;
  }
  if (!deps_.deaths.IsReachable(demand.owner)) return;
  // Only this node ends: the owner's raylet will hear so, and look elsewhere.
  if (deps_.jobs.closed() && demand.owner.node != deps_.node) return;
  proto::LeaseRefused message;
  message.set_key(demand.key);
  message.set_error(static_cast<uint32_t>(error));
  message.set_message(reason);
  SendMessage(To(demand.owner), FrameKind::kLeaseRefused, message);
}

absl::Status LeaseBroker::OnSpillbackDemand(ProcessId from, const Frame& frame) {
  SHEAF_ASSIGN_OR_RETURN(const auto message, ParseFrame<proto::SpillbackDemand>(frame));
  const ProcessId owner = ProcessId::Unpack(message.owner());
  if (owner.node == kGcs.node || owner.is_raylet()) {
    return absl::InvalidArgumentError(absl::StrCat("a demand of ", owner.ToString()));
  }
  if (message.driver() == 0) {
    deps_.queue.OnGivenBack(owner, message.demand().key(), from.node, message.hops(),
                            message.demand().wanted(), message.unneeded(), Now());
    return absl::OkStatus();
  }
  Log(LogLevel::kDebug, "node ", from.node, " hands on ", message.demand().wanted(), " of demand ",
      message.demand().key(), " of ", owner.ToString(), ", hop ", message.hops());
  if (!deps_.deaths.IsReachable(owner)) return absl::OkStatus();
  const ProcessId driver = ProcessId::Unpack(message.driver());
  if (!deps_.jobs.OnSpillbackDemand(driver, owner, message.outlives_driver()))
    return absl::OkStatus();
  deps_.follower.OnHeard(owner.node);
  deps_.queue.OnDemand(owner, message.demand(), Now(), {}, from.node, message.hops());
  return absl::OkStatus();
}

// Hands a demand, or what is left of it, to another node; or back, which names no driver.
void LeaseBroker::SendSpillback(const LeaseAction& action) {
  proto::SpillbackDemand message;
  message.set_owner(action.demand.owner.packed());
  message.set_hops(action.hops);
  message.mutable_demand()->set_key(action.demand.key);
  message.mutable_demand()->set_wanted(action.wanted);
  if (action.kind == LeaseAction::Kind::kGiveBack) {
    message.set_unneeded(action.unneeded);
    SendMessage(To(RayletOf(action.node)), FrameKind::kSpillbackDemand, message);
    return;
  }
  const LeaseSpec* spec = deps_.queue.FindSpec(action.demand);
  if (spec != nullptr) {
    *message.mutable_demand()->mutable_spec() = ToMessage(*spec);
    message.mutable_demand()->set_backlog(action.wanted);
  }
  const JobNumber local = JobOfOwner(action.demand.owner);
  const NodeJob* job = deps_.jobs.Find(local);
  if (job == nullptr) return;  // Ended: the other node hears of that as well.
  message.set_driver(job->driver.packed());
  const bool outlives = deps_.jobs.OutlivesDriver(action.demand.owner, local);
  message.set_outlives_driver(outlives);
  deps_.jobs.TellNode(action.node, local, outlives);
  Counter(deps_.metrics, CounterId::kDemandsHandedOn).Add();
  Log(LogLevel::kDebug, "handing ", action.wanted, " of demand ", action.demand.key, " of ",
      action.demand.owner.ToString(), " to node ", action.node);
  SendMessage(To(RayletOf(action.node)), FrameKind::kSpillbackDemand, message);
}

JobNumber LeaseBroker::JobOfOwner(ProcessId owner) const {
  if (owner.node != deps_.node) return deps_.jobs.OfRemoteOwner(owner);
  const auto it = deps_.processes.find(owner);
  return it != deps_.processes.end() ? it->second.job : deps_.job_of_dead(owner);
}

uint64_t LeaseBroker::StartedFor(ProcessId process, LeaseNumber number, ProcessId caller) const {
  // Pushes of a task's lease are numbered by its owner. Another one may have pushed for an earlier
  // lease that was taken from it.
  const Lease* lease = deps_.queue.Find(number);
  if (lease != nullptr && !lease->spec->actor && lease->demand.owner != caller) return 0;
  const auto [under, push] = deps_.switchboard.Started(process, caller);
  return under == number && number != 0 ? push : 0;
}

bool LeaseBroker::SweepLease(LeaseNumber number) {
  const Lease* lease = deps_.queue.Find(number);
  if (lease == nullptr) return false;
  const ProcessId owner = lease->demand.owner;
  if (owner == Self()) {
    if (!deps_.detached.IsWanted(lease->demand.key) && !lease->ending) {
      End(number, ErrorKind::kOwnerDied, "its actor is not wanted any more");
      return true;
    }
  } else if (!deps_.deaths.IsReachable(owner) && !lease->ending && !lease->leaving) {
    deps_.queue.OnOwnerGone(owner, Now());
    return true;
  }
  const auto bound = deps_.worker_of.find(number);
  if (bound != deps_.worker_of.end()) {
    const auto process = deps_.processes.find(bound->second);
    if (process != deps_.processes.end() && process->second.lease == number) return false;
    Return(number);
    return true;
  }
  if (deps_.pool.IsNeeded(number)) return false;
  FindWorker(*lease);
  return true;
}

bool LeaseBroker::SweepWorker(ProcessId process) {
  const WorkerPool::Worker* worker = deps_.pool.Find(process);
  if (worker == nullptr) return false;
  switch (worker->state) {
    case WorkerState::kStarting:
      return false;  // The pool's own timeout.
    case WorkerState::kDying:
      if (worker->leaves_by != 0) return false;  // It may take so long to leave by itself.
      // Told once, and the launcher does it; said again in case that was lost, which is no repair.
      if (Now() - worker->since > kKillAgain) deps_.launcher.Kill(process, "it did not end");
      return false;
    default:
      break;
  }
  const auto entry = deps_.processes.find(process);
  if (entry == deps_.processes.end()) {
    deps_.pool.Kill(process, "it is not attached");
    return true;
  }
  if (worker->state == WorkerState::kIdle) return false;
  const auto bound = deps_.worker_of.find(entry->second.lease);
  if (bound != deps_.worker_of.end() && bound->second == process) return false;
  deps_.pool.Kill(process, "it has lost its lease");
  return true;
}

}  // namespace sheaf
