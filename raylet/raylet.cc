// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "raylet/raylet.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/parse_frame.h"
#include "base/status_macros.h"
#include "object_store/server/store_owner.h"

namespace sheaf {
namespace {

using metrics::Counter;
using metrics::CounterId;

constexpr Nanos kUsualTick = 100 * kMillisecond;

RayletOptions Filled(RayletOptions options) {
  if (options.workers.cpus <= 0) {
    options.workers.cpus = static_cast<int>(options.totals.cpu() / kUnit);
  }
  return options;
}

ObjectPullerOptions PullsOf(NodeNumber node, const StoreOwner& store) {
  ObjectPullerOptions options;
  options.node = node;
  options.most_bytes = std::min(options.most_bytes, store.Stats().capacity_bytes / 4);
  return options;
}

ClusterView ViewOf(const RayletOptions& options) {
  ClusterView view;
  view.local = options.node;
  view.complete = false;
  view.here().total = options.totals;
  view.here().available = options.totals;
  view.here().labels = options.labels;
  view.here().draining = !options.takes_work;
  return view;
}

}  // namespace

Raylet::Raylet(RayletOptions options, RayletWorld world)
    : options_(Filled(std::move(options))),
      world_(world),
      started_at_(world.clock.Now()),
      view_(ViewOf(options_)),
      ledger_(options_.totals, options_.labels, options_.gpu_ids),
      queue_(options_.leases, ledger_, view_, world_.random),
      groups_(ledger_, view_),
      pool_(options_.workers, world_.clock, world_.launcher, world_.numbers),
      references_(options_.node, world_.clock, world_.transport,
                  [this](ProcessId owner) { return IsDeadOwner(owner); }),
      orphans_(world_.clock, world_.transport, [this] { return OtherNodes(); }),
      router_(options_.node, world_.transport),
      gcs_(options_.node, world_.clock, world_.transport),
      puller_(PullsOf(options_.node, world_.store), {.clock = world_.clock,
                                                     .store = world_.store,
                                                     .blocks = world_.blocks,
                                                     .loop = world_.loop,
                                                     .copier = world_.copier}),
      server_({.clock = world_.clock,
               .store = world_.store,
               .puller = puller_,
               .copier = world_.copier}),
      arguments_(world_.store.Stats().capacity_bytes),
      state_rows_({.options = options_,
                   .started_at = started_at_,
                   .store = world_.store,
                   .switchboard = world_.switchboard,
                   .view = view_,
                   .ledger = ledger_,
                   .queue = queue_,
                   .groups = groups_,
                   .pool = pool_,
                   .processes = processes_,
                   .jobs = jobs_,
                   .detached = detached_,
                   .group_states = group_states_,
                   .adopted = adopted_,
                   .worker_of = worker_of_}),
      queries_({.node = options_.node,
                .limit = options_.query_limit,
                .clock = world_.clock,
                .transport = world_.transport,
                .gcs = gcs_,
                .view = view_,
                .processes = processes_,
                .rows = state_rows_,
                .is_node_dead = [this](NodeNumber node) { return IsNodeDead(node); }}),
      sweeper_(world_.clock),
      gcs_term_(options_.gcs_term) {
  AddSweeps();
  FollowCluster();
}

Raylet::~Raylet() = default;

void Raylet::OnAttached(ProcessId process, const AttachInfo& info) {
  if (process.node != options_.node || process.process == 0) return;
  if (remains_.contains(process) || deaths_.contains(process)) return;  // Its exit was faster.
  const auto [it, inserted] = processes_.try_emplace(process);
  if (!inserted) return;
  it->second.info = info;
  it->second.attached_at = Now();
  if (info.segment != nullptr) world_.store.OnProcessAttached(process, info.segment);
  if (info.role == ProcessRole::kWorker) {
    const WorkerPool::Worker* worker = pool_.Find(process);
    if (worker == nullptr) {  // Nobody asked for it, or not any more.
      world_.launcher.Kill(process, "it is not wanted any more");
    } else {
      it->second.job = worker->job;
    }
  }
  for (const NodeNumber node : told_silent_) TellSilence(process, node, /*heard=*/false);
  Settle();
}

void Raylet::OnFrame(ProcessId from, const Frame& frame) {
  if (frame.kind == FrameKind::kRelay && PassOn(from, frame)) return;
  const auto it = processes_.find(from);
  if (it == processes_.end()) return;
  const absl::Status status = Dispatch(from, it->second, frame);
  if (!status.ok()) OnOffence(from, status);
  if (frame.kind == FrameKind::kRelay && status.ok()) return;  // Nothing of this raylet changed.
  Settle();
}

absl::Status Raylet::Dispatch(ProcessId from, AttachedProcess& process, const Frame& frame) {
  const bool worker = process.info.role == ProcessRole::kWorker;
  const bool driver = process.info.role == ProcessRole::kDriver;
  switch (frame.kind) {  // What every process may say.
    case FrameKind::kGcsRequest:
      // While the GCS is away the process keeps it, and asks again.
      if (!router_.ToGcs(from, frame.body, gcs_.up())) {
        return absl::InvalidArgumentError("a malformed request to the GCS");
      }
      return absl::OkStatus();
    case FrameKind::kStateQuery:
      return queries_.OnQuery(from, frame);
    case FrameKind::kStateAnswer:
      return queries_.OnAnswer(from, frame);
    case FrameKind::kConnectRequest:
      return OnConnectRequest(from, frame);
    case FrameKind::kPeerDrained: {
      SHEAF_ASSIGN_OR_RETURN(const auto message, ParseFrame<proto::PeerDrained>(frame));
      OnPeerDrained(from, ProcessId::Unpack(message.process()));
      return absl::OkStatus();
    }
    case FrameKind::kRelay:
      if (!worker && !driver) return absl::InvalidArgumentError("tools speak to their node only");
      return OnRelay(from, frame);
    case FrameKind::kGoodbye: {
      proto::Death death;
      death.set_cause(proto::Death::LEFT);
      Bury(from, death, /*exited=*/false);
      return absl::OkStatus();
    }
    default:
      break;
  }
  if (frame.kind == kStoreFetch) return OnStoreFetch(from, frame);
  if (frame.kind == kStoreHold) return OnStoreHold(from, frame);
  if (IsStoreFrame(frame.kind)) {
    world_.store.OnFrame(from, frame.kind, frame.body);
    return absl::OkStatus();
  }
  if (!worker && !driver) return absl::OkStatus();
  switch (frame.kind) {  // What those may say that own tasks and objects.
    case FrameKind::kJobStart:
      return driver ? OnJobStart(from, process, frame) : absl::OkStatus();
    case FrameKind::kLeaseDemand:
      return OnLeaseDemand(from, frame);
    case FrameKind::kLeaseReturn:
      return OnLeaseReturn(from, frame);
    case FrameKind::kKillWorker:
      return OnKillWorker(from, frame);
    case FrameKind::kBlocked:
      return OnBlockedFrame(from, process, frame);
    case FrameKind::kWorkerReady:
      if (worker) OnWorkerReady(from);
      return absl::OkStatus();
    case FrameKind::kRefsReport:
      return OnRefsReport(from, frame);
    case FrameKind::kNodeRefsAck:
      return OnNodeRefsAck(from, frame);
    case FrameKind::kAdoptedQuery:
      return OnAdoptedQuery(from, frame);
    case FrameKind::kGroupRequest:
      return OnGroupRequest(from, frame);
    case FrameKind::kActorReport:
      return OnActorReport(from, frame);
    default:
      return absl::OkStatus();  // Of a newer peer.
  }
}

void Raylet::OnOffence(ProcessId process, const absl::Status& status) {
  Counter(world_.metrics, CounterId::kBadFrames).Add();
  const std::string words =
      absl::StrCat("it sent what its raylet cannot read: ", std::string(status.message()));
  if (pool_.Find(process) != nullptr) {
    pool_.Kill(process, words);
  } else {
    proto::Shutdown message;
    message.set_reason(words);
    SendMessage(To(process), FrameKind::kShutdown, message);
  }
}

void Raylet::OnExited(ProcessId process, const proto::Death& death) {
  Bury(process, death, /*exited=*/true);
  Settle();
}

void Raylet::OnSocketClosed(ProcessId process) {
  if (const auto it = processes_.find(process); it != processes_.end()) {
    it->second.socket_closed_at = Now();
  } else if (const auto remains = remains_.find(process); remains != remains_.end()) {
    remains->second.socket_closed = true;
    ForgetIfOver(process);
  }
  Settle();
}

void Raylet::Tick() {
  const Nanos now = Now();
  queue_.OnTick(now);
  TakeOverdueLeases();
  CheckDetached();
  pool_.Tick();
  references_.Tick();
  gcs_.Tick();
  CheckRemains();
  CheckJobs();
  queries_.Tick();
  CheckUnknownNodes();
  CheckView();
  CheckSilence();
  TickGcs();
  sweeper_.Tick();
  next_store_tick_ = world_.store.Tick();
  TickObjects();
  TickOrphans();
  Settle();
}

void Raylet::EndTurn() {
  world_.store.EndTurn();
  Settle();
}

Nanos Raylet::NextTick() const {
  const Nanos next = std::min({queue_.NextTick(), next_store_tick_, puller_.NextTick()});
  return next <= Now() + kUsualTick ? next : kForever;
}

void Raylet::Settle() {
  SettleStore();
  if (arguments_.has_waiting()) AdmitArguments();
  for (bool more = true; more;) {
    more = false;
    if (room_came_) {
      room_came_ = false;
      if (groups_.pending() > 0) groups_.OnRoom(Now());
    }
    for (const GroupAction& action : groups_.TakeActions()) {
      Perform(action);
      more = true;
    }
    for (const LeaseAction& action : queue_.TakeActions()) {
      Perform(action);
      more = true;
    }
    for (const WorkerPool::Assigned& assigned : pool_.TakeAssigned()) {
      OnAssigned(assigned.ticket, assigned.worker);
      more = true;
    }
    for (const WorkerPool::Failed& failed : pool_.TakeFailed()) {
      queue_.OnGrantFailed(failed.ticket, failed.error.kind, failed.error.message, Now());
      more = true;
    }
    SettleStore();
  }
}

void Raylet::Shutdown(const std::string& reason) {
  shutting_down_ = true;
  view_.here().draining = true;
  queue_.OnClusterChanged(Now());
  proto::Shutdown message;
  message.set_reason(reason);
  for (const auto& [process, entry] : processes_) {
    SendMessage(To(process), FrameKind::kShutdown, message);
  }
  for (const auto& [number, job] : jobs_) pool_.RemoveJob(number, reason);
  Settle();
}

}  // namespace sheaf
