// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// From the exit of a process until nothing of it is left:
//   its leases, work and workers end at once, and all whom it concerns are told;
//   when its ring peers have drained what it sent, no reference can be on its way from it any more:
//   what it held goes, and of what it owned this node keeps the sealed objects that somebody still
//   borrows; when its socket is at its end as well, nobody has a view through it: its rings,
//   segment and pins go.
#include "absl/strings/str_cat.h"
#include "object_store/server/store_owner.h"
#include "raylet/raylet.h"

namespace sheaf {
namespace {

using metrics::CounterId;

// A live process whose socket closed is given up after this.
constexpr Nanos kExitAfterSocket = kSecond;
// A worker that said goodbye is killed after this.
constexpr Nanos kExitAfterGoodbye = 5 * kSecond;

CounterId DeathCounter(proto::Death::Cause cause) {
  switch (cause) {
    case proto::Death::EXITED:
      return CounterId::kWorkerDeathsExited;
    case proto::Death::SIGNALLED:
      return CounterId::kWorkerDeathsSignalled;
    case proto::Death::OUT_OF_MEMORY:
      return CounterId::kWorkerDeathsOutOfMemory;
    case proto::Death::KILLED:
      return CounterId::kWorkerDeathsKilled;
    case proto::Death::LEFT:
      return CounterId::kWorkerDeathsLeft;
    case proto::Death::START_FAILED:
      return CounterId::kWorkerDeathsStartFailed;
    default:
      return CounterId::kWorkerDeathsOther;
  }
}

}  // namespace

void Raylet::Bury(ProcessId process, const proto::Death& death, bool exited) {
  const auto it = processes_.find(process);
  if (it == processes_.end()) {
    if (const auto remains = remains_.find(process); remains != remains_.end()) {
      remains->second.exited |= exited;
      ForgetIfOver(process);
    } else if (pool_.OnExited(process, death)) {  // A worker that never attached.
      metrics::Counter(world_.metrics, DeathCounter(death.cause())).Add();
      deaths_.Record(process, death);
    }
    return;
  }
  const AttachedProcess entry = std::move(it->second);
  processes_.erase(it);
  arguments_.OnProcessGone(process);
  deaths_.Record(process, death);

  Remains& remains = remains_[process];
  remains.role = entry.info.role;
  remains.job = entry.job;
  remains.died_at = Now();
  remains.exited = exited;
  remains.socket_closed = entry.socket_closed_at != 0;
  TellOfDeath(process, entry, death, &remains);
  if (entry.lease != 0) leases_.Return(entry.lease);
  if (pool_.OnExited(process, death)) {
    metrics::Counter(world_.metrics, DeathCounter(death.cause())).Add();
    detached_.OnWorkerDied(process, death);
  }
  leases_.OnProcessGone(process);
  groups_.OnProcessGone(process);
  StoreOnDeath(process, remains);
  adoption_.OnOwnerDied(process);  // So that borrowers who ask now learn what is there.
  queries_.Forget(process);
  // While its job is known: what other nodes have of its demands is taken back in the job's name.
  leases_.ApplyQueue();
  if (entry.info.role == ProcessRole::kDriver && entry.job != 0) jobs_.End(entry.job, death);
  session_.ReportDeath(process, death);
  ForgetUndrained([process](ProcessId peer) { return peer == process; });
}

// Those hear of it who share a ring with it, hold what it owned, lease it, or spoke with it. The
// first and the last may have references from it: they say when they have read everything.
void Raylet::TellOfDeath(ProcessId process, const AttachedProcess& entry, const proto::Death& death,
                         Remains* remains) {
  for (const ProcessId peer : world_.switchboard.PeersOf(process)) {
    if (deaths_.IsAlive(peer)) remains->undrained.insert(peer);
  }
  absl::btree_set<ProcessId> concerned = remains->undrained;
  for (const ProcessId holder : references_.HoldersOf(process)) concerned.insert(holder);
  const Lease* lease = queue_.Find(entry.lease);
  if (lease != nullptr) concerned.insert(lease->demand.owner);
  proto::ProcessDied message;
  message.set_process(process.packed());
  *message.mutable_death() = death;
  const auto told = [&](ProcessId other) {
    message.set_started(StartedFor(process, entry.lease, lease, other));
    return message;
  };
  for (const ProcessId other : concerned) {
    if (deaths_.IsAlive(other)) SendMessage(To(other), FrameKind::kProcessDied, told(other));
  }
  // Nodes that know its job hear of a driver's end. Of a worker's only those that it spoke with: a
  // demand of it that waits elsewhere is taken back as it was handed on, and a lease that is
  // granted after its death is refused when it comes (Contacts::DeliverLocal).
  remains->undrained.merge(
      contacts_.OnProcessDied(process, death, told, jobs_.NodesToldOf(process)));
}

JobNumber Raylet::JobOf(ProcessId process) const {
  if (const auto it = processes_.find(process); it != processes_.end()) return it->second.job;
  const auto it = remains_.find(process);
  return it == remains_.end() ? 0 : it->second.job;
}

// The last push of `caller` that `process` started under `number`, its lease when it died.
uint64_t Raylet::StartedFor(ProcessId process, LeaseNumber number, const Lease* lease,
                            ProcessId caller) const {
  // Pushes of a task's lease are numbered by its owner. Another one may have pushed for an earlier
  // lease that was taken from it.
  if (lease != nullptr && !lease->spec->actor && lease->demand.owner != caller) return 0;
  const auto [under, push] = world_.switchboard.Started(process, caller);
  return under == number && number != 0 ? push : 0;
}

// These peers will not say any more that they have drained what a dead process sent.
void Raylet::ForgetUndrained(absl::FunctionRef<bool(ProcessId)> gone) {
  std::vector<ProcessId> drained;
  for (auto& [dead, remains] : remains_) {
    absl::erase_if(remains.undrained, gone);
    if (remains.undrained.empty() && !remains.drained) drained.push_back(dead);
  }
  for (const ProcessId dead : drained) OnDrained(dead);
}

void Raylet::OnPeerDrained(ProcessId from, ProcessId dead) {
  const auto it = remains_.find(dead);
  if (it == remains_.end() || it->second.undrained.erase(from) == 0) return;
  if (it->second.undrained.empty()) OnDrained(dead);
}

void Raylet::OnDrained(ProcessId process) {
  remains_.at(process).drained = true;
  adoption_.AdoptObjectsOf(
      process);  // First: what it borrowed may lie inside what is adopted from it.
  references_.DropHolder(process);
  ForgetIfOver(process);
}

void Raylet::ForgetIfOver(ProcessId process) {
  Remains& remains = remains_.at(process);
  StoreOnDeath(process, remains);
  if (!remains.drained || !remains.socket_closed) return;
  if (remains.role == ProcessRole::kWorker && !remains.exited) return;
  remains_.erase(process);
  deaths_.RecordNothingLeft(process, Now());
  world_.switchboard.Remove(process);
  world_.transport.Forget(process);
}

// What the store learns as the process goes: first it is dead, then nothing can see through its
// views any more.
void Raylet::StoreOnDeath(ProcessId process, Remains& remains) {
  if (!remains.store_knows && (remains.exited || remains.socket_closed)) {
    remains.store_knows = true;
    transfers_.OnProcessGone(process);
    adoption_.OnProcessGone(process);
    world_.store.OnProcessDied(process);
  }
  if (remains.store_knows && remains.socket_closed && !remains.views_gone) {
    remains.views_gone = true;
    world_.store.OnViewsGone(process);
  }
}

void Raylet::CheckRemains() {
  const Nanos now = Now();
  std::vector<ProcessId> overdue;
  for (auto& [process, remains] : remains_) {
    if (!remains.drained && now - remains.died_at >= options_.drain_limit) {
      remains.undrained.clear();
      overdue.push_back(process);
    }
    if (remains.role == ProcessRole::kWorker && !remains.exited &&
        now - remains.died_at >= kExitAfterGoodbye) {
      world_.launcher.Kill(process, "it said goodbye and did not go");
    }
  }
  for (const ProcessId process : overdue) OnDrained(process);

  std::vector<ProcessId> hung_up;
  for (const auto& [process, entry] : processes_) {
    if (entry.socket_closed_at != 0 && now - entry.socket_closed_at >= kExitAfterSocket) {
      hung_up.push_back(process);
    }
  }
  for (const ProcessId process : hung_up) {
    proto::Death death;
    death.set_cause(proto::Death::LEFT);
    death.set_message("it closed its connection to the raylet");
    Bury(process, death, /*exited=*/false);
  }
}

}  // namespace sheaf
