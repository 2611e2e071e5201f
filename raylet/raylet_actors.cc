// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Detached actors: the GCS decides that an incarnation starts or ends, this raylet leases a worker
// for it in its own name, hands over the creation task, and reports. The worker says by
// kActorReport that the constructor has run (ALIVE) or failed (DEAD).
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/parse_frame.h"
#include "base/status_macros.h"
#include "raylet/raylet.h"

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

}  // namespace

void Raylet::OnStartActor(const proto::StartActor& message) {
  const auto id = ActorId::FromBinary(message.actor_id());
  if (!id.ok()) return;
  if (const auto it = detached_.find(*id); it != detached_.end()) {
    DetachedActor& known = it->second;
    if (known.start.incarnation() == message.incarnation() && !known.ending) {
      ReportDetached(known);
      return;
    }
    if (known.start.incarnation() >= message.incarnation()) return;
    EndDetached(known,
                "a newer incarnation of it starts");  // That one begins when this one is gone.
    return;
  }
  const auto ended =
      std::find_if(ended_detached_.begin(), ended_detached_.end(),
                   [&](const auto& report) { return report.actor_id() == message.actor_id(); });
  if (ended != ended_detached_.end() && ended->incarnation() >= message.incarnation()) {
    SendActorState(*ended);
    return;
  }
  DetachedActor actor;
  actor.start = message;
  actor.start.mutable_lease()->set_actor(true);
  actor.start.mutable_lease()->set_actor_id(message.actor_id());
  actor.key = ++last_detached_key_;
  actor.came_at = Now();
  actor.job = jobs_.AddForActor(message);
  if (absl::Status merged = jobs_.AddEnvironment(actor.job, actor.start.mutable_lease());
      !merged.ok()) {
    Log(LogLevel::kWarning, "the environment of the actor ", id->ToHex(), ": ",
        std::string(merged.message()));
  }
  pool_.AddJob(actor.job, actor.start.lease().environment(), !jobs_.Find(actor.job)->only_detached);
  const DetachedActor& added = detached_.emplace(*id, std::move(actor)).first->second;
  if (!MayStartHere(added)) {  // The orders have crossed, or it is asked where the group is.
    const auto group = PlacementGroupId::FromBinary(added.start.lease().strategy().group_id());
    if (group.ok()) groups_.TellPlace(*group);
    OnDetachedRefused(added.key, ErrorKind::kNodeDied, "the node drains");
    return;
  }
  ReportDetached(added);
  proto::LeaseDemand demand;
  demand.set_key(added.key);
  *demand.mutable_spec() = added.start.lease();
  demand.set_wanted(1);
  demand.set_backlog(1);
  groups_.FollowGroupOf(demand.spec());
  // The GCS chose this node.
  queue_.OnDemand(RayletOf(options_.node), demand, Now(), {}, 0, kMaxHops);
  CheckDetached();
}

// A node that drains starts what its placement groups have room for here: that can go nowhere else.
bool Raylet::MayStartHere(const DetachedActor& actor) const {
  if (!view_.Find(options_.node)->draining) return true;
  const auto spec = ParseLeaseSpec(actor.start.lease());
  return spec.ok() && spec->strategy.kind == StrategyKind::kPlacementGroup &&
         ledger_.CouldEverAcquireIn(spec->strategy.group, spec->strategy.bundle, spec->resources);
}

// An actor that this node cannot start goes back to the GCS, which orders it from another one. It
// stays while no node has more room: here it takes part in the queue for what comes free.
void Raylet::CheckDetached() {
  const Nanos now = Now();
  std::vector<std::pair<uint64_t, std::string>> back;
  std::vector<uint64_t> gone;
  for (auto& [id, actor] : detached_) {
    if (actor.worker.process != 0 || actor.ending || now < actor.look_at) continue;
    actor.look_at = now + kLookElsewherePeriod;
    const auto pending = queue_.FindPending(RayletOf(options_.node), actor.key);
    if (!pending.has_value()) continue;  // It has its room: a worker starts.
    const Strategy& strategy = pending->spec->strategy;
    if (strategy.kind == StrategyKind::kPlacementGroup && groups_.IsUnknown(strategy.group) &&
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
    RemoveDetached(key, death);
  }
  for (const uint64_t key : gone)
    OnDetachedRefused(key, ErrorKind::kGroupRemoved, "its placement group was removed");
}

// Empty: `actor` waits on here.
std::string Raylet::ReasonToGiveBack(const LeaseQueue::Pending& pending,
                                     const DetachedActor& actor) {
  const LeaseSpec& spec = *pending.spec;
  const Nanos waits = Now() - actor.came_at;
  if (spec.strategy.kind == StrategyKind::kPlacementGroup)
    return ReasonOfGroup(spec, waits >= kFirstLookElsewhere);
  if (waits < kFirstLookElsewhere) return "";
  Resources hidden;  // This node has had its time.
  std::swap(hidden, view_.here().available);
  PolicyContext context;
  const Placement place = Place(spec, view_, context);
  std::swap(hidden, view_.here().available);
  if (place.kind == Placement::Kind::kNode && place.node != options_.node) {
    view_.nodes[place.node].available -= spec.resources;  // Until it reports anew.
    return absl::StrCat("no room on node ", options_.node, ", some on node ", place.node);
  }
  if (place.kind != Placement::Kind::kWait || waits < kTryAnotherQueue) return "";
  for (const auto& [node, seen] : view_.nodes) {
    if (node != options_.node && seen.usable() && CouldHold(spec, view_, node))
      return absl::StrCat("no room on node ", options_.node, " for ", waits / kSecond, " s");
  }
  return "";
}

std::string Raylet::ReasonOfGroup(const LeaseSpec& spec, bool waits_long) {
  const PlacementGroupId id = spec.strategy.group;
  const auto known = view_.groups.find(id);
  if (known == view_.groups.end() || known->second.state != GroupPlacement::State::kCreated)
    return "";
  std::vector<NodeNumber> nodes = known->second.bundle_nodes;
  if (spec.strategy.bundle != kAnyBundle) {
    if (static_cast<size_t>(spec.strategy.bundle) >= nodes.size())
      return "";  // The queue refuses it.
    nodes = {nodes[static_cast<size_t>(spec.strategy.bundle)]};
  }
  const bool here = std::find(nodes.begin(), nodes.end(), options_.node) != nodes.end();
  const bool elsewhere = std::any_of(nodes.begin(), nodes.end(),
                                     [&](NodeNumber node) { return node != options_.node; });
  if (here && (!waits_long || !elsewhere)) return "";
  groups_.TellPlace(id);
  return here ? "its placement group has no room here"
              : "the bundle of its placement group is on another node";
}

void Raylet::OnKillActor(const proto::KillActor& message) {
  const auto id = ActorId::FromBinary(message.actor_id());
  if (!id.ok()) return;
  const auto it = detached_.find(*id);
  if (it != detached_.end() && it->second.start.incarnation() <= message.incarnation()) {
    EndDetached(it->second, message.reason());
    return;
  }
  proto::ActorStateReport report;
  report.set_actor_id(message.actor_id());
  report.set_incarnation(message.incarnation());
  report.mutable_died()->set_cause(proto::Death::KILLED);
  report.mutable_died()->set_message(message.reason());
  ReportDetachedEnd(std::move(report));
}

void Raylet::ReportDetachedEnd(proto::ActorStateReport report) {
  SendActorState(report);
  const auto known =
      std::find_if(ended_detached_.begin(), ended_detached_.end(),
                   [&](const auto& old) { return old.actor_id() == report.actor_id(); });
  if (known != ended_detached_.end()) {
    if (known->incarnation() >= report.incarnation()) return;
    ended_detached_.erase(known);
  }
  ended_detached_.push_back(std::move(report));
  if (ended_detached_.size() > kEndedDetachedKept) ended_detached_.pop_front();
}

void Raylet::EndDetached(DetachedActor& actor, const std::string& reason) {
  if (actor.ending) return;
  actor.ending = true;
  if (actor.worker.process != 0) {
    pool_.Kill(actor.worker, reason);
    return;
  }
  proto::Death death;
  death.set_cause(proto::Death::KILLED);
  death.set_message(reason);
  RemoveDetached(actor.key, death);
}

void Raylet::OnDetachedPlaced(uint64_t key, LeaseNumber lease, ProcessId worker) {
  DetachedActor* actor = FindDetached(key);
  if (actor == nullptr || actor->ending) {
    pool_.Kill(worker, "its actor is not wanted any more");
    return;
  }
  actor->worker = worker;
  actor->lease = lease;
  SendActorLease(worker);
  // On the lane of kLeaseBegin, which the worker must see first.
  To(worker).Send(Lane::kControl, FrameKind::kPushTask, actor->start.creation());
}

// The GCS has heard of this node: its detached actors may begin calls for a while more. They are
// told a few times in each lease.
void Raylet::OnActorLease(Nanos until, Nanos length) {
  actor_lease_until_ = std::max(actor_lease_until_, until);
  if (actor_lease_until_ - told_lease_until_ < length / 4) return;
  told_lease_until_ = actor_lease_until_;
  for (const auto& [id, actor] : detached_) {
    if (actor.worker.process != 0) SendActorLease(actor.worker);
  }
}

void Raylet::SendActorLease(ProcessId worker) {
  proto::ActorLease lease;
  lease.set_until_ns(actor_lease_until_);
  SendMessage(To(worker), FrameKind::kActorLease, lease);
}

void Raylet::OnDetachedRefused(uint64_t key, ErrorKind error, const std::string& words) {
  DetachedActor* actor = FindDetached(key);
  if (actor == nullptr) return;
  actor->words = words;
  if (error == ErrorKind::kNone) {  // Only a notice: it stays queued.
    ReportDetached(*actor);
    return;
  }
  proto::Death death;
  // A node that drains is as good as gone: the GCS has the actor started elsewhere.
  death.set_cause(error == ErrorKind::kNodeDied ? proto::Death::NODE_DIED
                                                : proto::Death::START_FAILED);
  death.set_message(words);
  RemoveDetached(key, death);
}

void Raylet::OnDetachedWorkerDied(ProcessId worker, const proto::Death& death) {
  for (auto& [id, actor] : detached_) {
    if (actor.worker != worker) continue;
    const bool failed = actor.failure.cause() != proto::Death::UNKNOWN;
    const proto::Death how = failed ? actor.failure : death;
    RemoveDetached(actor.key, how);
    return;
  }
}

absl::Status Raylet::OnActorReport(ProcessId from, const Frame& frame) {
  SHEAF_ASSIGN_OR_RETURN(auto message, ParseFrame<proto::ActorReport>(frame));
  for (auto& [id, actor] : detached_) {
    if (actor.worker != from) continue;
    if (id.ToHex() != message.actor().actor_id()) break;
    if (message.actor().state() == "ALIVE" && !actor.started) {
      actor.started = true;
      ReportDetached(actor);
    } else if (message.actor().state() == "DEAD") {
      actor.failure.set_cause(proto::Death::EXITED);
      actor.failure.set_message(message.actor().death());
      EndDetached(actor, message.actor().death());
    }
    return absl::OkStatus();
  }
  // Of an actor that its creator manages: for listings, in one message with others.
  if (actor_rows_.size() < kMaxQueuedActorRows ||
      actor_rows_.contains(message.actor().actor_id())) {
    actor_rows_[message.actor().actor_id()] = std::move(*message.mutable_actor());
  }
  return absl::OkStatus();
}

void Raylet::ReportDetached(const DetachedActor& actor) {
  SendActorState(ReportOf(actor, processes_));
}

void Raylet::SendActorState(const proto::ActorStateReport& report) {
  proto::GcsRequest request;
  *request.mutable_actor_state_report() = report;
  // How an actor is stands in the next node report, how it ended does not: a GCS whose disk was full
  // then, and that starts anew before it has room, would take the actor for one that never began.
  if (report.has_died()) return gcs_.Insist(std::move(request));
  gcs_.Command(std::move(request), nullptr);
}

void Raylet::RemoveDetached(uint64_t key, const proto::Death& death) {
  for (auto it = detached_.begin(); it != detached_.end(); ++it) {
    if (it->second.key != key) continue;
    const DetachedActor actor = std::move(it->second);
    detached_.erase(it);
    proto::ActorStateReport report;
    report.set_actor_id(actor.start.actor_id());
    report.set_incarnation(actor.start.incarnation());
    *report.mutable_died() = death;
    ReportDetachedEnd(std::move(report));
    proto::LeaseDemand none;  // Takes back what is still queued.
    none.set_key(key);
    *none.mutable_spec() = actor.start.lease();
    queue_.OnDemand(RayletOf(options_.node), none, Now());
    for (const Lease* lease : queue_.Leases()) {  // Granted, and its worker is still to come.
      if (lease->demand.owner != RayletOf(options_.node) || lease->demand.key != key) continue;
      EndLease(lease->number, ErrorKind::kOwnerDied, "its actor is not wanted any more");
      break;
    }
    jobs_.Keep(actor.job, kKeepJobForRestart);
    return;
  }
}

DetachedActor* Raylet::FindDetached(uint64_t key) {
  for (auto& [id, actor] : detached_) {
    if (actor.key == key) return &actor;
  }
  return nullptr;
}

absl::btree_set<ProcessId> Raylet::DetachedWorkersOf(JobNumber job) const {
  absl::btree_set<ProcessId> workers;
  for (const auto& [id, actor] : detached_) {
    if (actor.job == job && actor.worker.process != 0) workers.insert(actor.worker);
  }
  return workers;
}

bool Raylet::HasDetachedActors(JobNumber job) const {
  for (const auto& [id, actor] : detached_) {
    if (actor.job == job) return true;
  }
  return false;
}

}  // namespace sheaf
