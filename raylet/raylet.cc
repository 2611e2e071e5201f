// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "raylet/raylet.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/parse_frame.h"
#include "base/status_macros.h"
#include "metrics/counter.h"
#include "object_store/server/store_server.h"

namespace sheaf {
namespace {

using metrics::Counter;
using metrics::CounterId;

constexpr Nanos kUsualTick = 100 * kMillisecond;
// A live process whose socket closed is given up after this.
constexpr Nanos kExitAfterSocket = kSecond;

RayletOptions Filled(RayletOptions options) {
  if (options.workers.cpus <= 0) {
    options.workers.cpus = static_cast<int>(options.totals.cpu() / kUnit);
  }
  options.labels[kNodeIdLabel] = NodeIdText(options.node);
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

Raylet::Raylet(RayletOptions options, RayletDeps deps)
    : options_(Filled(std::move(options))),
      deps_(deps),
      view_(ViewOf(options_)),
      ledger_(options_.totals, options_.labels, options_.gpu_ids),
      queue_(options_.leases, ledger_, view_, deps_.random),
      pool_(options_.workers, deps_.clock, deps_.launcher, deps_.numbers),
      queries_({.node = options_.node,
                .limit = options_.query_limit,
                .clock = deps_.clock,
                .transport = deps_.transport,
                .gcs = cluster_.gcs(),
                .view = view_,
                .processes = processes_,
                .is_node_dead = [this](NodeNumber node) { return deaths_.IsNodeDead(node); },
                .runs_entrypoint = [this](const std::string& id) { return entrypoints_.Has(id); },
                .drain_here = [this] { cluster_.follower().StartDraining(); },
                .logs = deps_.logs,
                .task_events = deps_.task_events,
                .process_states = deps_.process_states},
               {.options = options_,
                .started_at = deps_.clock.Now(),
                .is_drained = [this] { return cluster_.IsDrained(); },
                .store = deps_.store,
                .switchboard = deps_.switchboard,
                .view = view_,
                .ledger = ledger_,
                .queue = queue_,
                .groups = groups_.ledger(),
                .pool = pool_,
                .processes = processes_,
                .jobs = jobs_.all(),
                .detached = detached_.all(),
                .group_states = groups_.states(),
                .adopted = objects_.adoption().adopted(),
                .worker_of = worker_of_}),
      sweeper_(deps_.clock) {
  AddSweeps();
  cluster_.Follow();
}

Raylet::~Raylet() = default;

void Raylet::OnAttached(ProcessId process, const AttachInfo& info) {
  if (process.node != options_.node || process.process == 0) return;
  if (ended_.contains(process)) return;
  if (deaths_.IsRecorded(process)) {  // Its exit was faster; nothing else comes of it.
    deps_.switchboard.Remove(process);
    deps_.transport.Forget(process);
    return;
  }
  const auto [it, inserted] = processes_.try_emplace(process);
  if (!inserted) return;
  it->second.info = info;
  it->second.attached_at = Now();
  if (info.segment != nullptr) deps_.store.OnProcessAttached(process, info.segment);
  if (info.role == ProcessRole::kWorker) {
    const WorkerPool::Worker* worker = pool_.Find(process);
    if (worker == nullptr) {  // Nobody asked for it, or not any more.
      deps_.launcher.Kill(process, "it is not wanted any more");
    } else {
      it->second.job = worker->job;
    }
  }
  cluster_.OnAttached(process);
  Settle();
}

void Raylet::OnFrame(ProcessId from, const Frame& frame) {
  if (frame.kind == FrameKind::kRelay && contacts_.ForwardOut(from, frame)) return;
  const auto it = processes_.find(from);
  if (it == processes_.end()) return;
  const absl::Status status = Dispatch(from, it->second, frame);
  if (!status.ok()) OnProtocolError(from, status);
  if (frame.kind == FrameKind::kRelay && status.ok()) return;  // Nothing of this raylet changed.
  Settle();
}

absl::Status Raylet::Dispatch(ProcessId from, AttachedProcess& process, const Frame& frame) {
  const bool worker = process.info.role == ProcessRole::kWorker;
  const bool driver = process.info.role == ProcessRole::kDriver;
  switch (frame.kind) {  // What every process may say.
    case FrameKind::kGcsRequest:
      return cluster_.OnGcsRequest(from, frame);
    case FrameKind::kStateQuery:
      if (actor_kills_.Takes(from, frame)) return absl::OkStatus();
      detached_.SendRows();  // Who asks finds what it has said before.
      return queries_.OnQuery(from, frame);
    case FrameKind::kStateAnswer:
      return queries_.OnAnswer(from, frame);
    case FrameKind::kConnectRequest:
      return OnConnectRequest(from, frame);
    case FrameKind::kPeerDrained:
      return OnPeerDrained(from, frame);
    case FrameKind::kRelay:
      if (!worker && !driver) return absl::InvalidArgumentError("tools speak to their node only");
      return contacts_.OnRelay(from, frame);
    case FrameKind::kGoodbye:
      return OnGoodbye(from, frame);
    default:
      break;
  }
  if (IsStoreFrame(frame.kind)) return objects_.OnStoreFrame(from, frame);
  if (!worker && !driver) return absl::OkStatus();
  switch (frame.kind) {  // What those may say that own tasks and objects.
    case FrameKind::kJobStart:
      return driver ? jobs_.OnStart(from, frame) : absl::OkStatus();
    case FrameKind::kLeaseDemand:
      return leases_.OnDemand(from, frame);
    case FrameKind::kLeaseReturn:
      return leases_.OnReturn(from, frame);
    case FrameKind::kKillWorker:
      return leases_.OnKillWorker(from, frame);
    case FrameKind::kBlocked:
      return leases_.OnBlocked(from, frame);
    case FrameKind::kWorkerReady:
      if (worker) leases_.OnWorkerReady(from);
      return absl::OkStatus();
    case FrameKind::kRefsReport:
    case FrameKind::kNodeRefsAck:
    case FrameKind::kAdoptedQuery:
      return objects_.OnReferenceFrame(from, frame);
    case FrameKind::kGroupRequest:
      return groups_.OnRequest(from, frame);
    case FrameKind::kActorReport:
      return detached_.OnReport(from, frame);
    default:
      return absl::OkStatus();  // Of a newer peer.
  }
}

absl::Status Raylet::OnGoodbye(ProcessId from, const Frame& frame) {
  SHEAF_ASSIGN_OR_RETURN(const auto goodbye, ParseFrame<proto::Goodbye>(frame));
  switch (goodbye.step()) {
    case proto::Goodbye::STAYS:
      pool_.OnStays(from);
      return absl::OkStatus();
    case proto::Goodbye::LEAVES:
      pool_.OnLeaves(from);
      return absl::OkStatus();
    default:
      break;
  }
  // What a worker has, GPUs and memory, is free when its process is gone.
  if (pool_.OnGoodbye(from)) return absl::OkStatus();
  proto::Death death;
  death.set_cause(proto::Death::LEFT);
  OnProcessEnded(from, death, /*exited=*/false);
  return absl::OkStatus();
}

absl::Status Raylet::OnConnectRequest(ProcessId from, const Frame& frame) {
  SHEAF_ASSIGN_OR_RETURN(const auto message, ParseFrame<proto::ConnectRequest>(frame));
  const ProcessId peer = ProcessId::Unpack(message.peer());
  if (peer == from) return absl::OkStatus();
  if (deaths_.IsAlive(peer) && deps_.switchboard.Connect(from, peer).ok()) return absl::OkStatus();
  proto::ConnectRefused refusal;
  refusal.set_peer(message.peer());
  *refusal.mutable_death() = deaths_.DeathOf(peer);
  SendMessage(deps_.transport.To(from), FrameKind::kConnectRefused, refusal);
  return absl::OkStatus();
}

void Raylet::OnProtocolError(ProcessId process, const absl::Status& status) {
  Counter(deps_.metrics, CounterId::kBadFrames).Add();
  const std::string reason =
      absl::StrCat("it sent what its raylet cannot read: ", std::string(status.message()));
  if (pool_.Find(process) != nullptr) {
    pool_.Kill(process, reason);
  } else {
    proto::Shutdown message;
    message.set_reason(reason);
    SendMessage(deps_.transport.To(process), FrameKind::kShutdown, message);
  }
}

void Raylet::OnExited(ProcessId process, const proto::Death& death) {
  if (processes_.contains(process)) {
    OnProcessEnded(process, death, /*exited=*/true);
  } else if (!ended_.OnExited(process)) {
    // A worker that has not attached; if it did just before, OnAttached shall not wait for its end.
    deaths_.Record(process, death);
    if (pool_.OnExited(process, death)) figures_.CountDeath(death);
  }
  Settle();
}

void Raylet::OnSocketClosed(ProcessId process) {
  if (const auto it = processes_.find(process); it != processes_.end()) {
    it->second.socket_closed_at = Now();
  } else {
    ended_.OnSocketClosed(process);
  }
  Settle();
}

void Raylet::OnFetch(NodeNumber reader, std::string_view request, ObjectServer::Respond respond) {
  objects_.OnBlockRequest(reader, request, std::move(respond));
  Settle();
}

void Raylet::Tick() {
  const Nanos now = Now();
  queue_.OnTick(now);
  leases_.Tick();
  groups_.Tick();
  detached_.Tick();
  pool_.Tick();
  ended_.Tick();
  for (const ProcessId process : HungUp(processes_, now - kExitAfterSocket)) {
    proto::Death death;
    death.set_cause(proto::Death::LEFT);
    death.set_message("it closed its connection to the raylet");
    OnProcessEnded(process, death, /*exited=*/false);
  }
  jobs_.Tick();
  queries_.Tick();
  for (const NodeNumber node : contacts_.TakeUnknownNodes())
    OnNodeDead(node, "no such node is in this cluster");
  detached_.SendRows();
  forgotten_logs_.Tick();
  cluster_.Tick();
  events_.OnDiskFailures(deps_.store.Stats().disk_failures);
  sweeper_.Tick();
  objects_.Tick();
  Settle();
}

void Raylet::EndTurn() {
  deps_.store.EndTurn();
  Settle();
}

Nanos Raylet::NextTick() const {
  const Nanos next = std::min(queue_.NextTick(), objects_.NextTick());
  return next <= Now() + kUsualTick ? next : kForever;
}

void Raylet::Settle() {
  objects_.Settle();
  objects_.AdmitArguments();
  for (bool more = true; more;) {
    more = groups_.Settle();
    more |= leases_.Settle();
    objects_.Settle();
  }
}

void Raylet::Shutdown(const std::string& reason) {
  view_.here().draining = true;
  queue_.OnClusterChanged(Now());
  proto::Shutdown message;
  message.set_reason(reason);
  for (const auto& [process, entry] : processes_) {
    SendMessage(deps_.transport.To(process), FrameKind::kShutdown, message);
  }
  jobs_.Close(reason);
  entrypoints_.StopAll();
  Settle();
}

}  // namespace sheaf
