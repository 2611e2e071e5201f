// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>

#include "absl/cleanup/cleanup.h"
#include "worker/runtime_impl.h"
#include "worker/wire.h"

namespace sheaf {
namespace {

template <class Message>
bool Parse(std::string_view body, Message* message) {
  return message->ParseFromArray(body.data(), static_cast<int>(body.size()));
}

constexpr Nanos kRingWait = 5 * kSecond;  // For a descriptor that a frame announced.

}  // namespace

void RuntimeImpl::OnMalformed(ProcessId from) {
  if (from == RayletOf(self_.node)) EndRaylet("the ring from the raylet is damaged");
}

// A request that nothing can satisfy now goes on waiting; the driver's user is told at once.
void RuntimeImpl::SayNotice(std::string_view body) {
  proto::LeaseRefused refused;
  if (!options_.on_log_lines || !Parse(body, &refused) ||
      static_cast<ErrorKind>(refused.error()) != ErrorKind::kNone)
    return;
  proto::LogLines lines;
  lines.set_name("sheaf");
  lines.set_os_pid(getpid());
  lines.set_error_stream(true);
  lines.add_lines(refused.message());
  deferred_.push_back([this, lines = std::move(lines)] { options_.on_log_lines(lines); });
}

void RuntimeImpl::OnFrame(ProcessId from, const Frame& frame) {
  if (frame.kind == FrameKind::kLeaseRefused && from.is_raylet()) SayNotice(frame.body);
  if (owner_->OnFrame(from, frame)) return;
  switch (frame.kind) {
    case FrameKind::kTemplate:
      executor_->OnTemplate(from, frame.body);
      return;
    case FrameKind::kPushTask:
      executor_->OnPush(from, frame.body);
      if (executor_->is_actor()) {
        if (executor_->TakeGroupsChanged()) StartGroupThreads();
      }
      return;
    case FrameKind::kTakeBack:
      if (const auto* take_back = FrameHead<TakeBack>(frame.body))
        executor_->OnTakeBack(from, *take_back);
      return;
    case FrameKind::kCancelTask: {
      const auto* cancel = FrameHead<sheaf::CancelTask>(frame.body);
      if (cancel == nullptr) return;
      if (cancel->task.maker() == self_) {  // A borrower asks its owner.
        owner_->CancelTask(cancel->task, cancel->force != 0, cancel->recursive != 0);
        return;
      }
      if (executor_->OnCancel(from, cancel->task) && options_.handler != nullptr) {
        deferred_.push_back(
            [handler = options_.handler, task = cancel->task] { handler->Cancel(task); });
      }
      if (cancel->recursive != 0) owner_->CancelChildren(cancel->task, cancel->force != 0);
      return;
    }
    case FrameKind::kStreamAck:
      if (const auto* ack = FrameHead<StreamAck>(frame.body)) executor_->OnStreamAck(from, *ack);
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

// What the raylet of another node may say: that somebody there is dead, that an object is there or
// not, and what this driver's workers there print.
void RuntimeImpl::OnRemoteRayletFrame(const Frame& frame) {
  if (frame.kind == kStoreLocated) {
    store_->OnFrame(frame.kind, frame.body);
    return;
  }
  if (frame.kind == FrameKind::kConnectRefused) {
    OnConnectRefused(frame);
  } else if (frame.kind == FrameKind::kProcessDied) {
    proto::ProcessDied died;
    if (Parse(frame.body, &died)) OnProcessDied(died);
  } else if (frame.kind == FrameKind::kLogLines) {
    OnRayletFrame(frame);
  }
}

void RuntimeImpl::OnConnectRefused(const Frame& frame) {
  proto::ConnectRefused refused;
  if (!Parse(frame.body, &refused)) return;
  owner_->OnProcessDied(ProcessId::Unpack(refused.peer()), refused.death(), 0);
  executor_->OnProcessDied(ProcessId::Unpack(refused.peer()));
}

void RuntimeImpl::OnRayletFrame(const Frame& frame) {
  if (IsStoreFrame(frame.kind)) {
    store_->OnFrame(frame.kind, frame.body);
    return;
  }
  switch (frame.kind) {
    case FrameKind::kNewRing: {
      proto::NewRing ring;
      if (Parse(frame.body, &ring)) OnNewRing(ring);
      return;
    }
    case FrameKind::kConnectRefused:
      OnConnectRefused(frame);
      return;
    case FrameKind::kRelayed: {
      ProcessId sender;
      Frame inside;
      if (OpenRelayed(frame.body, &sender, &inside) && sender.node != self_.node) {
        OnFrame(sender, inside);
      }
      return;
    }
    case FrameKind::kNodeGone: {
      proto::NodeGone gone;
      if (Parse(frame.body, &gone)) owner_->OnNodeGone(gone.node());
      return;
    }
    case FrameKind::kProcessDied: {
      proto::ProcessDied died;
      if (Parse(frame.body, &died)) OnProcessDied(died);
      return;
    }
    case FrameKind::kLeaseBegin: {
      proto::LeaseBegin begin;
      if (!Parse(frame.body, &begin)) return;
      job_ = begin.job();
      if (name_space_.empty()) name_space_ = begin.name_space();  // A worker is of one job.
      executor_->OnLeaseBegin(begin);
      return;
    }
    case FrameKind::kLeaseEnd: {
      proto::LeaseEnd end;
      if (Parse(frame.body, &end)) executor_->OnLeaseEnd(end);
      return;
    }
    case FrameKind::kActorLease: {
      proto::ActorLease lease;
      if (Parse(frame.body, &lease)) executor_->OnActorLease(lease);
      return;
    }
    case FrameKind::kJobStarted: {
      proto::JobStarted started;
      if (!Parse(frame.body, &started)) return;
      job_ = started.job();
      name_space_ = started.name_space();
      job_error_ = started.error();
      job_answered_ = true;
      return;
    }
    case FrameKind::kGroupState: {
      proto::GroupState state;
      if (!Parse(frame.body, &state)) return;
      auto id = PlacementGroupId::FromBinary(state.id());
      if (id.ok()) groups_[*id] = std::move(state);
      return;
    }
    case FrameKind::kStateQuery: {
      proto::StateQuery query;
      if (Parse(frame.body, &query)) AnswerStateQuery(query);
      return;
    }
    case FrameKind::kStateAnswer: {
      proto::StateAnswer answer;
      if (Parse(frame.body, &answer) && state_answers_.contains(answer.request())) {
        const uint64_t request = answer.request();
        state_answers_[request] = std::move(answer);
        state_answers_[request].set_request(UINT64_MAX);  // Answered.
      }
      return;
    }
    case FrameKind::kGcsReply: {
      proto::GcsReply reply;
      if (Parse(frame.body, &reply)) gcs_->OnReply(std::move(reply));
      return;
    }
    case FrameKind::kLogLines: {
      proto::LogLines lines;
      if (!options_.on_log_lines || !Parse(frame.body, &lines)) return;
      deferred_.push_back([this, lines = std::move(lines)] { options_.on_log_lines(lines); });
      return;
    }
    case FrameKind::kShutdown: {
      proto::Shutdown shutdown;
      Parse(frame.body, &shutdown);
      leaving_ = true;
      if (options_.driver) EndRaylet("the node shuts down: " + shutdown.reason());
      WakeWaiters();
      leaves_.notify_all();
      return;
    }
    default:
      return;  // Of a newer raylet.
  }
}

bool RuntimeImpl::KeepSpareDescriptor() {
  spare_descriptor_.Reset(open("/dev/null", O_RDONLY | O_CLOEXEC));
  return spare_descriptor_.valid();
}

void RuntimeImpl::OnNewRing(const proto::NewRing& ring) {
  spare_descriptor_.Reset();
  // At the end, when the pair is closed.
  const absl::Cleanup keep_again = [this] { KeepSpareDescriptor(); };
  absl::StatusOr<NewRingPair> pair = ReceiveRing(attached_.socket, kRingWait);
  if (!pair.ok()) {
    if (absl::IsUnavailable(pair.status())) EndRaylet("the raylet of this node has ended");
    return;
  }
  // Descriptors come in the order of their frames, so `pair` belongs to `ring` or the raylet is
  // broken.
  if (pair->peer.packed() != ring.peer()) return;
  mailbox_->AddRing(pair->peer, pair->segment.get(), pair->first, pair->peer_bell).IgnoreError();
}

void RuntimeImpl::OnProcessDied(const proto::ProcessDied& died) {
  const ProcessId process = ProcessId::Unpack(died.process());
  mailbox_->Drain(process, *this);  // What it said before it died counts.
  owner_->OnProcessDied(process, died.death(), died.started());
  executor_->OnProcessDied(process);
  owner_->references
      .Flush();  // New references go to the raylet before the word that the rings are drained.
  proto::PeerDrained drained;
  drained.set_process(died.process());
  SendMessage(transport_->To(RayletOf(process.node)), FrameKind::kPeerDrained, drained);
}

void RuntimeImpl::AnswerStateQuery(const proto::StateQuery& query) {
  proto::StateAnswer answer;
  answer.set_request(query.request());
  const uint32_t limit = query.limit() == 0 ? 10'000 : query.limit();
  if (query.what() == proto::StateQuery::TASKS || query.what() == proto::StateQuery::WHY) {
    owner_->tasks.ForEach([&](TaskRecord& task) {
      const std::string id = owner_->tasks.IdOf(task).ToHex();
      if (task.state == TaskState::kFinished ||
          (!query.id().empty() && id.compare(0, 28, query.id(), 0, 28) != 0))
        return;
      if (static_cast<uint32_t>(answer.tasks_size()) >= limit) {
        answer.set_truncated(true);
        return;
      }
      proto::TaskRow& row = *answer.add_tasks();
      row.set_task_id(id);
      row.set_name(task.spec->spec.name());
      row.set_owner(self_.packed());
      row.set_attempt(task.attempt);
      row.set_job(job_);
      const bool of_actor = task.spec->spec.kind() == proto::TaskTemplate::ACTOR_METHOD;
      switch (task.state) {
        case TaskState::kWaitingForArguments:
          row.set_state("WAITING_FOR_ARGUMENTS");
          break;
        case TaskState::kPushed:
          row.set_state("PUSHED");
          break;
        default:
          row.set_state(of_actor ? "WAITING_FOR_ACTOR" : "WAITING_FOR_LEASE");
          break;
      }
      if (of_actor) {
        row.set_words(owner_->actors.Words(task));
      } else if (task.spec->spec.kind() == proto::TaskTemplate::TASK) {
        if (task.state == TaskState::kPushed) {
          row.set_worker(static_cast<const OwnedLease*>(task.target)->worker->process.packed());
        }
        row.set_words(owner_->submitter.Words(task));
      }
    });
    executor_->ForEachRunning([&](const CallExecution& call) {
      const TaskId id = call.task();
      if (!query.id().empty() && id.ToHex() != query.id()) return;
      proto::TaskRow& row = *answer.add_tasks();
      row.set_task_id(id.ToHex());
      row.set_name(call.spec().name());
      row.set_state("RUNNING");
      row.set_owner(id.maker_bits);
      row.set_worker(self_.packed());
    });
  }
  if (query.what() == proto::StateQuery::OBJECTS) {
    owner_->references.ForEach([&](ObjectEntry& object) {
      if (!object.owned || (!query.id().empty() && object.id.ToHex() != query.id())) return;
      if (static_cast<uint32_t>(answer.objects_size()) >= limit) {
        answer.set_truncated(true);
        return;
      }
      proto::ObjectRow& row = *answer.add_objects();
      row.set_object_id(object.id.ToHex());
      row.set_size_bytes(object.size);
      switch (object.state) {
        case ObjectState::kPending:
          row.set_where("pending");
          break;
        case ObjectState::kValue:
          row.set_where("memory");
          break;
        case ObjectState::kStore:
          row.set_where("store");
          break;
        case ObjectState::kError:
          row.set_where("error");
          break;
      }
      row.set_owner(self_.packed());
      row.set_local_refs(object.handles.load(std::memory_order_relaxed));
      row.set_task_refs(object.uses);
      if (object.extra)
        row.set_borrowing_nodes(static_cast<uint32_t>(object.extra->borrowers.size()));
    });
  }
  SendMessage(mailbox_->To(RayletOf(self_.node)), FrameKind::kStateAnswer, answer);
}

}  // namespace sheaf
