// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Frames between processes of this node and of others, and what raylets say to each other.
//
// A process that has spoken with one of another node, in either direction, is in contact with it:
// when it dies, the other is told, behind all that it had sent. Raylets are contacts as well, for
// they ask on behalf of their processes.
#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/parse_frame.h"
#include "base/status_macros.h"
#include "object_store/messages.h"
#include "raylet/raylet.h"

namespace sheaf {
namespace {

using metrics::Counter;
using metrics::CounterId;

// A node that nobody knows after so long is none.
constexpr Nanos kUnknownNodeLimit = 10 * kSecond;

// What a process may send to one of another node.
bool MayCross(FrameKind kind, bool to_raylet) {
  if (!to_raylet) return kind >= FrameKind::kTemplate && kind < FrameKind::kJobStart;
  switch (kind) {
    case FrameKind::kLeaseReturn:
    case FrameKind::kKillWorker:
    case FrameKind::kPeerDrained:
    case FrameKind::kNodeRefsAck:
      return true;
    default:
      return kind == kStoreFree || kind == kStoreFetch;
  }
}

}  // namespace

// Between an open contact, which most frames are; false: OnRelay has to look.
bool Raylet::PassOn(ProcessId from, const Frame& frame) {
  const auto* mapped = FrameHead<RelayHead>(frame.body);
  if (mapped == nullptr) return false;
  const RelayHead head = *mapped;  // Once: the sender can still write there.
  const ProcessId to = ProcessId::Unpack(head.peer);
  const auto kind = static_cast<FrameKind>(head.kind);
  if (head.lane > static_cast<uint16_t>(Lane::kControl) || !MayCross(kind, to.is_raylet()) ||
      !open_contacts_.contains({from, to})) {
    return false;
  }
  Counter(world_.metrics, CounterId::kRelayedOut).Add();
  world_.links.Send(from, to, static_cast<Lane>(head.lane), kind,
                    frame.body.substr(sizeof(RelayHead)));
  return true;
}

absl::Status Raylet::OnRelay(ProcessId from, const Frame& frame) {
  const auto* mapped = FrameHead<RelayHead>(frame.body);
  if (mapped == nullptr) return absl::InvalidArgumentError("a relayed frame without its head");
  const RelayHead head = *mapped;
  const ProcessId to = ProcessId::Unpack(head.peer);
  if (head.lane > static_cast<uint16_t>(Lane::kControl) || to.node == kGcs.node ||
      to.node == options_.node || !MayCross(static_cast<FrameKind>(head.kind), to.is_raylet())) {
    return absl::InvalidArgumentError(absl::StrCat("a frame of kind ", head.kind, " for ",
                                                   to.ToString(), " may not leave this node"));
  }
  if (deaths_.IsNodeDead(to.node)) {
    if (!to.is_raylet()) RefuseContact(from, to);
    return absl::OkStatus();
  }
  if (view_.Find(to.node) == nullptr) {
    unknown_nodes_.try_emplace(to.node, Now());  // The word of it may be on its way.
  }
  contacts_[from].insert(to);
  open_contacts_.emplace(from, to);
  return PassOn(from, frame)
             ? absl::OkStatus()
             : absl::InvalidArgumentError("the head of a relayed frame changed while it was read");
}

void Raylet::OnRemoteFrame(ProcessId from, ProcessId to, Lane lane, const Frame& frame) {
  if (to.node != options_.node || from.node == options_.node) return;
  if (open_contacts_.contains({to, from})) return Relayed(from, to, lane, frame);
  if (deaths_.IsNodeDead(from.node)) return;  // The words of a node that was declared dead.
  NoteNode(from.node);
  if (to != RayletOf(options_.node)) {
    Deliver(from, to, lane, frame);
    return;
  }
  if (absl::Status status = DispatchRemote(from, frame); !status.ok()) {
    Counter(world_.metrics, CounterId::kBadFrames).Add();
    Log(LogLevel::kWarning, from.ToString(), " sent a frame of kind ", static_cast<int>(frame.kind),
        " that cannot be read: ", std::string(status.message()));
  }
  Settle();
}

// Who speaks is alive, also before the GCS has described it; work waits for that.
void Raylet::NoteNode(NodeNumber node) {
  if (view_.Find(node) == nullptr && !deaths_.IsNodeDead(node)) view_.nodes[node].draining = true;
}

// To a process of this node.
void Raylet::Deliver(ProcessId from, ProcessId to, Lane lane, const Frame& frame) {
  if (!deaths_.IsAlive(to)) {
    if (frame.kind == FrameKind::kConnectRefused) return;  // Of two dead neither is told.
    proto::ConnectRefused refusal;
    refusal.set_peer(to.packed());
    *refusal.mutable_death() = deaths_.DeathOf(to);
    SendMessage(To(from), FrameKind::kConnectRefused, refusal);
    return;
  }
  contacts_[to].insert(from);
  open_contacts_.emplace(to, from);
  Relayed(from, to, lane, frame);
}

// Both live.
void Raylet::Relayed(ProcessId from, ProcessId to, Lane lane, const Frame& frame) {
  Counter(world_.metrics, CounterId::kRelayedIn).Add();
  RelayHead head;
  head.peer = from.packed();
  head.kind = static_cast<uint16_t>(frame.kind);
  head.lane = static_cast<uint16_t>(lane);
  To(to).Send(lane, FrameKind::kRelayed, AsBytes(head), frame.body);
}

absl::Status Raylet::DispatchRemote(ProcessId from, const Frame& frame) {
  if (IsStoreFrame(frame.kind)) return OnRemoteStoreFrame(from, frame);
  switch (frame.kind) {  // What processes say, and raylets.
    case FrameKind::kLeaseReturn:
      return OnLeaseReturn(from, frame);
    case FrameKind::kKillWorker:
      return OnKillWorker(from, frame);
    case FrameKind::kNodeRefsAck:
      return OnNodeRefsAck(from, frame);
    case FrameKind::kPeerDrained: {
      SHEAF_ASSIGN_OR_RETURN(const auto message, ParseFrame<proto::PeerDrained>(frame));
      OnPeerDrained(from, ProcessId::Unpack(message.process()));
      return absl::OkStatus();
    }
    default:
      break;
  }
  if (!from.is_raylet()) return absl::OkStatus();
  switch (frame.kind) {
    case FrameKind::kRemoteJob:
      return jobs_.OnRemoteJob(frame);
    case FrameKind::kHandedDemand:
      return OnHandedDemand(from, frame);
    case FrameKind::kGroupRequest:
      return OnGroupRequest(from, frame);
    case FrameKind::kGroupState:
      return OnRemoteGroupState(frame);
    case FrameKind::kPrepareBundles:
    case FrameKind::kBundlesPrepared:
    case FrameKind::kCommitBundles:
    case FrameKind::kReturnBundles:
      return OnBundles(from, frame);
    case FrameKind::kStateQuery:
      return queries_.OnQuery(from, frame);
    case FrameKind::kStateAnswer:
      return queries_.OnAnswer(from, frame);
    case FrameKind::kOwnerLeft: {
      SHEAF_ASSIGN_OR_RETURN(const auto message, ParseFrame<proto::OwnerLeft>(frame));
      const ProcessId process = ProcessId::Unpack(message.process());
      if (process.node == from.node) OnRemoteDeath(process, message.death());
      return absl::OkStatus();
    }
    case FrameKind::kOrphanRefs:
      return OnOrphanRefs(from, frame);
    case FrameKind::kOrphanRefsAck: {
      SHEAF_ASSIGN_OR_RETURN(const auto ack, ParseFrame<proto::OrphanRefsAck>(frame));
      return orphans_.OnAck(from.node, ack);
    }
    case FrameKind::kConnectRefused: {  // This raylet wrote to a process that is no more.
      SHEAF_ASSIGN_OR_RETURN(const auto message, ParseFrame<proto::ConnectRefused>(frame));
      const ProcessId process = ProcessId::Unpack(message.peer());
      if (process.node == from.node) OnRemoteDeath(process, message.death());
      return absl::OkStatus();
    }
    default:
      return absl::OkStatus();  // Of a newer raylet.
  }
}

void Raylet::RefuseContact(ProcessId process, ProcessId remote) {
  proto::ConnectRefused refusal;
  refusal.set_peer(remote.packed());
  *refusal.mutable_death() = deaths_.DeathOf(remote);
  SendMessage(To(process), FrameKind::kConnectRefused, refusal);
}

// `process` of this node is dead: all with whom it spoke learn of it behind what it sent. Those
// that may have references from it say when they have seen everything.
void Raylet::TellContacts(ProcessId process, const proto::Death& death,
                          absl::FunctionRef<proto::ProcessDied(ProcessId)> told, Remains* remains) {
  open_contacts_.clear();
  absl::btree_set<ProcessId> remote;
  if (const auto it = contacts_.find(process); it != contacts_.end()) {
    remote = std::move(it->second);
    contacts_.erase(it);
  }
  absl::btree_set<NodeNumber> nodes;
  for (const ProcessId other : remote) {
    nodes.insert(other.node);
    if (other.is_raylet()) continue;
    SendMessage(To(other), FrameKind::kProcessDied, told(other));
    remains->undrained.insert(other);
  }
  // Nodes that know its job hear of a driver's end. Of a worker's only those that it spoke with: a
  // demand of it that waits elsewhere is taken back as it was handed on, and a lease that is
  // granted after its death is refused when it comes (Deliver).
  for (const NodeNumber node : jobs_.NodesToldOf(process)) nodes.insert(node);
  proto::OwnerLeft left;
  left.set_process(process.packed());
  *left.mutable_death() = death;
  for (const NodeNumber node : nodes) SendMessage(To(RayletOf(node)), FrameKind::kOwnerLeft, left);
}

// `process` of another node is dead.
void Raylet::OnRemoteDeath(ProcessId process, const proto::Death& death) {
  deaths_.Record(process, death);
  revocations_.ForgetProcesses([process](ProcessId gone) { return gone == process; });
  queue_.OnOwnerGone(process, Now());
  groups_.OnOwnerGone(process, Now());
  jobs_.ForgetOwner(process);
  proto::ProcessDied message;
  message.set_process(process.packed());
  *message.mutable_death() = death;
  // Who spoke with it has been told, or is told by its raylet.
  for (const ProcessId holder : references_.HoldersOf(process)) {
    if (deaths_.IsAlive(holder)) SendMessage(To(holder), FrameKind::kProcessDied, message);
  }
  for (auto& [local, remote] : contacts_) remote.erase(process);
  open_contacts_.clear();
  ForgetUndrained([process](ProcessId peer) { return peer == process; });
  LearnObjectsOf(process);
  references_.OwnerDied(process);
  AdoptObjectsOf(process);
  world_.transport.Forget(process);
  if (const JobNumber job = jobs_.OfDriver(process); job != 0) jobs_.End(job, death);
}

void Raylet::OnRemoteNodeDead(NodeNumber node, const std::string& words) {
  silent_since_.erase(node);
  told_silent_.erase(node);  // kNodeGone says more.
  OnCoordinatorDead(node);
  queries_.Forget(RayletOf(node));
  revocations_.ForgetProcesses([node](ProcessId gone) { return gone.node == node; });
  world_.links.Forget(node);
  proto::Death death;
  death.set_cause(proto::Death::NODE_DIED);
  death.set_message(words);
  proto::NodeGone gone;
  gone.set_node(node);
  gone.set_words(words);
  proto::ProcessDied died;
  *died.mutable_death() = death;
  died.set_started(UINT64_MAX);  // Nobody can say what they began: all may have been.
  for (const auto& [process, entry] : processes_) {
    if (entry.info.role == ProcessRole::kTool) continue;
    if (const auto it = contacts_.find(process); it != contacts_.end()) {
      const absl::btree_set<ProcessId> remote = it->second;
      for (const ProcessId other : remote) {
        if (other.node != node) continue;
        it->second.erase(other);
        if (other.is_raylet()) continue;
        died.set_process(other.packed());
        SendMessage(To(process), FrameKind::kProcessDied, died);
      }
    }
    SendMessage(To(process), FrameKind::kNodeGone, gone);
  }
  open_contacts_.clear();
  for (const ProcessId owner : references_.OwnersOn(node)) {
    died.set_process(owner.packed());
    for (const ProcessId holder : references_.HoldersOf(owner)) {
      if (deaths_.IsAlive(holder)) SendMessage(To(holder), FrameKind::kProcessDied, died);
    }
    LearnObjectsOf(owner);
    references_.OwnerDied(owner);
    AdoptObjectsOf(owner);
  }
  OnObjectsOfNodeGone(node);
  orphans_.NodeGone(node);
  orphan_versions_.erase(node);
  references_.DropHolder(RayletOf(node));
  ForgetUndrained([node](ProcessId peer) { return peer.node == node; });
  jobs_.OnNodeDead(node, death);
}

absl::Status Raylet::OnHandedDemand(ProcessId from, const Frame& frame) {
  SHEAF_ASSIGN_OR_RETURN(const auto message, ParseFrame<proto::HandedDemand>(frame));
  const ProcessId owner = ProcessId::Unpack(message.owner());
  if (owner.node == kGcs.node || owner.is_raylet()) {
    return absl::InvalidArgumentError(absl::StrCat("a demand of ", owner.ToString()));
  }
  if (message.driver() == 0) {
    queue_.OnGivenBack(owner, message.demand().key(), from.node, message.hops(),
                       message.demand().wanted(), Now());
    return absl::OkStatus();
  }
  Log(LogLevel::kDebug, "node ", from.node, " hands on ", message.demand().wanted(), " of demand ",
      message.demand().key(), " of ", owner.ToString(), ", hop ", message.hops());
  if (!deaths_.IsReachable(owner)) return absl::OkStatus();
  const ProcessId driver = ProcessId::Unpack(message.driver());
  if (!jobs_.OnHandedDemand(driver, owner, message.outlives_driver())) return absl::OkStatus();
  NoteNode(owner.node);
  queue_.OnDemand(owner, message.demand(), Now(), {}, from.node, message.hops());
  return absl::OkStatus();
}

// Hands a demand, or what is left of it, to another node; or back, which names no driver.
void Raylet::HandOn(const LeaseAction& action) {
  proto::HandedDemand message;
  message.set_owner(action.demand.owner.packed());
  message.set_hops(action.hops);
  message.mutable_demand()->set_key(action.demand.key);
  message.mutable_demand()->set_wanted(action.wanted);
  if (action.kind == LeaseAction::Kind::kGiveBack) {
    SendMessage(To(RayletOf(action.node)), FrameKind::kHandedDemand, message);
    return;
  }
  const LeaseSpec* spec = queue_.FindSpec(action.demand);
  if (spec != nullptr) {
    *message.mutable_demand()->mutable_spec() = ToMessage(*spec);
    message.mutable_demand()->set_backlog(action.wanted);
  }
  const JobNumber local = JobOfOwner(action.demand.owner);
  const NodeJob* job = jobs_.Find(local);
  if (job == nullptr) return;  // Ended: the other node hears of that as well.
  message.set_driver(job->driver.packed());
  const bool outlives = jobs_.OutlivesDriver(action.demand.owner, local);
  message.set_outlives_driver(outlives);
  jobs_.TellNode(action.node, local, outlives);
  Counter(world_.metrics, CounterId::kDemandsHandedOn).Add();
  Log(LogLevel::kDebug, "handing ", action.wanted, " of demand ", action.demand.key, " of ",
      action.demand.owner.ToString(), " to node ", action.node);
  SendMessage(To(RayletOf(action.node)), FrameKind::kHandedDemand, message);
}

JobNumber Raylet::JobOfOwner(ProcessId owner) const {
  if (const auto it = processes_.find(owner); it != processes_.end()) return it->second.job;
  if (const auto it = remains_.find(owner); it != remains_.end()) return it->second.job;
  return jobs_.OfRemoteOwner(owner);
}

void Raylet::CheckUnknownNodes() {
  const Nanos now = Now();
  std::vector<NodeNumber> none;
  for (const auto& [node, since] : unknown_nodes_) {
    if (view_.Find(node) != nullptr || now - since >= kUnknownNodeLimit) none.push_back(node);
  }
  for (const NodeNumber node : none) {
    unknown_nodes_.erase(node);
    if (view_.Find(node) == nullptr) OnRemoteNodeDead(node, "no such node is in this cluster");
  }
}

}  // namespace sheaf
