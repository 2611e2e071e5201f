// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "tests/sim/trace.h"

#include "gcs/gcs_operations.h"
#include "object_store/messages.h"
#include "proto/gcs.pb.h"
#include "proto/raylet.pb.h"
#include "worker/owner/back_pressure.h"
#include "worker/wire.h"

namespace sheaf::sim {
namespace {

template <class Message>
std::string ActorWords(const Message& message) {
  const absl::StatusOr<ActorId> id = ActorId::FromBinary(message.actor_id());
  return " actor " + (id.ok() ? id->ToHex() : "?");
}

}  // namespace

std::string FrameWords(FrameKind kind, std::string_view body) {
  auto call = [](uint64_t sequence_bits, uint32_t attempt) {
    return absl::StrCat(" call ", absl::Hex(sequence_bits >> 16), " attempt ", attempt);
  };
  switch (kind) {
    case FrameKind::kPushTask:
      if (const auto* push = FrameHead<PushTaskHead>(body)) {
        return absl::StrCat(call(push->task_sequence_bits, push->attempt), " lease ", push->lease,
                            " push ", push->push);
      }
      break;
    case FrameKind::kTaskReply:
      if (const auto* reply = FrameHead<TaskReplyHead>(body)) {
        return absl::StrCat(call(reply->task_sequence_bits, reply->attempt), " status ",
                            static_cast<int>(reply->status));
      }
      break;
    case FrameKind::kTaskReturned:
      if (const auto* returned = FrameHead<TaskReturned>(body))
        return call(returned->task_sequence_bits, returned->attempt);
      break;
    case FrameKind::kCancelTask:
      if (const auto* cancel = FrameHead<CancelTask>(body))
        return absl::StrCat(" call ", absl::Hex(cancel->task.sequence()));
      break;
    case FrameKind::kProcessDied: {
      proto::ProcessDied died;
      died.ParseFromArray(body.data(), static_cast<int>(body.size()));
      return absl::StrCat(" ", ProcessId::Unpack(died.process()).ToString(), " started ",
                          died.started());
    }
    case FrameKind::kLeaseDemand: {
      proto::LeaseDemand demand;
      demand.ParseFromArray(body.data(), static_cast<int>(body.size()));
      return absl::StrCat(" key ", demand.key(), " wanted ", demand.wanted());
    }
    case FrameKind::kSpillbackDemand: {
      proto::SpillbackDemand handed;
      handed.ParseFromArray(body.data(), static_cast<int>(body.size()));
      return absl::StrCat(" of ", ProcessId::Unpack(handed.owner()).ToString(), " key ",
                          handed.demand().key(), " wanted ", handed.demand().wanted(), " hops ",
                          handed.hops());
    }
    case FrameKind::kLeaseRefused: {
      proto::LeaseRefused refused;
      refused.ParseFromArray(body.data(), static_cast<int>(body.size()));
      return absl::StrCat(" key ", refused.key(), " error ", refused.error());
    }
    case FrameKind::kLeaseGrant: {
      proto::LeaseGrant grant;
      grant.ParseFromArray(body.data(), static_cast<int>(body.size()));
      return absl::StrCat(" lease ", grant.lease(), " at ",
                          ProcessId::Unpack(grant.worker()).ToString(), " key ", grant.key());
    }
    case FrameKind::kLeaseReturn: {
      proto::LeaseReturn message;
      message.ParseFromArray(body.data(), static_cast<int>(body.size()));
      return absl::StrCat(" lease ", message.lease());
    }
    case FrameKind::kLeaseBegin: {
      proto::LeaseBegin begin;
      begin.ParseFromArray(body.data(), static_cast<int>(body.size()));
      return absl::StrCat(" lease ", begin.lease(),
                          begin.spec().actor() ? ActorWords(begin.spec()) : "");
    }
    case FrameKind::kObjectQuery:
      if (body.size() >= sizeof(ObjectQueryHead) + sizeof(ObjectId)) {
        return " " + FrameHead<ObjectId>(body.substr(sizeof(ObjectQueryHead)))->ToHex();
      }
      break;
    case FrameKind::kObjectAnswer:
      if (const auto* answer = FrameHead<ObjectAnswerHead>(body)) return " " + answer->id.ToHex();
      break;
    case FrameKind::kRefsReport: {
      proto::RefsReport report;
      report.ParseFromArray(body.data(), static_cast<int>(body.size()));
      std::string words = absl::StrCat(" ", report.sequence(), " holds");
      for (size_t i = 0; i + 16 <= report.held_ids().size(); i += 16)
        absl::StrAppend(&words, " ", FrameHead<ObjectId>(report.held_ids().substr(i, 16))->ToHex());
      absl::StrAppend(&words, " drops");
      for (size_t i = 0; i + 16 <= report.dropped_ids().size(); i += 16)
        absl::StrAppend(&words, " ",
                        FrameHead<ObjectId>(report.dropped_ids().substr(i, 16))->ToHex());
      return words;
    }
    case FrameKind::kNodeRefs: {
      proto::NodeRefs refs;
      refs.ParseFromArray(body.data(), static_cast<int>(body.size()));
      std::string words = absl::StrCat(" version ", refs.version(), " holds");
      for (size_t i = 0; i + 16 <= refs.held_ids().size(); i += 16)
        absl::StrAppend(&words, " ", FrameHead<ObjectId>(refs.held_ids().substr(i, 16))->ToHex());
      absl::StrAppend(&words, " drops");
      for (size_t i = 0; i + 16 <= refs.dropped_ids().size(); i += 16)
        absl::StrAppend(&words, " ",
                        FrameHead<ObjectId>(refs.dropped_ids().substr(i, 16))->ToHex());
      return words;
    }
    case FrameKind::kGcsRequest: {
      proto::GcsRequest request;
      request.ParseFromArray(body.data(), static_cast<int>(body.size()));
      const char* name = OperationOf(request.body_case()).name;
      std::string words =
          absl::StrCat(" of ", ProcessId::Unpack(request.client()).ToString(), " number ",
                       request.sequence(), " ", name == nullptr ? "of nothing" : name);
      if (request.has_register_actor()) return words + ActorWords(request.register_actor());
      if (request.has_end_actor()) return words + ActorWords(request.end_actor());
      if (request.has_actor_state_report()) {
        const proto::ActorStateReport& report = request.actor_state_report();
        absl::StrAppend(&words, ActorWords(report), " incarnation ", report.incarnation(),
                        report.has_died()      ? " died"
                        : report.has_started() ? " started"
                                               : " pending");
      }
      return words;
    }
    case FrameKind::kGcsEvent: {
      proto::GcsEvent event;
      event.ParseFromArray(body.data(), static_cast<int>(body.size()));
      if (event.has_start_actor())
        return absl::StrCat(" start", ActorWords(event.start_actor()), " incarnation ",
                            event.start_actor().incarnation());
      if (event.has_kill_actor())
        return absl::StrCat(" kill", ActorWords(event.kill_actor()), " incarnation ",
                            event.kill_actor().incarnation(), ": ", event.kill_actor().reason());
      break;
    }
    case FrameKind::kGcsReply: {
      proto::GcsReply reply;
      reply.ParseFromArray(body.data(), static_cast<int>(body.size()));
      std::string words = absl::StrCat(" of ", ProcessId::Unpack(reply.client()).ToString(),
                                       " number ", reply.sequence(), " error ", reply.error());
      if (reply.has_actor())
        absl::StrAppend(&words, ActorWords(reply.actor()), " ",
                        proto::ActorInfo::State_Name(reply.actor().state()), " incarnation ",
                        reply.actor().incarnation(), ": ", reply.actor().words());
      return words;
    }
    default:
      break;
  }
  return "";
}

const char* FrameName(FrameKind kind) {
  if (kind == kStoreFree) return "StoreFree";
  if (kind == kStoreSealed) return "StoreSealed";
  if (kind == kStoreLookup) return "StoreLookup";
  if (kind == kStoreFetch) return "StoreFetch";
  if (kind == kStoreHold) return "StoreHold";
  if (kind == kStoreHeld) return "StoreHeld";
  if (kind == kStoreCopied) return "StoreCopied";
  if (kind == kTaken) return "Taken";
  switch (kind) {
    case FrameKind::kTemplate:
      return "Template";
    case FrameKind::kPushTask:
      return "PushTask";
    case FrameKind::kTaskReply:
      return "TaskReply";
    case FrameKind::kStreamItem:
      return "StreamItem";
    case FrameKind::kStreamAck:
      return "StreamAck";
    case FrameKind::kCancelTask:
      return "CancelTask";
    case FrameKind::kTakeBack:
      return "TakeBack";
    case FrameKind::kTaskReturned:
      return "TaskReturned";
    case FrameKind::kTransitDone:
      return "TransitDone";
    case FrameKind::kObjectQuery:
      return "ObjectQuery";
    case FrameKind::kObjectAnswer:
      return "ObjectAnswer";
    case FrameKind::kActorQuery:
      return "ActorQuery";
    case FrameKind::kActorAnswer:
      return "ActorAnswer";
    case FrameKind::kActorControl:
      return "ActorControl";
    case FrameKind::kJobStart:
      return "JobStart";
    case FrameKind::kLeaseDemand:
      return "LeaseDemand";
    case FrameKind::kLeaseReturn:
      return "LeaseReturn";
    case FrameKind::kBlocked:
      return "Blocked";
    case FrameKind::kConnectRequest:
      return "ConnectRequest";
    case FrameKind::kPeerDrained:
      return "PeerDrained";
    case FrameKind::kRefsReport:
      return "RefsReport";
    case FrameKind::kNodeRefsAck:
      return "NodeRefsAck";
    case FrameKind::kKillWorker:
      return "KillWorker";
    case FrameKind::kGroupRequest:
      return "GroupRequest";
    case FrameKind::kActorReport:
      return "ActorReport";
    case FrameKind::kStateQuery:
      return "StateQuery";
    case FrameKind::kStateAnswer:
      return "StateAnswer";
    case FrameKind::kWorkerReady:
      return "WorkerReady";
    case FrameKind::kAdoptedQuery:
      return "AdoptedQuery";
    case FrameKind::kGoodbye:
      return "Goodbye";
    case FrameKind::kLeaseGrant:
      return "LeaseGrant";
    case FrameKind::kLeaseRefused:
      return "LeaseRefused";
    case FrameKind::kLeaseRevoke:
      return "LeaseRevoke";
    case FrameKind::kLeaseBegin:
      return "LeaseBegin";
    case FrameKind::kLeaseEnd:
      return "LeaseEnd";
    case FrameKind::kNewRing:
      return "NewRing";
    case FrameKind::kConnectRefused:
      return "ConnectRefused";
    case FrameKind::kProcessDied:
      return "ProcessDied";
    case FrameKind::kRefsReported:
      return "RefsReported";
    case FrameKind::kNodeRefs:
      return "NodeRefs";
    case FrameKind::kGroupState:
      return "GroupState";
    case FrameKind::kShutdown:
      return "Shutdown";
    case FrameKind::kAdoptedAnswer:
      return "AdoptedAnswer";
    case FrameKind::kJobStarted:
      return "JobStarted";
    case FrameKind::kRelay:
      return "Relay";
    case FrameKind::kRelayed:
      return "Relayed";
    case FrameKind::kNodeGone:
      return "NodeGone";
    case FrameKind::kRemoteJob:
      return "RemoteJob";
    case FrameKind::kSpillbackDemand:
      return "SpillbackDemand";
    case FrameKind::kPrepareBundles:
      return "PrepareBundles";
    case FrameKind::kBundlesPrepared:
      return "BundlesPrepared";
    case FrameKind::kCommitBundles:
      return "CommitBundles";
    case FrameKind::kReturnBundles:
      return "ReturnBundles";
    case FrameKind::kOwnerLeft:
      return "OwnerLeft";
    case FrameKind::kOrphanRefs:
      return "OrphanRefs";
    case FrameKind::kOrphanRefsAck:
      return "OrphanRefsAck";
    case FrameKind::kGcsRequest:
      return "GcsRequest";
    case FrameKind::kGcsReply:
      return "GcsReply";
    case FrameKind::kGcsEvent:
      return "GcsEvent";
    default:
      return IsStoreFrame(kind) ? "Store" : "other";
  }
}

}  // namespace sheaf::sim
