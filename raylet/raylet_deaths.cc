// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Deaths of processes, here and on other nodes, and of nodes: their leases, work and workers end at
// once, and all whom it concerns are told. What is left of a process then, EndedProcesses has.
#include "absl/strings/str_cat.h"
#include "base/parse_frame.h"
#include "base/status_macros.h"
#include "raylet/raylet.h"

namespace sheaf {

void Raylet::OnProcessEnded(ProcessId process, const proto::Death& death, bool exited) {
  const auto it = processes_.find(process);
  const AttachedProcess was = std::move(it->second);
  processes_.erase(it);
  objects_.OnCallsGone(process);
  deaths_.Record(process, death);
  const Lease* const lease = queue_.Find(was.lease);
  events_.OnDied(lease == nullptr ? nullptr : lease->spec.get(), was.info.os_pid, death);
  objects_.TellBeforeDeath(process);
  absl::btree_set<ProcessId> undrained = TellOfDeath(process, was, death);
  if (was.lease != 0) leases_.Return(was.lease);
  if (pool_.OnExited(process, death)) {
    figures_.CountDeath(death);
    detached_.OnWorkerDied(process, death);
  }
  leases_.OnProcessGone(process);
  groups_.OnProcessGone(process);
  ended_.Add(process, was, exited, std::move(undrained));
  objects_.OnOwnerDied(process);  // So that borrowers who ask now learn what is there.
  queries_.Forget(process);
  // While its job is known: what other nodes have of its demands is taken back in the job's name.
  leases_.ApplyQueue();
  if (was.info.role == ProcessRole::kDriver && was.job != 0) jobs_.End(was.job, death);
  cluster_.ReportDeath(process, death);
  ended_.OnPeersGone([process](ProcessId peer) { return peer == process; });
}

// Those hear of it who share a ring with it, hold what it owned, lease it, or spoke with it. Returns
// the first and the last, which may have references from it: they say when they have read all.
absl::btree_set<ProcessId> Raylet::TellOfDeath(ProcessId process, const AttachedProcess& was,
                                               const proto::Death& death) {
  absl::btree_set<ProcessId> undrained;
  for (const ProcessId peer : deps_.switchboard.PeersOf(process)) {
    if (deaths_.IsAlive(peer)) undrained.insert(peer);
  }
  absl::btree_set<ProcessId> concerned = undrained;
  for (const ProcessId holder : objects_.references().HoldersOf(process)) concerned.insert(holder);
  if (const Lease* lease = queue_.Find(was.lease)) concerned.insert(lease->demand.owner);
  proto::ProcessDied message;
  message.set_process(process.packed());
  *message.mutable_death() = death;
  const auto told = [&](ProcessId other) {
    message.set_started(leases_.StartedFor(process, was.lease, other));
    return message;
  };
  for (const ProcessId other : concerned) {
    if (deaths_.IsAlive(other))
      SendMessage(deps_.transport.To(other), FrameKind::kProcessDied, told(other));
  }
  // Nodes that know its job hear of a driver's end. Of a worker's only those that it spoke with: a
  // demand of it that waits elsewhere is taken back as it was handed on, and a lease that is
  // granted after its death is refused when it comes (Contacts::DeliverLocal).
  undrained.merge(contacts_.OnProcessDied(process, death, told, jobs_.NodesToldOf(process)));
  return undrained;
}

absl::Status Raylet::OnPeerDrained(ProcessId peer, const Frame& frame) {
  SHEAF_ASSIGN_OR_RETURN(const auto message, ParseFrame<proto::PeerDrained>(frame));
  const ProcessId process = ProcessId::Unpack(message.process());
  ended_.OnPeerDrained(peer, process);
  leases_.OnPeerDrained(peer, process);
  return absl::OkStatus();
}

// `process` of another node is dead.
void Raylet::OnRemoteDeath(ProcessId process, const proto::Death& death) {
  deaths_.Record(process, death);
  leases_.OnProcessGone(process);
  groups_.OnProcessGone(process);
  jobs_.ForgetOwner(process);
  proto::ProcessDied message;
  message.set_process(process.packed());
  *message.mutable_death() = death;
  // Who spoke with it has been told, or is told by its raylet.
  for (const ProcessId holder : objects_.references().HoldersOf(process)) {
    if (deaths_.IsAlive(holder))
      SendMessage(deps_.transport.To(holder), FrameKind::kProcessDied, message);
  }
  contacts_.OnRemoteDeath(process);
  ended_.OnPeersGone([process](ProcessId peer) { return peer == process; });
  objects_.OnRemoteOwnerGone(process);
  deps_.transport.Forget(process);
  if (const JobNumber job = jobs_.OfDriver(process); job != 0) jobs_.End(job, death);
}

void Raylet::OnNodeDead(NodeNumber node, const std::string& reason) {
  groups_.OnNodeDead(node);
  cluster_.OnNodeDead(node);
  queries_.Forget(RayletOf(node));
  leases_.OnNodeDead(node);
  deps_.links.Forget(node);
  proto::Death death;
  death.set_cause(proto::Death::NODE_DIED);
  death.set_message(reason);
  contacts_.OnNodeDead(node, death);
  proto::ProcessDied died;
  *died.mutable_death() = death;
  died.set_started(UINT64_MAX);  // Nobody can say what they began: all may have been.
  for (const ProcessId owner : objects_.references().OwnersOn(node)) {
    died.set_process(owner.packed());
    for (const ProcessId holder : objects_.references().HoldersOf(owner)) {
      if (deaths_.IsAlive(holder))
        SendMessage(deps_.transport.To(holder), FrameKind::kProcessDied, died);
    }
    objects_.OnRemoteOwnerGone(owner);
  }
  objects_.OnNodeDead(node);
  ended_.OnPeersGone([node](ProcessId peer) { return peer.node == node; });
  jobs_.OnNodeDead(node, death);
}

}  // namespace sheaf
