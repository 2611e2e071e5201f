// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "worker/core/frame_dispatch.h"

#include <utility>

#include "base/parse_frame.h"
#include "object_store/messages.h"
#include "worker/core/process_core.h"
#include "worker/wire.h"

namespace sheaf {
namespace {

// Hands what `frame` says to `take`, if it parses.
template <class Message, class Take>
void Read(const Frame& frame, Take take) {
  if (auto message = ParseFrame<Message>(frame); message.ok()) take(*message);
}

}  // namespace

void FrameDispatch::OnFrame(ProcessId from, const Frame& frame) {
  if (core_.owner.OnFrame(from, frame)) return;
  switch (frame.kind) {
    case FrameKind::kTemplate:
      core_.executor.OnTemplate(from, frame.body);
      return;
    case FrameKind::kPushTask:
      core_.executor.OnPush(from, frame.body);
      if (core_.executor.is_actor() && core_.executor.TakeGroupsChanged()) host_.OnGroupsChanged();
      return;
    case FrameKind::kTakeBack:
      if (const auto* take_back = FrameHead<TakeBack>(frame.body))
        core_.executor.OnTakeBack(from, *take_back);
      return;
    case FrameKind::kCancelTask:
      OnCancel(from, frame);
      return;
    case FrameKind::kStreamAck:
      if (const auto* ack = FrameHead<StreamAck>(frame.body))
        core_.executor.OnStreamAck(from, *ack);
      return;
    default:
      break;
  }
  if (from == RayletOf(core_.self.node)) {
    OnRayletFrame(frame);
  } else if (from.is_raylet()) {
    OnRemoteRayletFrame(frame);
  }
}

void FrameDispatch::OnCancel(ProcessId from, const Frame& frame) {
  const auto* cancel = FrameHead<CancelTask>(frame.body);
  if (cancel == nullptr) return;
  if (cancel->task.maker() == core_.self && from != core_.self) {  // A borrower asks its owner.
    core_.owner.CancelTask(cancel->task, cancel->force != 0, cancel->recursive != 0);
    return;
  }
  // By force its process is killed: what the call would say of an interrupt is not the answer.
  if (core_.executor.OnCancel(from, cancel->task, cancel->force == 0))
    host_.OnRunningCancelled(cancel->task);
  if (cancel->recursive != 0) core_.owner.CancelChildren(cancel->task, cancel->force != 0);
}

// What the raylet of another node may say: that somebody there is dead, that an object is there or
// not, and what this driver's workers there print.
void FrameDispatch::OnRemoteRayletFrame(const Frame& frame) {
  if (frame.kind == kStoreLocated) {
    core_.store->OnFrame(frame.kind, frame.body);
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
      core_.executor.argument_holds().OnAdmitted(held->ticket);
    return;
  }
  if (IsStoreFrame(frame.kind)) {
    core_.store->OnFrame(frame.kind, frame.body);
    return;
  }
  switch (frame.kind) {
    case FrameKind::kNewRing:
      return Read<proto::NewRing>(frame, [&](auto& ring) { host_.OnNewRing(ring); });
    case FrameKind::kConnectRefused:
      return OnConnectRefused(frame);
    case FrameKind::kRelayed: {
      ProcessId sender;
      Frame inside;
      if (core_.transport.Take(frame.body, &sender, &inside)) OnFrame(sender, inside);
      return;
    }
    case FrameKind::kNodeGone:
      return Read<proto::NodeGone>(frame, [&](auto& gone) { core_.owner.OnNodeGone(gone.node()); });
    case FrameKind::kNodeSilent:
      return Read<proto::NodeSilent>(
          frame, [&](auto& silent) { core_.owner.OnNodeSilent(silent.node(), silent.words()); });
    case FrameKind::kProcessDied:
      return OnProcessDied(frame);
    case FrameKind::kLeaseBegin:
      return Read<proto::LeaseBegin>(frame, [&](auto& begin) { OnLeaseBegin(begin); });
    case FrameKind::kLeaseEnd:
      return Read<proto::LeaseEnd>(frame, [&](auto& end) { core_.executor.OnLeaseEnd(end); });
    case FrameKind::kLeaseRevoke:
      return Read<proto::LeaseRevoke>(
          frame, [&](auto& revoke) { core_.executor.OnLeaseRevoke(revoke.lease()); });
    case FrameKind::kActorLease:
      return Read<proto::ActorLease>(frame,
                                     [&](auto& lease) { core_.executor.OnActorLease(lease); });
    case FrameKind::kJobStarted:
      return Read<proto::JobStarted>(frame, [&](auto& started) {
        job_ = {static_cast<JobNumber>(started.job()), started.name_space(), started.error(), true};
        TellEvents();
      });
    case FrameKind::kGroupState:
      return Read<proto::GroupState>(frame,
                                     [&](auto& state) { core_.groups.OnState(std::move(state)); });
    case FrameKind::kGcsReply:
      return Read<proto::GcsReply>(frame,
                                   [&](auto& reply) { core_.gcs.OnReply(std::move(reply)); });
    case FrameKind::kGcsEvent:
      return Read<proto::GcsEvent>(frame, [&](auto& event) { core_.gcs.OnEvent(event); });
    default:
      host_.OnHostFrame(frame);
  }
}

void FrameDispatch::OnLeaseBegin(const proto::LeaseBegin& begin) {
  job_.number = begin.job();
  TellEvents();
  // A worker is of one job.
  if (job_.name_space.empty()) job_.name_space = begin.name_space();
  core_.executor.OnLeaseBegin(begin);
}

void FrameDispatch::TellEvents() {
  if (core_.events != nullptr) core_.events->SetJob(job_.number);
}

void FrameDispatch::OnConnectRefused(const Frame& frame) {
  const auto refused = ParseFrame<proto::ConnectRefused>(frame);
  if (!refused.ok()) return;
  const ProcessId peer = ProcessId::Unpack(refused->peer());
  core_.owner.OnProcessDied(peer, refused->death(), 0);
  core_.executor.OnProcessDied(peer);
}

void FrameDispatch::OnProcessDied(const Frame& frame) {
  const auto died = ParseFrame<proto::ProcessDied>(frame);
  if (!died.ok()) return;
  const ProcessId process = ProcessId::Unpack(died->process());
  host_.DrainRings(process);  // What it said before it died counts.
  core_.owner.OnProcessDied(process, died->death(), died->started());
  core_.executor.OnProcessDied(process);
  // New references go to the raylet before the word that the rings are drained.
  core_.owner.references.Flush();
  proto::PeerDrained drained;
  drained.set_process(died->process());
  SendMessage(core_.transport.To(RayletOf(process.node)), FrameKind::kPeerDrained, drained);
}

}  // namespace sheaf
