// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "raylet/jobs/detached_actors.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/parse_frame.h"
#include "base/status_macros.h"
#include "scheduling/scheduling_policy.h"

namespace sheaf {
namespace {

// How a worker of an ended job is started stays known for so long after the last detached actor of
// it here.
constexpr Nanos kKeepJobForRestart = 30 * kSecond;
constexpr size_t kMaxQueuedActorRows = 100'000;
// Of so many incarnations that ended here it is known that they did: none begins again, however
// late its order is repeated.
constexpr size_t kEndedDetachedKept = 1'000;
// A detached actor without room here for so long goes where there is some, and after the second
// even where there is none either.
constexpr Nanos kFirstLookElsewhere = kSecond;
constexpr Nanos kTryAnotherQueue = 30 * kSecond;
constexpr Nanos kLookElsewherePeriod = kSecond / 4;

// Adds what its creator does not know. False: its job has no number yet.
bool Complete(ProcessId creator, const AttachedProcesses& processes, const Jobs& jobs,
              proto::ActorRow& row) {
  const auto worker = processes.find(ProcessId::Unpack(row.process()));
  if (worker != processes.end()) row.set_os_pid(worker->second.info.os_pid);
  const auto made_by = processes.find(creator);
  if (made_by == processes.end()) return true;
  const NodeJob* job = jobs.Find(made_by->second.job);
  if (job == nullptr) return true;
  row.set_job(job->number);
  if (row.name_space().empty()) row.set_name_space(job->start.name_space());
  return job->number != 0;
}

}  // namespace

void DetachedActors::OnStart(const proto::StartActor& message) {
  const auto id = ActorId::FromBinary(message.actor_id());
  if (!id.ok()) return;
  if (const auto it = actors_.find(*id); it != actors_.end()) {
    DetachedActor& known = it->second;
    if (known.start.incarnation() == message.incarnation() && !known.ending) {
      Report(known);
      return;
    }
    if (known.start.incarnation() >= message.incarnation()) return;
    // That one begins when this one is gone.
    End(known, "a newer incarnation of it starts");
    return;
  }
  const auto ended = FindEnded(message.actor_id());
  if (ended != ended_.end() && ended->incarnation() >= message.incarnation()) {
    Send(*ended);
    return;
  }
  Add(*id, message);
}

void DetachedActors::Add(ActorId id, const proto::StartActor& message) {
  DetachedActor actor;
  actor.start = message;
  actor.start.mutable_lease()->set_actor(true);
  actor.start.mutable_lease()->set_actor_id(message.actor_id());
  actor.key = ++last_key_;
  actor.came_at = Now();
  actor.job = deps_.jobs.AddForActor(message);
  if (absl::Status merged = deps_.jobs.AddEnvironment(actor.job, actor.start.mutable_lease());
      !merged.ok()) {
    Log(LogLevel::kWarning, "the environment of the actor ", id.ToHex(), ": ",
        std::string(merged.message()));
  }
  deps_.pool.AddJob(actor.job, actor.start.lease().environment(),
                    !deps_.jobs.Find(actor.job)->only_detached);
  const DetachedActor& added = actors_.emplace(id, std::move(actor)).first->second;
  if (!MayStartHere(added)) {  // The orders have crossed, or it is asked where the group is.
    const auto group = PlacementGroupId::FromBinary(added.start.lease().strategy().group_id());
    if (group.ok()) deps_.groups.TellPlace(*group);
    OnRefused(added.key, ErrorKind::kNodeDied, "the node drains");
    return;
  }
  Report(added);
  proto::LeaseDemand demand;
  demand.set_key(added.key);
  *demand.mutable_spec() = added.start.lease();
  demand.set_wanted(1);
  demand.set_backlog(1);
  deps_.groups.FollowGroupOf(demand.spec());
  deps_.queue.OnDemand(Self(), demand, Now(), {}, 0, kMaxHops);  // The GCS chose this node.
  Tick();
}

// A node that drains starts what its placement groups have room for here: that can go nowhere else.
bool DetachedActors::MayStartHere(const DetachedActor& actor) const {
  if (!deps_.view.here().draining) return true;
  const auto spec = ParseLeaseSpec(actor.start.lease());
  return spec.ok() && spec->strategy.kind == StrategyKind::kPlacementGroup &&
         deps_.queue.ledger().CouldEverAcquireIn(spec->strategy.group, spec->strategy.bundle,
                                                 spec->resources);
}

// An actor stays while no node has more room: here it takes part in the queue for what comes free.
void DetachedActors::Tick() {
  const Nanos now = Now();
  std::vector<std::pair<uint64_t, std::string>> back;
  std::vector<uint64_t> gone;
  for (auto& [id, actor] : actors_) {
    if (actor.worker.process != 0 || actor.ending || now < actor.look_at) continue;
    actor.look_at = now + kLookElsewherePeriod;
    const auto pending = deps_.queue.FindPending(Self(), actor.key);
    if (!pending.has_value()) continue;  // It has its room: a worker starts.
    const Strategy& strategy = pending->spec->strategy;
    if (strategy.kind == StrategyKind::kPlacementGroup && deps_.groups.IsUnknown(strategy.group) &&
        now - actor.came_at >= kFirstLookElsewhere) {
      gone.push_back(actor.key);
      continue;
    }
    std::string reason = ReasonToGiveBack(*pending, actor);
    if (!reason.empty()) back.emplace_back(actor.key, std::move(reason));
  }
  for (const auto& [key, reason] : back) {
    proto::Death death;
    death.set_cause(proto::Death::NODE_DIED);  // For the GCS: as if this node were gone.
    death.set_message(reason);
    Remove(key, death);
  }
  for (const uint64_t key : gone)
    OnRefused(key, ErrorKind::kGroupRemoved, "its placement group was removed");
}

// Empty: `actor` waits on here.
std::string DetachedActors::ReasonToGiveBack(const LeaseQueue::Pending& pending,
                                             const DetachedActor& actor) {
  const LeaseSpec& spec = *pending.spec;
  const Nanos waits = Now() - actor.came_at;
  if (spec.strategy.kind == StrategyKind::kPlacementGroup)
    return ReasonOfGroup(spec, waits >= kFirstLookElsewhere);
  if (waits < kFirstLookElsewhere) return "";
  Resources hidden;  // This node has had its time.
  std::swap(hidden, deps_.view.here().available);
  PolicyContext context;
  const Placement place = Place(spec, deps_.view, context);
  std::swap(hidden, deps_.view.here().available);
  if (place.kind == Placement::Kind::kNode && place.node != deps_.view.local) {
    deps_.view.nodes[place.node].available -= spec.resources;  // Until it reports anew.
    return absl::StrCat("no room on node ", deps_.view.local, ", some on node ", place.node);
  }
  if (place.kind != Placement::Kind::kWait || waits < kTryAnotherQueue) return "";
  for (const auto& [node, seen] : deps_.view.nodes) {
    if (node != deps_.view.local && seen.usable() && CouldHold(spec, deps_.view, node))
      return absl::StrCat("no room on node ", deps_.view.local, " for ", waits / kSecond, " s");
  }
  return "";
}

std::string DetachedActors::ReasonOfGroup(const LeaseSpec& spec, bool waits_long) {
  const PlacementGroupId id = spec.strategy.group;
  const auto known = deps_.view.groups.find(id);
  if (known == deps_.view.groups.end() || known->second.state != GroupPlacement::State::kCreated)
    return "";
  std::vector<NodeNumber> nodes = known->second.bundle_nodes;
  if (spec.strategy.bundle != kAnyBundle) {
    if (static_cast<size_t>(spec.strategy.bundle) >= nodes.size())
      return "";  // The queue refuses it.
    nodes = {nodes[static_cast<size_t>(spec.strategy.bundle)]};
  }
  const bool here = std::find(nodes.begin(), nodes.end(), deps_.view.local) != nodes.end();
  const bool elsewhere = std::any_of(nodes.begin(), nodes.end(),
                                     [&](NodeNumber node) { return node != deps_.view.local; });
  if (here && (!waits_long || !elsewhere)) return "";
  deps_.groups.TellPlace(id);
  return here ? "its placement group has no room here"
              : "the bundle of its placement group is on another node";
}

void DetachedActors::OnKill(const proto::KillActor& message) {
  const auto id = ActorId::FromBinary(message.actor_id());
  if (!id.ok()) return;
  const auto it = actors_.find(*id);
  if (it != actors_.end() && it->second.start.incarnation() <= message.incarnation()) {
    End(it->second, message.reason());
    return;
  }
  proto::ActorStateReport report;
  report.set_actor_id(message.actor_id());
  report.set_incarnation(message.incarnation());
  report.mutable_died()->set_cause(proto::Death::KILLED);
  report.mutable_died()->set_message(message.reason());
  ReportEnd(std::move(report));
}

void DetachedActors::ReportEnd(proto::ActorStateReport report) {
  Send(report);
  if (const auto known = FindEnded(report.actor_id()); known != ended_.end()) {
    if (known->incarnation() >= report.incarnation()) return;
    ended_.erase(known);
  }
  ended_.push_back(std::move(report));
  if (ended_.size() > kEndedDetachedKept) ended_.pop_front();
}

void DetachedActors::End(DetachedActor& actor, const std::string& reason) {
  if (actor.ending) return;
  actor.ending = true;
  if (actor.worker.process != 0) {
    deps_.pool.Kill(actor.worker, reason);
    return;
  }
  proto::Death death;
  death.set_cause(proto::Death::KILLED);
  death.set_message(reason);
  Remove(actor.key, death);
}

void DetachedActors::OnPlaced(uint64_t key, LeaseNumber lease, ProcessId worker) {
  DetachedActor* actor = Find(key);
  if (actor == nullptr || actor->ending) {
    deps_.pool.Kill(worker, "its actor is not wanted any more");
    return;
  }
  actor->worker = worker;
  actor->lease = lease;
  SendLease(worker);
  // On the lane of kLeaseBegin, which the worker must see first.
  deps_.transport.To(worker).Send(Lane::kControl, FrameKind::kPushTask, actor->start.creation());
}

// Actors are told a few times in each lease.
void DetachedActors::OnNodeLease(Nanos until, Nanos length) {
  lease_until_ = std::max(lease_until_, until);
  if (lease_until_ - told_lease_until_ < length / 4) return;
  told_lease_until_ = lease_until_;
  for (const auto& [id, actor] : actors_) {
    if (actor.worker.process != 0) SendLease(actor.worker);
  }
}

void DetachedActors::SendLease(ProcessId worker) {
  proto::ActorLease lease;
  lease.set_until_ns(lease_until_);
  SendMessage(deps_.transport.To(worker), FrameKind::kActorLease, lease);
}

void DetachedActors::OnRefused(uint64_t key, ErrorKind error, const std::string& reason) {
  DetachedActor* actor = Find(key);
  if (actor == nullptr) return;
  actor->pending = reason;
  if (error == ErrorKind::kNone) {  // Only a notice: it stays queued.
    Report(*actor);
    return;
  }
  proto::Death death;
  // A node that drains is as good as gone: the GCS has the actor started elsewhere.
  death.set_cause(error == ErrorKind::kNodeDied ? proto::Death::NODE_DIED
                                                : proto::Death::START_FAILED);
  death.set_message(reason);
  Remove(key, death);
}

void DetachedActors::OnWorkerDied(ProcessId worker, const proto::Death& death) {
  for (auto& [id, actor] : actors_) {
    if (actor.worker != worker) continue;
    const bool failed = actor.failure.cause() != proto::Death::UNKNOWN;
    const proto::Death how = failed ? actor.failure : death;
    Remove(actor.key, how);
    return;
  }
}

absl::Status DetachedActors::OnReport(ProcessId from, const Frame& frame) {
  SHEAF_ASSIGN_OR_RETURN(auto message, ParseFrame<proto::ActorReport>(frame));
  for (auto& [id, actor] : actors_) {
    if (actor.worker != from) continue;
    if (id.ToHex() != message.actor().actor_id()) break;
    if (message.actor().state() == "ALIVE" && !actor.started) {
      actor.started = true;
      Report(actor);
    } else if (message.actor().state() == "DEAD") {
      actor.failure.set_cause(proto::Death::EXITED);
      actor.failure.set_message(message.actor().death());
      End(actor, message.actor().death());
    }
    return absl::OkStatus();
  }
  // Of an actor that its creator manages: for listings, in one message with others.
  const std::string& id = message.actor().actor_id();
  if (rows_.size() < kMaxQueuedActorRows || rows_.contains(id)) {
    proto::ActorRow& row = rows_[id];
    row = std::move(*message.mutable_actor());
  }
  return absl::OkStatus();
}

void DetachedActors::SendRows() {
  if (rows_.empty() || !deps_.gcs.up()) return;
  proto::GcsRequest request;
  absl::erase_if(rows_, [&](auto& entry) {
    auto& [id, row] = entry;
    const auto actor = ActorId::FromHex(id);
    // Of a creator that died since, the GCS forgot the rows when it heard of that.
    if (!actor.ok() || !deps_.deaths.IsAlive(actor->maker())) return true;
    const bool complete = Complete(actor->maker(), deps_.processes, deps_.jobs, row);
    *request.mutable_actor_rows()->add_rows() = row;
    return complete;
  });
  deps_.gcs.Report(std::move(request));
}

void DetachedActors::OnDraining() {
  std::vector<uint64_t> waiting;  // Those that have no worker yet.
  for (const auto& [id, actor] : actors_) {
    if (actor.worker.process == 0 && !MayStartHere(actor)) waiting.push_back(actor.key);
  }
  for (const uint64_t key : waiting) OnRefused(key, ErrorKind::kNodeDied, "the node drains");
}

void DetachedActors::Report(const DetachedActor& actor) { Send(ReportOf(actor, deps_.processes)); }

void DetachedActors::Send(const proto::ActorStateReport& report) {
  proto::GcsRequest request;
  *request.mutable_actor_state_report() = report;
  // How an actor is stands in the next node report, how it ended does not: a GCS whose disk was full
  // then, and that starts anew before it has room, would take the actor for one that never began.
  if (report.has_died()) return deps_.gcs.Insist(std::move(request));
  deps_.gcs.Command(std::move(request), nullptr);
}

void DetachedActors::Remove(uint64_t key, const proto::Death& death) {
  for (auto it = actors_.begin(); it != actors_.end(); ++it) {
    if (it->second.key != key) continue;
    const DetachedActor actor = std::move(it->second);
    actors_.erase(it);
    proto::ActorStateReport report;
    report.set_actor_id(actor.start.actor_id());
    report.set_incarnation(actor.start.incarnation());
    *report.mutable_died() = death;
    ReportEnd(std::move(report));
    proto::LeaseDemand none;  // Takes back what is still queued.
    none.set_key(key);
    *none.mutable_spec() = actor.start.lease();
    deps_.queue.OnDemand(Self(), none, Now());
    for (const Lease* lease : deps_.queue.Leases()) {  // Granted, and its worker is still to come.
      if (lease->demand.owner != Self() || lease->demand.key != key) continue;
      deps_.end_lease(lease->number);
      break;
    }
    deps_.jobs.Keep(actor.job, kKeepJobForRestart);
    return;
  }
}

DetachedActor* DetachedActors::Find(uint64_t key) {
  for (auto& [id, actor] : actors_) {
    if (actor.key == key) return &actor;
  }
  return nullptr;
}

bool DetachedActors::IsWanted(uint64_t key) const {
  return std::any_of(actors_.begin(), actors_.end(),
                     [key](const auto& entry) { return entry.second.key == key; });
}

bool DetachedActors::HasAny(JobNumber job) const {
  return std::any_of(actors_.begin(), actors_.end(),
                     [job](const auto& entry) { return entry.second.job == job; });
}

absl::btree_set<ProcessId> DetachedActors::WorkersOf(JobNumber job) const {
  absl::btree_set<ProcessId> workers;
  for (const auto& [id, actor] : actors_) {
    if (actor.job == job && actor.worker.process != 0) workers.insert(actor.worker);
  }
  return workers;
}

DetachedActors::Ended::iterator DetachedActors::FindEnded(const std::string& actor_id) {
  return std::find_if(ended_.begin(), ended_.end(),
                      [&](const auto& report) { return report.actor_id() == actor_id; });
}

void DetachedActors::FillReport(proto::NodeReport* report) const {
  for (const auto& [id, actor] : actors_) *report->add_actors() = ReportOf(actor, deps_.processes);
  // A GCS whose disk came back from a backup may not know how far their numbers went.
  for (const proto::ActorStateReport& ended : ended_) {
    proto::ActorStateReport& actor = *report->add_actors();
    actor.set_actor_id(ended.actor_id());
    actor.set_incarnation(ended.incarnation());
    actor.mutable_died()->set_cause(ended.died().cause());
  }
}

}  // namespace sheaf
