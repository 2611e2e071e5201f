// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "raylet/cluster/contacts.h"

#include "absl/strings/str_cat.h"
#include "metrics/counter.h"
#include "object_store/messages.h"

namespace sheaf {
namespace {

using metrics::Counter;
using metrics::CounterId;

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

bool Contacts::ForwardOut(ProcessId from, const Frame& frame) {
  const auto* mapped = FrameHead<RelayHead>(frame.body);
  if (mapped == nullptr) return false;
  const RelayHead head = *mapped;  // Once: the sender can still write there.
  const ProcessId to = ProcessId::Unpack(head.peer);
  const auto kind = static_cast<FrameKind>(head.kind);
  if (head.lane > static_cast<uint16_t>(Lane::kControl) || !MayCross(kind, to.is_raylet()) ||
      !open_.contains({from, to})) {
    return false;
  }
  Counter(deps_.metrics, CounterId::kRelayedOut).Add();
  deps_.links.Send(from, to, static_cast<Lane>(head.lane), kind,
                   frame.body.substr(sizeof(RelayHead)));
  return true;
}

absl::Status Contacts::OnRelay(ProcessId from, const Frame& frame) {
  const auto* mapped = FrameHead<RelayHead>(frame.body);
  if (mapped == nullptr) return absl::InvalidArgumentError("a relayed frame without its head");
  const RelayHead head = *mapped;
  const ProcessId to = ProcessId::Unpack(head.peer);
  if (head.lane > static_cast<uint16_t>(Lane::kControl) || to.node == kGcs.node ||
      to.node == deps_.node || !MayCross(static_cast<FrameKind>(head.kind), to.is_raylet())) {
    return absl::InvalidArgumentError(absl::StrCat("a frame of kind ", head.kind, " for ",
                                                   to.ToString(), " may not leave this node"));
  }
  if (deps_.deaths.IsNodeDead(to.node)) {
    if (!to.is_raylet()) Refuse(from, to);
    return absl::OkStatus();
  }
  if (deps_.view.Find(to.node) == nullptr) {
    unknown_nodes_.try_emplace(to.node, deps_.clock.Now());  // The word of it may be on its way.
  }
  contacts_[from].insert(to);
  open_.emplace(from, to);
  return ForwardOut(from, frame)
             ? absl::OkStatus()
             : absl::InvalidArgumentError("the head of a relayed frame changed while it was read");
}

bool Contacts::ForwardIn(ProcessId from, ProcessId to, Lane lane, const Frame& frame) {
  if (!open_.contains({to, from})) return false;
  Deliver(from, to, lane, frame);
  return true;
}

void Contacts::DeliverLocal(ProcessId from, ProcessId to, Lane lane, const Frame& frame) {
  if (!deps_.deaths.IsAlive(to)) {
    // If the sender is dead as well, neither raylet tells the other.
    if (frame.kind != FrameKind::kConnectRefused) Refuse(from, to);
    return;
  }
  contacts_[to].insert(from);
  open_.emplace(to, from);
  Deliver(from, to, lane, frame);
}

// Both are alive.
void Contacts::Deliver(ProcessId from, ProcessId to, Lane lane, const Frame& frame) {
  Counter(deps_.metrics, CounterId::kRelayedIn).Add();
  RelayHead head;
  head.peer = from.packed();
  head.kind = static_cast<uint16_t>(frame.kind);
  head.lane = static_cast<uint16_t>(lane);
  deps_.transport.To(to).Send(lane, FrameKind::kRelayed, AsBytes(head), frame.body);
}

// Tells `process` that `other`, to which it wrote, is dead.
void Contacts::Refuse(ProcessId process, ProcessId other) {
  proto::ConnectRefused refusal;
  refusal.set_peer(other.packed());
  *refusal.mutable_death() = deps_.deaths.DeathOf(other);
  SendMessage(deps_.transport.To(process), FrameKind::kConnectRefused, refusal);
}

absl::btree_set<ProcessId> Contacts::OnProcessDied(
    ProcessId process, const proto::Death& death,
    absl::FunctionRef<proto::ProcessDied(ProcessId)> told, const std::vector<NodeNumber>& nodes) {
  open_.clear();
  absl::btree_set<ProcessId> remote;
  if (const auto it = contacts_.find(process); it != contacts_.end()) {
    remote = std::move(it->second);
    contacts_.erase(it);
  }
  absl::btree_set<NodeNumber> hear(nodes.begin(), nodes.end());
  for (const ProcessId other : remote) {
    hear.insert(other.node);
    if (!other.is_raylet()) {
      SendMessage(deps_.transport.To(other), FrameKind::kProcessDied, told(other));
    }
  }
  proto::OwnerLeft left;
  left.set_process(process.packed());
  *left.mutable_death() = death;
  for (const NodeNumber node : hear) {
    SendMessage(deps_.transport.To(RayletOf(node)), FrameKind::kOwnerLeft, left);
  }
  absl::erase_if(remote, [](ProcessId other) { return other.is_raylet(); });
  return remote;
}

void Contacts::OnRemoteDeath(ProcessId process) {
  // What it made for those who spoke with it may live on there until they end: a placement group.
  for (auto& [local, remote] : contacts_) {
    if (remote.erase(process) != 0) remote.insert(RayletOf(process.node));
  }
  open_.clear();
}

void Contacts::OnNodeDead(NodeNumber node, const proto::Death& death) {
  proto::NodeGone gone;
  gone.set_node(node);
  gone.set_words(death.message());
  proto::ProcessDied died;
  *died.mutable_death() = death;
  died.set_started(UINT64_MAX);  // Nobody can say what they began: all may have been.
  for (const auto& [process, entry] : deps_.processes) {
    if (entry.info.role == ProcessRole::kTool) continue;
    Channel& channel = deps_.transport.To(process);
    if (const auto it = contacts_.find(process); it != contacts_.end()) {
      const absl::btree_set<ProcessId> remote = it->second;
      for (const ProcessId other : remote) {
        if (other.node != node) continue;
        it->second.erase(other);
        if (other.is_raylet()) continue;
        died.set_process(other.packed());
        SendMessage(channel, FrameKind::kProcessDied, died);
      }
    }
    SendMessage(channel, FrameKind::kNodeGone, gone);
  }
  open_.clear();
}

std::vector<NodeNumber> Contacts::TakeUnknownNodes() {
  const Nanos now = deps_.clock.Now();
  std::vector<NodeNumber> none;
  absl::erase_if(unknown_nodes_, [&](const auto& entry) {
    const auto& [node, since] = entry;
    const bool known = deps_.view.Find(node) != nullptr;
    const bool over = now - since >= kUnknownNodeLimit;
    if (!known && over) none.push_back(node);
    return known || over;
  });
  return none;
}

}  // namespace sheaf
