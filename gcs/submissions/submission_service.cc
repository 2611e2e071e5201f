// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "gcs/submissions/submission_service.h"

#include <algorithm>
#include <memory>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gcs/reply.h"
#include "gcs/submissions/entrypoint_check.h"

namespace sheaf {
namespace {

using S = proto::Submission;

constexpr Nanos kLookAgain = kSecond;  // For a node with room.
constexpr size_t kMostOrders = 256;    // Of one Tick: choosing a node looks at all of them.

}  // namespace

std::string SubmissionService::LatchOf(const std::string& id) {
  return absl::StrCat("submission/", id);
}

proto::GcsReply SubmissionService::NoSuchSubmission(const std::string& id) {
  return ErrorReply(ErrorKind::kNotFound, absl::StrCat("Job ", id, " does not exist"));
}

SubmissionService::SubmissionService(const GcsContext& context, const NodeTable& nodes,
                                     ActorPlacement& placement)
    : context_(context), nodes_(nodes), placement_(placement) {}

void SubmissionService::Load(std::string_view value) {
  S info;
  if (!info.ParseFromArray(value.data(), static_cast<int>(value.size()))) return;
  last_number_ = std::max<uint64_t>(last_number_, info.number());
  last_attempt_ = std::max(last_attempt_, info.attempt());
  if (info.deleted_unix_ms() != 0) return deleted_.Put(std::move(info));
  SubmissionEntry& entry = table_.Put(std::move(info));
  // How long it has waited before the restart nobody knows on this clock.
  entry.give_up_at = Deadline(context_.clock.Now(), entry.info.start_timeout_ns());
}

void SubmissionService::Activate() {
  active_ = true;
  for (const std::string& id : table_.living()) {
    SubmissionEntry& entry = *table_.Find(id);
    const S& info = entry.info;
    entry.next_order = 0;
    if (info.state() == S::PENDING || nodes_.IsMember(info.node())) continue;
    Happen(nullptr, {.id = id,
                     .attempt = info.attempt(),
                     .event = SubmissionEvent::kFailed,
                     .failure = S::NODE_DIED,
                     .words = absl::StrCat("node ", info.node(), ", where it ran, is dead")});
  }
  Tick();
}

// Of no other submission, whatever it is called: a word about one that was deleted, and comes late,
// is none about the one that has its name now. Seconds, as what was deleted is not on disk to count
// on from.
uint32_t SubmissionService::NextAttempt() {
  const auto now = static_cast<uint32_t>(UnixMilliseconds() / 1000);
  return last_attempt_ = std::max(last_attempt_ + 1, now);
}

int64_t SubmissionService::UnixMilliseconds() const {
  return (context_.options.unix_ns_at_zero + context_.clock.Now()) / kMillisecond;
}

void SubmissionService::Submit(CallPtr call, const proto::SubmitEntrypoint& request) {
  if (std::string wrong = WhatIsWrong(request); !wrong.empty()) {
    return context_.pipeline.Answer(call,
                                    ErrorReply(ErrorKind::kInvalidArgument, std::move(wrong)));
  }
  const auto node = std::make_shared<NodeNumber>(0);  // That was chosen.
  const std::string latch = LatchOf(request.entrypoint().submission_id());
  context_.pipeline.Run(
      std::move(call), {latch},
      [this, request, node] { return PlanSubmission(request, node.get()); },
      [this, latch, node] { placement_.OnGone(latch, *node); });
}

Outcome SubmissionService::PlanSubmission(const proto::SubmitEntrypoint& request,
                                          NodeNumber* node) {
  Outcome outcome;
  const proto::Entrypoint& wanted = request.entrypoint();
  if (const SubmissionEntry* known = table_.Find(wanted.submission_id())) {
    const std::string& key = known->info.idempotency_key();
    if (key.empty() || key != request.idempotency_key()) {
      outcome.reply =
          ErrorReply(ErrorKind::kActorNameTaken,
                     absl::StrCat("Job with submission_id ", wanted.submission_id(),
                                  " already exists. Please use a different submission_id."));
    }
    *outcome.reply.mutable_submission() = Shown(*known);
    return outcome;
  }
  const S* deleted = deleted_.Find(wanted.submission_id());
  if (deleted != nullptr && deleted->idempotency_key() == request.idempotency_key()) {
    *outcome.reply.mutable_submission() = *deleted;
    return outcome;
  }
  if (table_.living().size() >= kMaxLiving) {
    outcome.reply = ErrorReply(ErrorKind::kPendingCallsLimit,
                               absl::StrCat(kMaxLiving, " submissions have not ended; try again"));
    return outcome;
  }
  S info;
  *info.mutable_entrypoint() = wanted;
  info.set_number(++last_number_);  // Used up even if the write fails.
  info.set_submitted_unix_ms(UnixMilliseconds());
  info.set_idempotency_key(request.idempotency_key());
  info.set_start_timeout_ns(request.start_timeout_ns() > 0 ? request.start_timeout_ns()
                                                           : kStartTimeout);
  // With a node at once it takes one write, not two, until it starts.
  const ActorPlacement::Choice choice =
      active_ ? ChooseNode(wanted, 0) : ActorPlacement::Choice{.reason = "the cluster to recover"};
  if (choice.node != 0) {
    *node = choice.node;
    info.set_state(S::STARTING);
    info.set_node(choice.node);
    info.set_attempt(NextAttempt());
  }
  outcome.writes = {{Table::kSubmissions, wanted.submission_id(), info.SerializeAsString()}};
  *outcome.reply.mutable_submission() = info;
  outcome.apply = [this, info, choice] {
    deleted_.Erase(info.entrypoint().submission_id());
    SubmissionEntry& entry = table_.Put(info);
    ++told_[S::PENDING];
    Tell(info);
    entry.give_up_at = Deadline(context_.clock.Now(), info.start_timeout_ns());
    entry.pending_words = choice.reason;
    entry.infeasible = choice.infeasible;
    entry.next_order = Deadline(context_.clock.Now(), kLookAgain);
    if (info.state() == S::STARTING) OnPlaced(entry);
  };
  return outcome;
}

S SubmissionService::Shown(const SubmissionEntry& entry) const {
  S info = entry.info;
  if (info.state() == S::PENDING || info.state() == S::STARTING)
    info.set_words(entry.pending_words);
  return info;
}

void SubmissionService::Get(const CallPtr& call, const proto::GetSubmission& request) const {
  const SubmissionEntry* entry = table_.Find(request.submission_id());
  if (entry == nullptr)
    return context_.pipeline.Answer(call, NoSuchSubmission(request.submission_id()));
  proto::GcsReply reply;
  *reply.mutable_submission() = Shown(*entry);
  context_.pipeline.Answer(call, std::move(reply));
}

void SubmissionService::Stop(CallPtr call, const proto::StopSubmission& request) {
  Happen(std::move(call), {.id = request.submission_id(), .event = SubmissionEvent::kWithdrawn});
}

void SubmissionService::OnReport(CallPtr call, NodeNumber node,
                                 const proto::EntrypointReport& report) {
  const std::string& id = report.submission_id();
  SubmissionEntry* entry = table_.Find(id);
  placement_.OnReported(LatchOf(id), node);
  const bool is_current = entry != nullptr && !HasEnded(entry->info.state()) &&
                          entry->info.state() != S::PENDING && entry->info.node() == node &&
                          entry->info.attempt() == report.attempt();
  if (!is_current) {
    // A raylet has what is not on disk here any more: a disk that came back from a backup.
    if (report.has_running() || report.has_pending()) SendStop(node, id, report.attempt());
    if (call) context_.pipeline.Answer(call, {});
    return;
  }
  Happening what{.id = id, .attempt = report.attempt(), .event = SubmissionEvent::kRunning};
  switch (report.state_case()) {
    case proto::EntrypointReport::kRunning:
      what.os_pid = report.running().os_pid();
      what.started_unix_ms = report.running().started_unix_ms();
      if (!entry->info.stopping()) entry->next_order = kForever;
      break;
    case proto::EntrypointReport::kGivenBack:
      what.event = SubmissionEvent::kGivenBack;
      what.words = report.given_back();
      break;
    case proto::EntrypointReport::kEnded: {
      const proto::Death& death = report.ended().death();
      const bool well = death.cause() == proto::Death::EXITED && death.code() == 0;
      what.event = well ? SubmissionEvent::kSucceeded : SubmissionEvent::kFailed;
      what.failure = report.ended().setup_failed()                 ? S::SETUP
                     : death.cause() == proto::Death::START_FAILED ? S::NOT_STARTED
                                                                   : S::COMMAND;
      what.death = death;
      what.words = death.message();
      break;
    }
    case proto::EntrypointReport::kPending:
    case proto::EntrypointReport::STATE_NOT_SET:
      entry->pending_words = report.pending();
      entry->next_order = Deadline(context_.clock.Now(), 5 * context_.options.repeat_after);
      if (call) context_.pipeline.Answer(call, {});
      return;
  }
  Happen(std::move(call), std::move(what));
}

void SubmissionService::OnNodeReport(
    NodeNumber node,
    const google::protobuf::RepeatedPtrField<proto::EntrypointReport>& entrypoints) {
  std::set<std::string> reported;
  for (const proto::EntrypointReport& report : entrypoints) {
    reported.insert(report.submission_id());
    OnReport(nullptr, node, report);
  }
  for (const std::string& id : table_.LivingOn(node)) {
    // One that is STARTING may not have arrived there: it is ordered again.
    const S& info = table_.Find(id)->info;
    if (reported.contains(id) || info.state() != S::RUNNING) continue;
    Happen(nullptr, {.id = id,
                     .attempt = info.attempt(),
                     .event = SubmissionEvent::kFailed,
                     .failure = S::NODE_DIED,
                     .words = absl::StrCat("node ", node, ", where it ran, does not know of it")});
  }
}

void SubmissionService::OnNodeDead(NodeNumber node) {
  for (const std::string& id : table_.LivingOn(node)) {
    const S& info = table_.Find(id)->info;
    Happen(nullptr, {.id = id,
                     .attempt = info.attempt(),
                     .event = SubmissionEvent::kFailed,
                     .failure = S::NODE_DIED,
                     .words = absl::StrCat("node ", node, " died while the job ",
                                           info.state() == S::RUNNING ? "ran" : "was being started",
                                           " there")});
  }
}

void SubmissionService::Happen(CallPtr call, Happening what) {
  const bool is_wish = call != nullptr && what.event == SubmissionEvent::kWithdrawn;
  std::vector<std::string> latches = {LatchOf(what.id)};
  context_.pipeline.Run(
      std::move(call), std::move(latches), [this, what] { return Plan(what); },
      [this, what, is_wish] {
        if (!is_wish) unrecorded_.push_back(what);  // A fact stays one; who wishes asks again.
      });
}

Outcome SubmissionService::Plan(const Happening& what) {
  Outcome outcome;
  const SubmissionEntry* entry = table_.Find(what.id);
  if (entry == nullptr) {
    if (what.event == SubmissionEvent::kWithdrawn) outcome.reply = NoSuchSubmission(what.id);
    return outcome;
  }
  if (what.event == SubmissionEvent::kWithdrawn)
    *outcome.reply.mutable_submission() = Shown(*entry);
  const std::optional<S::State> next = Next(entry->info.state(), what.event);
  if (!next || (what.attempt != 0 && what.attempt != entry->info.attempt())) {
    if (what.event == SubmissionEvent::kPlaced) placement_.OnGone(LatchOf(what.id), what.node);
    return outcome;
  }
  if (what.event == SubmissionEvent::kWithdrawn && entry->info.stopping()) return outcome;
  S info = entry->info;
  switch (what.event) {
    case SubmissionEvent::kPlaced:
      info.set_node(what.node);
      info.set_attempt(NextAttempt());
      break;
    case SubmissionEvent::kRunning:
      info.set_os_pid(what.os_pid);
      info.set_started_unix_ms(what.started_unix_ms);
      break;
    case SubmissionEvent::kWithdrawn:
      info.set_stopping(true);
      info.set_failure(what.failure);
      break;
    default:
      break;
  }
  const bool was_withdrawn = info.stopping() && *next == S::PENDING;
  info.set_state(was_withdrawn ? S::STOPPED : *next);
  if (HasEnded(info.state())) End(what, info.state(), &info);
  if (what.event == SubmissionEvent::kWithdrawn) *outcome.reply.mutable_submission() = info;
  outcome.writes = {{Table::kSubmissions, what.id, info.SerializeAsString()}};
  outcome.vital = HasEnded(info.state());
  outcome.apply = [this, what, info = std::move(info)] { Apply(what, info); };
  return outcome;
}

void SubmissionService::End(const Happening& what, S::State next, S* info) const {
  info->set_ended_unix_ms(UnixMilliseconds());
  *info->mutable_death() = what.death;
  const bool timed_out = info->failure() == S::NOT_STARTED_IN_TIME;
  // One that was told to end has, whatever its command made of that, unless it had ended already.
  if (timed_out) {
    info->set_state(S::FAILED);
    info->set_words(
        absl::StrCat("it did not start within ", info->start_timeout_ns() / kSecond, " s"));
  } else if (info->stopping() && next != S::SUCCEEDED) {
    info->set_state(S::STOPPED);
    info->clear_words();
  } else {
    if (next == S::FAILED) info->set_failure(what.failure);
    info->set_words(what.words);
  }
  info->set_stopping(false);
}

void SubmissionService::Apply(const Happening& what, S info) {
  SubmissionEntry& entry = table_.Put(std::move(info));
  const std::string& id = what.id;
  const NodeNumber node = entry.info.node();
  const Nanos now = context_.clock.Now();
  if (what.event == SubmissionEvent::kRunning || HasEnded(entry.info.state())) Tell(entry.info);
  if (HasEnded(entry.info.state())) {
    ++told_[entry.info.state()];
    placement_.OnGone(LatchOf(id), node);
    return;
  }
  switch (what.event) {
    case SubmissionEvent::kPlaced:
      entry.next_order = Deadline(now, context_.options.repeat_after);
      OnPlaced(entry);
      return;
    case SubmissionEvent::kGivenBack:
      placement_.OnGone(LatchOf(id), node);
      entry.avoid = node;
      entry.pending_words = what.words;
      entry.next_order = Deadline(now, kLookAgain);
      return;
    case SubmissionEvent::kWithdrawn:
      entry.next_order = Deadline(now, context_.options.repeat_after);
      SendStop(node, id, entry.info.attempt());
      return;
    default:
      entry.next_order = entry.info.stopping() ? now : kForever;
  }
}

// The node that was chosen may have died while the choice was written, when it had nothing yet that
// would have been known to die with it. It has never heard of the submission, so another one may.
void SubmissionService::OnPlaced(SubmissionEntry& entry) {
  const S& info = entry.info;
  if (nodes_.IsMember(info.node())) return SendStart(entry);
  entry.next_order = kForever;
  Happen(nullptr, {.id = info.entrypoint().submission_id(),
                   .attempt = info.attempt(),
                   .event = SubmissionEvent::kGivenBack,
                   .words = absl::StrCat("node ", info.node(), " died before it heard of it")});
}

void SubmissionService::Tell(const S& info) {
  using E = proto::EventRow;
  const std::string& id = info.entrypoint().submission_id();
  context_.events.Add(E::JOB_STATE, info.state() == S::FAILED ? E::WARNING : E::INFO,
                      absl::StrCat("submission ", id, " is ", S::State_Name(info.state())),
                      {.node = info.node(), .id = id});
}

void SubmissionService::Tick() {
  for (Happening& what : std::exchange(unrecorded_, {})) Happen(nullptr, std::move(what));
  Trim();
  if (!active_ || table_.living().empty()) return;
  // In turn, so that those at the end of a long list are looked at as often as the others.
  const std::set<std::string, std::less<>>& living = table_.living();
  std::vector<std::string> due;
  auto at = living.upper_bound(looked_at_);
  for (size_t seen = 0; seen < living.size() && due.size() < kMostOrders; ++seen, ++at) {
    if (at == living.end()) at = living.begin();
    const SubmissionEntry& entry = *table_.Find(*at);
    const bool late = entry.info.state() != S::RUNNING && context_.clock.Now() >= entry.give_up_at;
    if (entry.next_order <= context_.clock.Now() || late) due.push_back(*at);
  }
  for (const std::string& id : due) {
    looked_at_ = id;
    if (SubmissionEntry* entry = table_.Find(id)) Order(*entry);
  }
}

void SubmissionService::Order(SubmissionEntry& entry) {
  const S& info = entry.info;
  const std::string& id = info.entrypoint().submission_id();
  const Nanos now = context_.clock.Now();
  entry.next_order = Deadline(now, context_.options.repeat_after);
  if (info.state() != S::RUNNING && now >= entry.give_up_at && !info.stopping()) {
    entry.give_up_at = kForever;
    return Happen(
        nullptr,
        {.id = id, .event = SubmissionEvent::kWithdrawn, .failure = S::NOT_STARTED_IN_TIME});
  }
  if (info.stopping()) return SendStop(info.node(), id, info.attempt());
  if (info.state() == S::STARTING) return SendStart(entry);
  if (info.state() != S::PENDING) return;
  const auto choice = ChooseNode(info.entrypoint(), std::exchange(entry.avoid, 0));
  if (choice.node == 0) {
    entry.pending_words = choice.reason;
    entry.infeasible = choice.infeasible;
    entry.next_order = Deadline(now, kLookAgain);
    return;
  }
  Happen(nullptr, {.id = id,
                   .attempt = info.attempt(),
                   .event = SubmissionEvent::kPlaced,
                   .node = choice.node});
}

// A node with room. What wants nothing goes to the head's node, as its files are most likely
// there, and elsewhere when that drains.
ActorPlacement::Choice SubmissionService::ChooseNode(const proto::Entrypoint& entrypoint,
                                                     NodeNumber avoid) {
  proto::LeaseSpec lease;
  *lease.mutable_resources() = entrypoint.resources();
  *lease.mutable_running() = entrypoint.resources();
  if (entrypoint.resources().amounts().empty() && entrypoint.labels().terms().empty()) {
    if (const NodeNumber head = Head(); head != 0) return {.node = head};
    // Away for a moment, or drained for good.
    if (Head(proto::NodeInfo::DRAINING) == 0) return {.reason = "the head's node, which is away"};
  }
  if (!entrypoint.labels().terms().empty())
    *lease.mutable_strategy()->add_selectors() = entrypoint.labels();
  ActorPlacement::Choice choice = placement_.Choose(lease, Head(), avoid);
  if (choice.node != 0 && !choice.has_room) {
    choice.node = 0;
    choice.reason = "room on a node: those that could run it are full";
  }
  if (choice.node != 0)
    placement_.OnOrdered(LatchOf(entrypoint.submission_id()), lease, choice.node);
  return choice;
}

// 0: it is not there now. A head that started again on the same address is another node.
NodeNumber SubmissionService::Head(proto::NodeInfo::State state) const {
  NodeNumber head = 0;
  for (const auto& [node, info] : nodes_.all()) {
    if (info.state() == state && info.address() == context_.options.address) head = node;
  }
  return head;
}

void SubmissionService::SendStart(const SubmissionEntry& entry) {
  proto::GcsEvent event;
  event.set_client(RayletOf(entry.info.node()).packed());
  *event.mutable_start_entrypoint()->mutable_entrypoint() = entry.info.entrypoint();
  event.mutable_start_entrypoint()->set_attempt(entry.info.attempt());
  SendMessage(context_.transport.To(RayletOf(entry.info.node())), FrameKind::kGcsEvent, event);
}

void SubmissionService::SendStop(NodeNumber node, const std::string& id, uint32_t attempt) {
  if (!nodes_.IsMember(node)) return;
  proto::GcsEvent event;
  event.set_client(RayletOf(node).packed());
  event.mutable_stop_entrypoint()->set_submission_id(id);
  event.mutable_stop_entrypoint()->set_attempt(attempt);
  SendMessage(context_.transport.To(RayletOf(node)), FrameKind::kGcsEvent, event);
}

}  // namespace sheaf
