// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "worker/frame_dispatch.h"

#include <utility>

#include "base/parse_frame.h"
#include "object_store/messages.h"
#include "worker/wire.h"

namespace sheaf {

void FrameDispatch::OnFrame(ProcessId from, const Frame& frame) {
  if (owner_.OnFrame(from, frame)) return;
  switch (frame.kind) {
    case FrameKind::kTemplate:
      executor_.OnTemplate(from, frame.body);
      return;
    case FrameKind::kPushTask:
      executor_.OnPush(from, frame.body);
      if (executor_.is_actor() && executor_.TakeGroupsChanged()) host_.OnGroupsChanged();
      return;
    case FrameKind::kTakeBack:
      if (const auto* take_back = FrameHead<TakeBack>(frame.body))
        executor_.OnTakeBack(from, *take_back);
      return;
    case FrameKind::kCancelTask:
      OnCancel(from, frame);
      return;
    case FrameKind::kStreamAck:
      if (const auto* ack = FrameHead<StreamAck>(frame.body)) executor_.OnStreamAck(from, *ack);
      return;
    default:
      break;
  }
  if (from == RayletOf(self_.node)) {
    OnRayletFrame(frame);
  } else if (from.is_raylet()) {
    OnRemoteRayletFrame(frame);
  }
}

void FrameDispatch::OnCancel(ProcessId from, const Frame& frame) {
  const auto* cancel = FrameHead<CancelTask>(frame.body);
  if (cancel == nullptr) return;
  if (cancel->task.maker() == self_) {  // A borrower asks its owner.
    owner_.CancelTask(cancel->task, cancel->force != 0, cancel->recursive != 0);
    return;
  }
  if (executor_.OnCancel(from, cancel->task)) host_.OnRunningCancelled(cancel->task);
  if (cancel->recursive != 0) owner_.CancelChildren(cancel->task, cancel->force != 0);
}

// What the raylet of another node may say: that somebody there is dead, that an object is there or
// not, and what this driver's workers there print.
void FrameDispatch::OnRemoteRayletFrame(const Frame& frame) {
  if (frame.kind == kStoreLocated) {
    store_.OnFrame(frame.kind, frame.body);
  } else if (frame.kind == FrameKind::kConnectRefused) {
    OnConnectRefused(frame);
  } else if (frame.kind == FrameKind::kProcessDied) {
    OnProcessDied(frame);
  } else if (frame.kind == FrameKind::kLogLines) {
    host_.OnHostFrame(frame);
  }
}

void FrameDispatch::OnRayletFrame(const Frame& frame) {
  if (frame.kind == kStoreHeld) {
    if (const auto* held = FrameHead<HoldAdmitted>(frame.body))
      executor_.argument_holds().OnAdmitted(held->ticket);
    return;
  }
  if (IsStoreFrame(frame.kind)) {
    store_.OnFrame(frame.kind, frame.body);
    return;
  }
  switch (frame.kind) {
    case FrameKind::kNewRing: {
      if (auto ring = ParseFrame<proto::NewRing>(frame); ring.ok()) host_.OnNewRing(*ring);
      return;
    }
    case FrameKind::kConnectRefused:
      OnConnectRefused(frame);
      return;
    case FrameKind::kRelayed: {
      ProcessId sender;
      Frame inside;
      if (transport_.Take(frame.body, &sender, &inside)) OnFrame(sender, inside);
      return;
    }
    case FrameKind::kNodeGone: {
      if (auto gone = ParseFrame<proto::NodeGone>(frame); gone.ok())
        owner_.OnNodeGone(gone->node());
      return;
    }
    case FrameKind::kNodeSilent: {
      if (auto silent = ParseFrame<proto::NodeSilent>(frame); silent.ok())
        owner_.OnNodeSilent(silent->node(), silent->words());
      return;
    }
    case FrameKind::kProcessDied:
      OnProcessDied(frame);
      return;
    case FrameKind::kLeaseBegin: {
      const auto begin = ParseFrame<proto::LeaseBegin>(frame);
      if (!begin.ok()) return;
      job_.number = begin->job();
      // A worker is of one job.
      if (job_.name_space.empty()) job_.name_space = begin->name_space();
      executor_.OnLeaseBegin(*begin);
      return;
    }
    case FrameKind::kLeaseEnd: {
      if (auto end = ParseFrame<proto::LeaseEnd>(frame); end.ok()) executor_.OnLeaseEnd(*end);
      return;
    }
    case FrameKind::kLeaseRevoke: {
      if (auto revoke = ParseFrame<proto::LeaseRevoke>(frame); revoke.ok())
        executor_.OnLeaseRevoke(revoke->lease());
      return;
    }
    case FrameKind::kActorLease: {
      if (auto lease = ParseFrame<proto::ActorLease>(frame); lease.ok())
        executor_.OnActorLease(*lease);
      return;
    }
    case FrameKind::kJobStarted: {
      const auto started = ParseFrame<proto::JobStarted>(frame);
      if (!started.ok()) return;
      job_ = {static_cast<JobNumber>(started->job()), started->name_space(), started->error(),
              true};
      return;
    }
    case FrameKind::kGroupState: {
      auto state = ParseFrame<proto::GroupState>(frame);
      if (!state.ok()) return;
      auto id = PlacementGroupId::FromBinary(state->id());
      if (id.ok()) groups_[*id] = std::move(*state);
      return;
    }
    case FrameKind::kGcsReply: {
      if (auto reply = ParseFrame<proto::GcsReply>(frame); reply.ok())
        gcs_.OnReply(*std::move(reply));
      return;
    }
    case FrameKind::kGcsEvent: {
      if (auto event = ParseFrame<proto::GcsEvent>(frame); event.ok()) gcs_.OnEvent(*event);
      return;
    }
    default:
      host_.OnHostFrame(frame);
  }
}

void FrameDispatch::OnConnectRefused(const Frame& frame) {
  const auto refused = ParseFrame<proto::ConnectRefused>(frame);
  if (!refused.ok()) return;
  const ProcessId peer = ProcessId::Unpack(refused->peer());
  owner_.OnProcessDied(peer, refused->death(), 0);
  executor_.OnProcessDied(peer);
}

void FrameDispatch::OnProcessDied(const Frame& frame) {
  const auto died = ParseFrame<proto::ProcessDied>(frame);
  if (!died.ok()) return;
  const ProcessId process = ProcessId::Unpack(died->process());
  host_.DrainRings(process);  // What it said before it died counts.
  owner_.OnProcessDied(process, died->death(), died->started());
  executor_.OnProcessDied(process);
  // New references go to the raylet before the word that the rings are drained.
  owner_.references.Flush();
  proto::PeerDrained drained;
  drained.set_process(died->process());
  SendMessage(transport_.To(RayletOf(process.node)), FrameKind::kPeerDrained, drained);
}

}  // namespace sheaf
