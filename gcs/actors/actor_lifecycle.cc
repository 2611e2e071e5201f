// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "gcs/actors/actor_lifecycle.h"

#include <algorithm>
#include <bit>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"

namespace sheaf {
namespace {

// An incarnation that lived no longer counts for the back-off.
constexpr Nanos kQuickDeath = 10 * kSecond;
constexpr Nanos kFirstDelay = 100 * kMillisecond;
constexpr Nanos kLongestDelay = 10 * kSecond;

constexpr std::string_view kNotCurrent = "this incarnation is not the actor's current one";

// How often a raylet may give an actor back before the next one is asked only after a while.
constexpr int kMovesAtOnce = 3;
constexpr Nanos kLookAgain = 200 * kMillisecond;  // For a node, when there was none.

Nanos MoveDelay(int given_back) {
  if (given_back <= kMovesAtOnce) return 0;
  return std::min(kFirstDelay << std::min(given_back - kMovesAtOnce - 1, 10), kLongestDelay);
}

// The first restart is at once; after that a poison actor leaves the node room for others.
Nanos RestartDelay(int quick_deaths) {
  if (quick_deaths <= 1) return 0;
  return std::min(kFirstDelay << std::min(quick_deaths - 2, 10), kLongestDelay);
}

bool MayRestart(const proto::ActorInfo& info) {
  return info.max_restarts() < 0 || info.restarts() < static_cast<uint32_t>(info.max_restarts());
}

}  // namespace

std::string ActorLatch(const ActorId& id) { return "actor/" + id.Binary(); }

void PublishActor(Publisher& publisher, const proto::ActorInfo& info) {
  if (!publisher.HasSubscribers(proto::Subscribe::ACTORS)) return;
  proto::Change change;
  *change.mutable_actor() = info;
  publisher.Publish(proto::Subscribe::ACTORS, "", info.actor_id(), change);
}

ActorLifecycle::ActorLifecycle(const GcsContext& context, const NodeTable& nodes,
                               const JobTable& jobs, ActorPlacement& placement, ActorTable& table,
                               std::function<void(JobNumber)> on_last_detached)
    : context_(context),
      nodes_(nodes),
      jobs_(jobs),
      placement_(placement),
      table_(table),
      on_last_detached_(std::move(on_last_detached)) {}

void ActorLifecycle::Activate() {
  active_ = true;
  const Nanos now = context_.clock.Now();
  std::vector<Happening> lost;
  for (auto& [id, entry] : table_.all()) {
    if (!std::exchange(entry.unaccounted, false)) continue;
    lost.push_back(
        {.id = id, .incarnation = entry.info().incarnation(), .event = ActorEvent::kLost});
    lost.back().death.set_cause(proto::Death::NODE_DIED);
    lost.back().death.set_message("no node knew of it after a restart of the GCS");
    // Until this is on disk the incarnation that is lost must not be ordered.
    entry.next_order = Deadline(now, context_.options.repeat_after);
  }
  for (Happening& one : lost) Happen(nullptr, std::move(one));
}

void ActorLifecycle::Begin(const ActorId& id, ActorEntry& entry) {
  if (active_) Order(id, entry);
}

void ActorLifecycle::End(CallPtr call, const ActorId& id, proto::Death death) {
  Happen(std::move(call), {.id = id, .event = ActorEvent::kKilled, .death = std::move(death)});
}

void ActorLifecycle::Leave(CallPtr call, const ActorId& id) {
  Happen(std::move(call), {.id = id, .event = ActorEvent::kLeaves});
}

void ActorLifecycle::Restart(const ActorId& id, std::string_view reason) {
  const proto::ActorInfo& info = table_.Find(id)->info();
  if (info.state() != proto::ActorInfo::ALIVE) return;
  SendKill(ProcessId::Unpack(info.process()).node, id, info.incarnation(), reason);
}

void ActorLifecycle::OnReport(CallPtr call, NodeNumber node,
                              const proto::ActorStateReport& report) {
  const absl::StatusOr<ActorId> id = ActorId::FromBinary(report.actor_id());
  ActorEntry* entry = id.ok() ? table_.Find(*id) : nullptr;
  const bool died = report.state_case() == proto::ActorStateReport::kDied;
  if (entry != nullptr && died) {
    const auto ending = entry->ending.find(node);
    if (ending != entry->ending.end() && ending->second <= report.incarnation())
      entry->ending.erase(ending);
  }
  // An incarnation is on disk before its order leaves. So a later one comes from before the
  // database was brought back from a backup. If it lives, it is taken over. If it has ended, no
  // raylet that knows of it would begin an earlier one, and who has called it would not hear one:
  // the next is later still. One that a raylet has reported as living in this term stays.
  const bool is_known_alive =
      entry != nullptr && !entry->unaccounted && entry->info().state() == proto::ActorInfo::ALIVE;
  const bool is_later = entry != nullptr && (report.has_started() || (died && !is_known_alive)) &&
                        report.incarnation() > entry->info().incarnation();
  if (entry == nullptr || !entry->is_alive() || !entry->info().detached() ||
      (report.incarnation() != entry->info().incarnation() && !is_later)) {
    if (id.ok()) EndStale(*id, entry, node, report);
    if (call) context_.pipeline.Answer(call, {});
    return;
  }
  entry->unaccounted = false;
  if (died) {
    placement_.OnGone(id->Binary(), node);
  } else {
    placement_.OnReported(id->Binary(), node);
  }
  if (is_later && died) {
    entry->next_order = Deadline(context_.clock.Now(), context_.options.repeat_after);
    // The node that was asked for the earlier one may have begun it: it begins the next when that
    // is gone.
    return Happen(std::move(call), {.id = *id,
                                    .incarnation = report.incarnation(),
                                    .event = ActorEvent::kLost,
                                    .stays = entry->asked != node,
                                    .death = report.died()});
  }
  OnCurrentReport(std::move(call), *id, *entry, node, report);
}

// The report is of an incarnation that is not, or no more, the actor's.
void ActorLifecycle::EndStale(const ActorId& id, ActorEntry* entry, NodeNumber node,
                              const proto::ActorStateReport& report) {
  if (entry == nullptr || !entry->is_alive() || entry->asked != node)
    placement_.OnGone(id.Binary(), node);
  if (report.state_case() == proto::ActorStateReport::kDied) return;
  if (entry != nullptr) {
    EndIncarnation(node, id, *entry, report.incarnation());
  } else {
    SendKill(node, id, report.incarnation(), kNotCurrent);
  }
}

void ActorLifecycle::OnCurrentReport(CallPtr call, const ActorId& id, ActorEntry& entry,
                                     NodeNumber node, const proto::ActorStateReport& report) {
  // Until this is on disk the actor counts as pending: it must not be ordered from another node.
  entry.asked = node;
  entry.next_order = Deadline(context_.clock.Now(), context_.options.repeat_after);
  Happening what{.id = id, .incarnation = report.incarnation(), .event = ActorEvent::kStarted};
  switch (report.state_case()) {
    case proto::ActorStateReport::kStarted:
      what.started = report.started();
      return Happen(std::move(call), std::move(what));
    case proto::ActorStateReport::kDied:
      // Of a raylet that lives: it was to start there, and the node has no room or takes no work.
      what.event =
          report.died().cause() == proto::Death::NODE_DIED ? ActorEvent::kLost : ActorEvent::kDied;
      if (what.event == ActorEvent::kLost) {
        entry.avoid = node;
        ++entry.given_back;
      } else if (report.died().cause() == proto::Death::START_FAILED &&
                 placement_.OnlyRayletKnowsGroup(entry.record.lease())) {
        what.event = ActorEvent::kKilled;  // Its group is gone, for good.
      } else if (report.died().cause() == proto::Death::START_FAILED) {
        entry.avoid = node;  // Another may have the code or the environment that it lacks.
      }
      what.death = report.died();
      return Happen(std::move(call), std::move(what));
    case proto::ActorStateReport::kPending:
    case proto::ActorStateReport::STATE_NOT_SET:
      Accept(node, id, report.pending());
      if (call) context_.pipeline.Answer(call, {});
      return;
  }
}

// Soft: after a restart of the GCS the raylet says it again.
void ActorLifecycle::Accept(NodeNumber node, const ActorId& id, const std::string& pending) {
  ActorEntry& entry = *table_.Find(id);
  const std::optional<ActorStep> step =
      Next(entry.info().state(), ActorEvent::kAccepted, MayRestart(entry.info()));
  if (!step) return;
  entry.asked = node;
  entry.next_order = Deadline(context_.clock.Now(), 5 * context_.options.repeat_after);
  proto::ActorInfo* info = entry.record.mutable_info();
  const bool changed = info->state() != step->next || info->words() != pending;
  info->set_state(step->next);
  info->set_words(pending);
  if (changed) PublishActor(context_.publisher, *info);
}

void ActorLifecycle::Happen(CallPtr call, Happening what) {
  const bool is_wish = call != nullptr && what.event == ActorEvent::kKilled;
  const std::string latch = ActorLatch(what.id);
  context_.pipeline.Run(
      std::move(call), {latch}, [this, what] { return Plan(what); },
      [this, what, is_wish] {
        if (!is_wish) unrecorded_.push_back(what);  // A fact stays one; who wishes asks again.
      });
}

Outcome ActorLifecycle::Plan(const Happening& what) {
  const ActorEntry* entry = table_.Find(what.id);
  if (entry == nullptr) return {};
  const proto::ActorInfo& now = entry->info();
  const bool is_later = what.incarnation > now.incarnation();
  if (what.incarnation != 0 && what.incarnation != now.incarnation() && !is_later) return {};
  const bool takes_over =
      is_later && what.event == ActorEvent::kStarted && now.state() != proto::ActorInfo::DEAD;
  const std::optional<ActorStep> step =
      Next(takes_over ? proto::ActorInfo::RESTARTING : now.state(), what.event, MayRestart(now));
  if (!step) return {};
  proto::ActorRecord record = entry->record;
  proto::ActorInfo* info = record.mutable_info();
  info->set_state(step->next);
  info->clear_words();
  if (step->action == ActorAction::kFinal) {
    info->set_max_restarts(0);
  } else if (step->action == ActorAction::kRecord) {
    info->set_incarnation(what.incarnation);
    info->set_process(what.started.process());
    info->set_os_pid(what.started.os_pid());
    info->set_lease(what.started.lease());
  } else {
    info->clear_process();
    info->clear_os_pid();
    info->clear_lease();
    *info->mutable_death() = what.death;
  }
  if (step->action == ActorAction::kGrant) {
    info->set_incarnation(std::max(now.incarnation(), what.incarnation) + 1);
    info->set_restarts(now.restarts() + (step->costs_restart ? 1 : 0));
  }
  if (step->action == ActorAction::kSetDead) {
    record.clear_creation();
    record.clear_lease();
  }
  Outcome outcome;
  outcome.writes = {{Table::kActors, what.id.Binary(), record.SerializeAsString()}};
  outcome.apply = [this, what, step = *step, record = std::move(record)] {
    Apply(what, step, record);
  };
  return outcome;
}

void ActorLifecycle::Apply(const Happening& what, const ActorStep& step,
                           proto::ActorRecord record) {
  const Nanos now = context_.clock.Now();
  const ActorEntry* before = table_.Find(what.id);
  if (before == nullptr) return;
  const uint32_t old_incarnation = before->info().incarnation();
  const NodeNumber host = before->info().state() == proto::ActorInfo::ALIVE
                              ? ProcessId::Unpack(before->info().process()).node
                              : before->asked;
  ActorEntry& entry = table_.Put(what.id, std::move(record));
  entry.unaccounted = false;
  switch (step.action) {
    case ActorAction::kRecord:
      entry.alive_since = now;
      entry.avoid = 0;
      entry.given_back = 0;
      entry.next_order = kForever;
      break;
    case ActorAction::kGrant: {
      if (step.costs_restart) ++restarts_;
      if (what.event == ActorEvent::kLost) EndIncarnation(host, what.id, entry, old_incarnation);
      const bool quick = entry.alive_since == 0 || now - entry.alive_since < kQuickDeath;
      if (what.event == ActorEvent::kDied) entry.quick_deaths = quick ? entry.quick_deaths + 1 : 0;
      entry.alive_since = 0;
      if (!what.stays) entry.asked = 0;
      const Nanos delay = what.event == ActorEvent::kDied ? RestartDelay(entry.quick_deaths)
                                                          : MoveDelay(entry.given_back);
      entry.next_order = now + delay;
      if (what.event == ActorEvent::kDied && quick) TellDelay(what, entry, host, delay);
      break;
    }
    case ActorAction::kSetDead:
      entry.next_order = kForever;
      if (what.event != ActorEvent::kDied) EndIncarnation(host, what.id, entry, old_incarnation);
      break;
    case ActorAction::kFinal:
    case ActorAction::kTell:
      break;
  }
  PublishActor(context_.publisher, entry.info());
  if (step.action == ActorAction::kGrant && active_ && entry.next_order <= now)
    Order(what.id, entry);
  const JobNumber job = entry.info().job();
  if (step.action == ActorAction::kSetDead && !table_.HasDetachedOf(job)) on_last_detached_(job);
}

// Each failed start is not an event, or an actor that never starts would push out all others.
void ActorLifecycle::TellDelay(const Happening& what, ActorEntry& entry, NodeNumber host,
                               Nanos delay) {
  proto::ActorInfo* info = entry.record.mutable_info();
  const auto deaths = static_cast<unsigned>(entry.quick_deaths);
  const std::string seconds = absl::StrCat(delay / kMillisecond, " ms");
  if (delay > 0) {
    info->set_words(absl::StrCat("its next start, ", seconds, " after the last, as it ended ",
                                 deaths, " times in a row within ", kQuickDeath / kSecond,
                                 " s: ", what.death.message()));
  }
  if (what.death.cause() != proto::Death::START_FAILED || !std::has_single_bit(deaths)) return;
  context_.events.Add(
      proto::EventRow::ACTOR_DIED, proto::EventRow::WARNING,
      absl::StrCat("actor ", info->class_name(), " did not start on node ", host, ", ", deaths,
                   " times in a row; again in ", seconds, ": ", what.death.message()),
      {.node = host, .job = info->job(), .id = what.id.ToHex()});
}

void ActorLifecycle::OnNodeDead(NodeNumber node, const proto::Death& death) {
  placement_.OnNodeDead(node);
  for (const ActorId& id : table_.DetachedOn(node)) {
    const uint32_t incarnation = table_.Find(id)->info().incarnation();
    Happen(nullptr,
           {.id = id, .incarnation = incarnation, .event = ActorEvent::kLost, .death = death});
  }
}

void ActorLifecycle::Tick() {
  for (Happening& what : std::exchange(unrecorded_, {})) {
    // Nor is an incarnation that has ended ordered again before that is on disk.
    ActorEntry* entry = table_.Find(what.id);
    if (entry != nullptr && entry->info().incarnation() == what.incarnation)
      entry->next_order = Deadline(context_.clock.Now(), context_.options.repeat_after);
    Happen(nullptr, std::move(what));
  }
  if (!active_) return;
  const Nanos now = context_.clock.Now();
  // A copy: an actor that can never start ends as it is looked at.
  const std::vector<ActorId> starting(table_.Starting().begin(), table_.Starting().end());
  for (const ActorId& id : starting) {
    ActorEntry* entry = table_.Find(id);
    if (entry != nullptr && entry->next_order <= now) Order(id, *entry);
  }
  for (auto at = ending_.begin(); at != ending_.end();) {
    const ActorId id = *at;
    ActorEntry* entry = table_.Find(id);
    if (entry == nullptr || entry->ending.empty()) {
      at = ending_.erase(at);
      continue;
    }
    ++at;
    if (entry->next_kill > now) continue;
    for (const auto& [node, incarnation] : std::exchange(entry->ending, {}))
      EndIncarnation(node, id, *entry, incarnation);
  }
}

// Again and again, until the raylet of `node` says that it is gone.
void ActorLifecycle::EndIncarnation(NodeNumber node, const ActorId& id, ActorEntry& entry,
                                    uint32_t incarnation) {
  if (!nodes_.IsMember(node)) return;  // It took the actor with it.
  uint32_t& last = entry.ending[node];
  last = std::max(last, incarnation);
  ending_.insert(id);
  entry.next_kill = Deadline(context_.clock.Now(), context_.options.repeat_after);
  SendKill(node, id, last, entry.is_alive() ? kNotCurrent : entry.info().death().message());
}

void ActorLifecycle::Order(const ActorId& id, ActorEntry& entry) {
  const Nanos now = context_.clock.Now();
  entry.next_order = Deadline(now, context_.options.repeat_after);
  // One incarnation is only ever ordered from one node; that node's death makes it another.
  if (entry.asked == 0 && !FindNode(id, entry)) return;
  const proto::ActorInfo& info = entry.info();
  proto::GcsEvent event;
  event.set_client(RayletOf(entry.asked).packed());
  proto::StartActor* start = event.mutable_start_actor();
  start->set_actor_id(info.actor_id());
  start->set_incarnation(info.incarnation());
  *start->mutable_lease() = entry.record.lease();
  start->set_creation(entry.record.creation());
  start->set_restarts(info.restarts());
  start->set_name(info.name());
  start->set_class_name(info.class_name());
  if (const proto::JobInfo* job = jobs_.Find(info.job())) {
    *start->mutable_job() = *job;
    start->set_driver_is_gone(!nodes_.IsMember(ProcessId::Unpack(job->driver()).node));
  }
  SendMessage(context_.transport.To(RayletOf(entry.asked)), FrameKind::kGcsEvent, event);
}

bool ActorLifecycle::FindNode(const ActorId& id, ActorEntry& entry) {
  proto::LeaseSpec lease = entry.record.lease();
  // The policy's favourites may all lack what it needs: the nodes have their turns.
  if (entry.info().death().cause() == proto::Death::START_FAILED &&
      lease.strategy().kind() == proto::Strategy::HYBRID)
    lease.mutable_strategy()->set_kind(proto::Strategy::SPREAD);
  const ActorPlacement::Choice choice =
      placement_.Choose(lease, id.maker().node, std::exchange(entry.avoid, 0));
  entry.infeasible = choice.infeasible;
  if (choice.node != 0) {
    entry.asked = choice.node;
    placement_.OnOrdered(id.Binary(), entry.record.lease(), choice.node);
    return true;
  }
  if (choice.never) {
    proto::Death death;
    death.set_cause(proto::Death::START_FAILED);
    death.set_message(choice.reason);
    Happen(nullptr, {.id = id,
                     .incarnation = entry.info().incarnation(),
                     .event = ActorEvent::kKilled,
                     .death = std::move(death)});
    return false;
  }
  entry.next_order = Deadline(context_.clock.Now(), kLookAgain);
  if (entry.info().words() != choice.reason) {
    entry.record.mutable_info()->set_words(choice.reason);
    PublishActor(context_.publisher, entry.info());
  }
  return false;
}

void ActorLifecycle::SendKill(NodeNumber node, const ActorId& id, uint32_t incarnation,
                              std::string_view reason) {
  if (node == 0) return;
  proto::GcsEvent event;
  event.set_client(RayletOf(node).packed());
  event.mutable_kill_actor()->set_actor_id(id.Binary());
  event.mutable_kill_actor()->set_incarnation(incarnation);
  event.mutable_kill_actor()->set_reason(std::string(reason));
  SendMessage(context_.transport.To(RayletOf(node)), FrameKind::kGcsEvent, event);
}

}  // namespace sheaf
