// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "gcs/actor_service.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gcs/reply.h"

namespace sheaf {
namespace {

constexpr size_t kMaxReplyBytes = 48 << 20;  // A frame has at most 64 MiB.
constexpr size_t kMaxCreationBytes = 16 << 20;
// An incarnation that lived no longer counts for the back-off.
constexpr Nanos kQuickDeath = 10 * kSecond;
constexpr Nanos kFirstDelay = 100 * kMillisecond;
constexpr Nanos kLongestDelay = 10 * kSecond;

constexpr std::string_view kNotCurrent = "this incarnation is not the actor's current one";

std::string ActorLatch(const ActorId& id) { return "actor/" + id.Binary(); }
std::string NameLatch(const std::string& name_space, const std::string& name) {
  return absl::StrCat("name/", name_space.size(), "/", name_space, "/", name);
}

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

ActorService::ActorService(const GcsContext& context, const NodeTable& nodes, const JobTable& jobs,
                           ActorPlacement& placement,
                           std::function<void(JobNumber)> on_last_detached)
    : context_(context),
      nodes_(nodes),
      jobs_(jobs),
      placement_(placement),
      on_last_detached_(std::move(on_last_detached)) {}

void ActorService::Load(std::string_view key, std::string_view value) {
  const absl::StatusOr<ActorId> id = ActorId::FromBinary(key);
  proto::ActorRecord record;
  if (!id.ok() || !record.ParseFromArray(value.data(), static_cast<int>(value.size()))) return;
  ActorEntry& entry = table_.Put(*id, std::move(record));
  entry.unaccounted = entry.is_alive() && entry.info().detached();
}

void ActorService::Activate() {
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
  std::set<NodeNumber> dead;
  for (const auto& [id, entry] : table_.all()) {
    if (entry.is_alive() && !entry.info().detached() && !nodes_.IsMember(id.maker().node))
      dead.insert(id.maker().node);
  }
  for (const NodeNumber node : dead) OnNodeDead(node);
  Tick();
}

std::set<ProcessId> ActorService::CreatorsOn(NodeNumber node) const {
  std::set<ProcessId> creators;
  for (const ActorId& id : table_.NamedOfNode(node)) creators.insert(id.maker());
  return creators;
}

void ActorService::Register(CallPtr call, const proto::RegisterActor& request) {
  const absl::StatusOr<ActorId> id = ActorId::FromBinary(request.actor_id());
  std::string wrong;
  if (!id.ok() || id->is_nil()) {
    wrong = "an actor id has 16 bytes, not all of them 0";
  } else if (request.name().size() > kMaxNameBytes || request.name_space().size() > kMaxNameBytes) {
    wrong = absl::StrCat("a name or name space of more than ", kMaxNameBytes, " bytes");
  } else if (!request.detached() && request.name().empty()) {
    wrong = "an actor without a name is managed by its creator alone";
  } else if (!request.detached() && id->maker() != call->client) {
    wrong = absl::StrCat("actor ", id->ToHex(), " was not made by ", call->client.ToString());
  } else if (request.detached() && jobs_.Find(request.job()) == nullptr) {
    wrong = absl::StrCat("no job ", request.job());
  } else if (const auto lease = ParseLeaseSpec(request.lease()); !lease.ok()) {
    wrong = std::string(lease.status().message());
  } else if (request.creation().size() + request.handle().size() > kMaxCreationBytes) {
    wrong = "creation arguments of more than 16 MiB; put them into the object store";
  }
  if (!wrong.empty()) {
    return context_.pipeline.Answer(call,
                                    ErrorReply(ErrorKind::kInvalidArgument, std::move(wrong)));
  }
  std::vector<std::string> latches = {ActorLatch(*id)};
  if (!request.name().empty()) latches.push_back(NameLatch(request.name_space(), request.name()));
  const auto registered = [this, job = request.job(), detached = request.detached()] {
    const auto at = registering_.find(job);
    if (detached && at != registering_.end()) registering_.erase(at);
  };
  context_.pipeline.Run(
      std::move(call), std::move(latches),
      [this, id = *id, request, registered]() -> Outcome {
        Outcome outcome;
        if (const ActorEntry* known = table_.Find(id)) {
          *outcome.reply.mutable_actor() = known->info();
          return outcome;
        }
        if (const ActorEntry* holder = table_.FindByName(request.name_space(), request.name())) {
          if (!request.get_if_exists()) {
            outcome.reply = ErrorReply(
                ErrorKind::kActorNameTaken,
                absl::StrCat("the name '", request.name(), "' is already taken in name space '",
                             request.name_space(), "'; choose another or get_if_exists"));
          }
          *outcome.reply.mutable_actor() = holder->info();
          return outcome;
        }
        const proto::JobInfo* job = jobs_.Find(request.job());
        if (request.detached()) {  // Its code goes with its job, or with the last such actor.
          const bool runs = job != nullptr && job->state() == proto::JobInfo::RUNNING;
          if (!runs && !KeepsJob(request.job())) {
            outcome.reply = ErrorReply(ErrorKind::kInvalidArgument,
                                       absl::StrCat("job ", request.job(), " is over"));
            return outcome;
          }
          registering_.insert(request.job());
        }
        proto::ActorRecord record;
        proto::ActorInfo* info = record.mutable_info();
        info->set_actor_id(request.actor_id());
        info->set_name(request.name());
        info->set_name_space(request.name_space());
        info->set_job(request.job());
        info->set_class_name(request.class_name());
        info->set_detached(request.detached());
        info->set_max_restarts(request.max_restarts());
        info->set_handle(request.handle());
        if (request.detached()) {
          info->set_incarnation(1);
          record.set_creation(request.creation());
          *record.mutable_lease() = request.lease();
        }
        *outcome.reply.mutable_actor() = *info;
        outcome.writes = {{Table::kActors, request.actor_id(), record.SerializeAsString()}};
        outcome.apply = [this, id, record, registered] {
          registered();
          ActorEntry& entry = table_.Put(id, record);
          Publish(entry.info());
          if (entry.info().detached() && active_) Order(id, entry);
        };
        return outcome;
      },
      registered);
}

void ActorService::Lookup(const CallPtr& call, const proto::LookupActor& request) const {
  const ActorEntry* entry = nullptr;
  if (request.actor_id().empty()) {
    entry = table_.FindByName(request.name_space(), request.name());
  } else if (const absl::StatusOr<ActorId> id = ActorId::FromBinary(request.actor_id()); id.ok()) {
    entry = table_.Find(*id);
  }
  proto::GcsReply reply;
  if (entry == nullptr) {
    reply = ErrorReply(ErrorKind::kNotFound,
                       request.actor_id().empty()
                           ? absl::StrCat("no actor is named '", request.name(),
                                          "' in name space '", request.name_space(), "'")
                           : "no named or detached actor has this id");
  } else {
    *reply.mutable_actor() = entry->info();
  }
  context_.pipeline.Answer(call, std::move(reply));
}

void ActorService::List(const CallPtr& call, const proto::ListActors& request) const {
  proto::GcsReply reply;
  proto::ActorList* list = reply.mutable_actors();
  const auto wanted = [&](const std::string& name_space) {
    return request.all_name_spaces() || name_space == request.name_space();
  };
  for (const auto& [id, entry] : table_.all()) {
    const bool shown =
        request.named_only() ? entry.is_alive() && !entry.info().name().empty() : true;
    if (!shown || !wanted(entry.info().name_space())) continue;
    *list->add_actors() = RowOf(entry.info());
    // Its creator knows better how it is.
    const auto row = table_.rows().find(id);
    if (!entry.info().detached() && entry.is_alive() && row != table_.rows().end()) {
      *list->mutable_actors(list->actors_size() - 1) = row->second;
    }
  }
  for (const auto& [id, row] : table_.rows()) {
    if (!request.named_only() && wanted(row.name_space()) && table_.Find(id) == nullptr)
      *list->add_actors() = row;
  }
  context_.pipeline.Answer(call, std::move(reply));
}

void ActorService::End(CallPtr call, const proto::EndActor& request) {
  const absl::StatusOr<ActorId> id = ActorId::FromBinary(request.actor_id());
  if (!id.ok() || table_.Find(*id) != nullptr) return EndKnown(std::move(call), request);
  // Its registration may be on its way to the disk: behind that it is known.
  context_.pipeline.Run(nullptr, {ActorLatch(*id)}, [this, call, request]() -> Outcome {
    Outcome outcome;
    outcome.apply = [this, call, request] { EndKnown(call, request); };
    return outcome;
  });
}

void ActorService::EndKnown(CallPtr call, const proto::EndActor& request) {
  const absl::StatusOr<ActorId> id = ActorId::FromBinary(request.actor_id());
  const ActorEntry* entry = id.ok() ? table_.Find(*id) : nullptr;
  if (entry == nullptr) {
    return context_.pipeline.Answer(
        call, ErrorReply(ErrorKind::kNotFound, "no named or detached actor has this id"));
  }
  proto::Death death = request.death();
  if (death.cause() == proto::Death::UNKNOWN) {
    death.set_cause(proto::Death::KILLED);
    if (death.message().empty())
      death.set_message(absl::StrCat("killed by ", call->client.ToString()));
  }
  if (!entry->info().detached()) {
    if (id->maker() != call->client && id->maker().node != call->from.node) {
      return context_.pipeline.Answer(
          call, ErrorReply(ErrorKind::kInvalidArgument,
                           "this actor is ended by its creator, " + id->maker().ToString()));
    }
    return EndNamed(std::move(call), *id, std::move(death));
  }
  if (request.restart()) {
    const proto::ActorInfo& info = entry->info();
    if (info.state() == proto::ActorInfo::ALIVE) {
      SendKill(ProcessId::Unpack(info.process()).node, *id, info.incarnation(), death.message());
    }
    return context_.pipeline.Answer(call, {});
  }
  Happen(std::move(call), {.id = *id, .event = ActorEvent::kKilled, .death = std::move(death)});
}

void ActorService::OnReport(CallPtr call, NodeNumber node, const proto::ActorStateReport& report) {
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
    if (id.ok() && (entry == nullptr || !entry->is_alive() || entry->asked != node))
      placement_.OnGone(*id, node);
    if (entry != nullptr && !died) {
      EndIncarnation(node, *id, *entry, report.incarnation());
    } else if (id.ok() && !died) {
      SendKill(node, *id, report.incarnation(), kNotCurrent);
    }
    if (call) context_.pipeline.Answer(call, {});
    return;
  }
  entry->unaccounted = false;
  if (died) {
    placement_.OnGone(*id, node);
  } else {
    placement_.OnReported(*id, node);
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
  // Until this is on disk the actor counts as pending: it must not be ordered from another node.
  entry->asked = node;
  entry->next_order = Deadline(context_.clock.Now(), context_.options.repeat_after);
  Happening what{.id = *id, .incarnation = report.incarnation(), .event = ActorEvent::kStarted};
  switch (report.state_case()) {
    case proto::ActorStateReport::kStarted:
      what.started = report.started();
      return Happen(std::move(call), std::move(what));
    case proto::ActorStateReport::kDied:
      // Of a raylet that lives: it was to start there, and the node has no room or takes no work.
      what.event =
          report.died().cause() == proto::Death::NODE_DIED ? ActorEvent::kLost : ActorEvent::kDied;
      if (what.event == ActorEvent::kLost) {
        entry->avoid = node;
        ++entry->given_back;
      } else if (report.died().cause() == proto::Death::START_FAILED &&
                 placement_.OnlyRayletKnowsGroup(entry->record.lease())) {
        what.event = ActorEvent::kKilled;  // Its group is gone, for good.
      }
      what.death = report.died();
      return Happen(std::move(call), std::move(what));
    case proto::ActorStateReport::kPending:
    case proto::ActorStateReport::STATE_NOT_SET:
      Accept(node, *id, report.pending());
      if (call) context_.pipeline.Answer(call, {});
      return;
  }
}

// Soft: after a restart of the GCS the raylet says it again.
void ActorService::Accept(NodeNumber node, const ActorId& id, const std::string& pending) {
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
  if (changed) Publish(*info);
}

void ActorService::Happen(CallPtr call, Happening what) {
  const bool is_wish = call != nullptr && what.event == ActorEvent::kKilled;
  const std::string latch = ActorLatch(what.id);
  context_.pipeline.Run(
      std::move(call), {latch}, [this, what] { return Plan(what); },
      [this, what, is_wish] {
        if (!is_wish) unrecorded_.push_back(what);  // A fact stays one; who wishes asks again.
      });
}

Outcome ActorService::Plan(const Happening& what) {
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
  if (step->action == ActorAction::kRecord) {
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

void ActorService::Apply(const Happening& what, const ActorStep& step, proto::ActorRecord record) {
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
      entry.next_order = now + (what.event == ActorEvent::kDied ? RestartDelay(entry.quick_deaths)
                                                                : MoveDelay(entry.given_back));
      break;
    }
    case ActorAction::kSetDead:
      entry.next_order = kForever;
      if (what.event != ActorEvent::kDied) EndIncarnation(host, what.id, entry, old_incarnation);
      break;
    case ActorAction::kTell:
      break;
  }
  Publish(entry.info());
  if (step.action == ActorAction::kGrant && active_ && entry.next_order <= now)
    Order(what.id, entry);
  const JobNumber job = entry.info().job();
  if (step.action == ActorAction::kSetDead && !table_.HasDetachedOf(job)) on_last_detached_(job);
}

void ActorService::EndNamed(CallPtr call, const ActorId& id, proto::Death death) {
  const bool asked = call != nullptr;
  context_.pipeline.Run(
      std::move(call), {ActorLatch(id)},
      [this, id, death]() -> Outcome {
        const ActorEntry* entry = table_.Find(id);
        if (entry == nullptr || !entry->is_alive() || entry->info().detached()) return {};
        Outcome outcome;
        outcome.writes = {{Table::kActors, id.Binary(), std::nullopt}};
        outcome.apply = [this, id, death] {
          proto::ActorRecord record = table_.Find(id)->record;
          record.mutable_info()->set_state(proto::ActorInfo::DEAD);
          *record.mutable_info()->mutable_death() = death;
          Publish(table_.Put(id, std::move(record)).info());
        };
        return outcome;
      },
      [this, id, death, asked] {
        if (!asked) unended_.emplace_back(id, death);
      });
}

void ActorService::OnRows(NodeNumber node,
                          const google::protobuf::RepeatedPtrField<proto::ActorRow>& rows) {
  for (const proto::ActorRow& row : rows) {
    const absl::StatusOr<ActorId> id = ActorId::FromHex(row.actor_id());
    if (!id.ok() || id->maker().node != node) continue;
    if (ActorEntry* entry = table_.Find(*id); entry != nullptr && entry->is_alive()) {
      if (entry->info().detached()) continue;
      if (row.state() == "DEAD") {
        proto::Death death;
        death.set_message(row.death());
        EndNamed(nullptr, *id, std::move(death));
      }
    }
    // The bound is on what listings remember; what a row says of a known actor always counts.
    if (table_.rows().size() < kMaxRows || table_.rows().contains(*id))
      table_.PutRow(*id, row, context_.options.max_remembered);
  }
}

void ActorService::OnNodeDead(NodeNumber node) {
  proto::Death death;
  death.set_cause(proto::Death::NODE_DIED);
  death.set_message(absl::StrCat("node ", node, " died"));
  placement_.OnNodeDead(node);
  for (const ActorId& id : table_.DetachedOn(node)) {
    const uint32_t incarnation = table_.Find(id)->info().incarnation();
    Happen(nullptr,
           {.id = id, .incarnation = incarnation, .event = ActorEvent::kLost, .death = death});
  }
  for (const ActorId& id : table_.NamedOfNode(node)) EndNamed(nullptr, id, death);
  table_.EraseRowsOfNode(node);
}

void ActorService::OnProcessGone(ProcessId process) {
  proto::Death death;
  death.set_message(absl::StrCat("its creator, ", process.ToString(), ", ended"));
  for (const ActorId& id : table_.NamedOf(process)) EndNamed(nullptr, id, death);
  table_.EraseRowsOf(process);
}

void ActorService::OnJobEnded(JobNumber job) {
  proto::Death death;
  death.set_cause(proto::Death::KILLED);
  death.set_message(absl::StrCat("job ", job, " ended"));
  std::vector<ActorId> ended;
  for (const auto& [id, entry] : table_.all()) {
    if (entry.is_alive() && !entry.info().detached() && entry.info().job() == job)
      ended.push_back(id);
  }
  for (const ActorId& id : ended) EndNamed(nullptr, id, death);
}

bool ActorService::AddSnapshot(std::string_view key, proto::Snapshot* snapshot) const {
  if (!key.empty()) {
    const absl::StatusOr<ActorId> id = ActorId::FromBinary(key);
    if (!id.ok()) return false;
    if (const ActorEntry* entry = table_.Find(*id))
      *snapshot->add_items()->mutable_actor() = entry->info();
    return true;
  }
  size_t bytes = 0;
  for (const auto& [id, entry] : table_.all()) {
    bytes += entry.info().ByteSizeLong();
    if (bytes > kMaxReplyBytes) return false;
    *snapshot->add_items()->mutable_actor() = entry.info();
  }
  return true;
}

void ActorService::Tick() {
  for (Happening& what : std::exchange(unrecorded_, {})) {
    // Nor is an incarnation that has ended ordered again before that is on disk.
    ActorEntry* entry = table_.Find(what.id);
    if (entry != nullptr && entry->info().incarnation() == what.incarnation)
      entry->next_order = Deadline(context_.clock.Now(), context_.options.repeat_after);
    Happen(nullptr, std::move(what));
  }
  for (auto& [id, death] : std::exchange(unended_, {})) EndNamed(nullptr, id, std::move(death));
  Trim();
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
void ActorService::EndIncarnation(NodeNumber node, const ActorId& id, ActorEntry& entry,
                                  uint32_t incarnation) {
  if (!nodes_.IsMember(node)) return;  // It took the actor with it.
  uint32_t& last = entry.ending[node];
  last = std::max(last, incarnation);
  ending_.insert(id);
  entry.next_kill = Deadline(context_.clock.Now(), context_.options.repeat_after);
  SendKill(node, id, last, entry.is_alive() ? kNotCurrent : entry.info().death().message());
}

void ActorService::Trim() {
  if (table_.Surplus(context_.options.max_remembered).empty()) return;
  context_.pipeline.Run(nullptr, {"actors/trim"}, [this]() -> Outcome {
    Outcome outcome;
    std::vector<ActorId> surplus = table_.Surplus(context_.options.max_remembered);
    for (const ActorId& id : surplus)
      outcome.writes.push_back({Table::kActors, id.Binary(), std::nullopt});
    outcome.apply = [this, surplus = std::move(surplus)] {
      for (const ActorId& id : surplus) table_.Erase(id);
    };
    return outcome;
  });
}

void ActorService::Order(const ActorId& id, ActorEntry& entry) {
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

bool ActorService::FindNode(const ActorId& id, ActorEntry& entry) {
  const ActorPlacement::Choice choice =
      placement_.Choose(entry.record.lease(), id.maker().node, std::exchange(entry.avoid, 0));
  if (choice.node != 0) {
    entry.asked = choice.node;
    placement_.OnOrdered(id, entry.record.lease(), choice.node);
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
    Publish(entry.info());
  }
  return false;
}

void ActorService::SendKill(NodeNumber node, const ActorId& id, uint32_t incarnation,
                            std::string_view reason) {
  if (node == 0) return;
  proto::GcsEvent event;
  event.set_client(RayletOf(node).packed());
  event.mutable_kill_actor()->set_actor_id(id.Binary());
  event.mutable_kill_actor()->set_incarnation(incarnation);
  event.mutable_kill_actor()->set_reason(std::string(reason));
  SendMessage(context_.transport.To(RayletOf(node)), FrameKind::kGcsEvent, event);
}

void ActorService::Publish(const proto::ActorInfo& info) {
  if (!context_.publisher.HasSubscribers(proto::Subscribe::ACTORS)) return;
  proto::Change change;
  *change.mutable_actor() = info;
  context_.publisher.Publish(proto::Subscribe::ACTORS, "", info.actor_id(), change);
}

}  // namespace sheaf
