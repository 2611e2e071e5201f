// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What raylets and processes of other nodes say.
#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/parse_frame.h"
#include "base/status_macros.h"
#include "metrics/counter.h"
#include "object_store/messages.h"
#include "raylet/raylet.h"

namespace sheaf {
namespace {

using metrics::Counter;
using metrics::CounterId;

}  // namespace

void Raylet::OnRemoteFrame(ProcessId from, ProcessId to, Lane lane, const Frame& frame) {
  if (to.node != options_.node || from.node == options_.node) return;
  if (contacts_.ForwardIn(from, to, lane, frame)) return;
  if (deaths_.IsNodeDead(from.node)) return;  // The words of a node that was declared dead.
  cluster_.OnHeard(from.node);
  if (to != RayletOf(options_.node)) {
    contacts_.DeliverLocal(from, to, lane, frame);
    return;
  }
  if (absl::Status status = DispatchRemote(from, frame); !status.ok()) {
    Counter(deps_.metrics, CounterId::kBadFrames).Add();
    Log(LogLevel::kWarning, from.ToString(), " sent a frame of kind ", static_cast<int>(frame.kind),
        " that cannot be read: ", std::string(status.message()));
  }
  Settle();
}

absl::Status Raylet::DispatchRemote(ProcessId from, const Frame& frame) {
  if (IsStoreFrame(frame.kind)) return objects_.OnRemoteStoreFrame(from, frame);
  switch (frame.kind) {  // What processes say, and raylets.
    case FrameKind::kLeaseReturn:
      return leases_.OnReturn(from, frame);
    case FrameKind::kKillWorker:
      return leases_.OnKillWorker(from, frame);
    case FrameKind::kNodeRefsAck:
      return objects_.OnReferenceFrame(from, frame);
    case FrameKind::kPeerDrained:
      return OnPeerDrained(from, frame);
    default:
      break;
  }
  if (!from.is_raylet()) return absl::OkStatus();
  switch (frame.kind) {
    case FrameKind::kRemoteJob:
      return jobs_.OnRemoteJob(frame);
    case FrameKind::kSpillbackDemand:
      return leases_.OnSpillbackDemand(from, frame);
    case FrameKind::kGroupRequest:
      return groups_.OnRequest(from, frame);
    case FrameKind::kGroupState:
      return groups_.OnState(frame);
    case FrameKind::kPrepareBundles:
    case FrameKind::kBundlesPrepared:
    case FrameKind::kCommitBundles:
    case FrameKind::kReturnBundles:
      return groups_.OnBundles(from, frame);
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
    case FrameKind::kOrphanRefsAck:
      return objects_.OnReferenceFrame(from, frame);
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

}  // namespace sheaf
