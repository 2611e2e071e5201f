// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Heartbeats and reports to the GCS, and what it says.
#include <algorithm>
#include <iterator>
#include <limits>

#include "base/parse_frame.h"
#include "raylet/raylet.h"

namespace sheaf {
namespace {

constexpr size_t kMostHeartbeatsOpen = 100;  // Older ones would renew nothing.
// A GCS that has not answered so many has enough to read: it gets one in such a time then.
constexpr size_t kEnoughHeartbeats = 8;
constexpr Nanos kRareHeartbeat = 500 * kMillisecond;

}  // namespace

void Raylet::OnGcsFrame(const Frame& frame) {
  if (frame.kind != FrameKind::kGcsReply && frame.kind != FrameKind::kGcsEvent) return;
  const std::optional<ProcessId> addressee = router_.Addressee(frame.body);
  if (!addressee.has_value()) return;
  if (*addressee != RayletOf(options_.node)) {
    if (deaths_.IsAlive(*addressee)) router_.ToProcess(*addressee, frame);
    return;
  }
  if (frame.kind == FrameKind::kGcsReply) {
    const auto reply = ParseFrame<proto::GcsReply>(frame);
    if (!reply.ok()) return;
    if (reply->sequence() != 0) {
      gcs_.OnReply(*reply);
    } else if (reply->has_heartbeat()) {
      OnHeartbeatReply(reply->heartbeat());
    }
  } else if (const auto event = ParseFrame<proto::GcsEvent>(frame); event.ok()) {
    OnGcsEvent(*event);
  }
  Settle();
}

void Raylet::OnHeartbeatReply(const proto::HeartbeatReply& reply) {
  if (leaving_) return;
  if (reply.fenced() && !fenced_) {
    fenced_ = true;
    Shutdown("the GCS declared this node dead");
    return;
  }
  // Counted from when it was sent: the GCS counts from when that came.
  if (const auto sent = heartbeats_sent_.find(reply.number()); sent != heartbeats_sent_.end()) {
    const Nanos until = Deadline(sent->second, reply.lease_ns());
    heartbeats_sent_.erase(heartbeats_sent_.begin(), std::next(sent));
    if (!reply.fenced() && reply.lease_ns() > 0) OnActorLease(until, reply.lease_ns());
  }
  if (reply.term() > gcs_term_) OnGcsRestarted(reply.term());
}

void Raylet::OnGcsEvent(const proto::GcsEvent& event) {
  switch (event.body_case()) {
    case proto::GcsEvent::kStartActor:
      OnStartActor(event.start_actor());
      return;
    case proto::GcsEvent::kKillActor:
      OnKillActor(event.kill_actor());
      return;
    case proto::GcsEvent::kPlaceGroup:
      OnPlaceGroup(event.place_group());
      return;
    case proto::GcsEvent::kDropGroup:
      OnDropGroup(event.drop_group());
      return;
    case proto::GcsEvent::kDelta:
      follower_.OnDelta(event.delta());
      return;
    case proto::GcsEvent::kRestarted:
      OnGcsRestarted(event.restarted().term());
      return;
    default:
      return;
  }
}

void Raylet::FillReport(proto::NodeReport* report) const {
  report->Clear();
  ledger_.available().ToMap(*report->mutable_available()->mutable_amounts());
  for (const auto& [id, actor] : detached_) *report->add_actors() = ReportOf(actor, processes_);
  // A GCS whose disk came back from a backup may not know how far their numbers went.
  for (const proto::ActorStateReport& ended : ended_detached_) {
    proto::ActorStateReport& actor = *report->add_actors();
    actor.set_actor_id(ended.actor_id());
    actor.set_incarnation(ended.incarnation());
    actor.mutable_died()->set_cause(ended.died().cause());
  }
  for (const auto& [id, number] : registered_groups_) {
    const auto state = group_states_.find(id);
    if (state == group_states_.end()) continue;
    proto::GroupReport& group = *report->add_groups();
    group.set_group_id(id.Binary());
    group.set_placement_number(number);
    const bool created = state->second.state() == proto::GroupState::CREATED;
    group.set_state(created ? proto::GroupInfo::CREATED : proto::GroupInfo::PENDING);
    *group.mutable_bundle_nodes() = state->second.bundle_nodes();
    if (const auto attached = attached_groups_.find(id); attached != attached_groups_.end())
      *report->add_attached_groups() = attached->second;
  }
  for (const auto& [process, entry] : processes_) report->add_processes(process.packed());
}

// While it is down nothing is sent; what the link itself had taken by then arrives when it is back.
void Raylet::OnGcsLink(bool up, uint64_t term) {
  if (up != gcs_.up()) silence_.OnGcsLink(up);
  gcs_.SetUp(up);
  if (!up) return;
  if (term > gcs_term_) return OnGcsRestarted(term);
  AskGcsAgain(std::exchange(report_due_, false));
  Settle();
}

void Raylet::OnGcsRestarted(uint64_t term) {
  if (term <= gcs_term_) return;
  gcs_term_ = term;
  report_due_ = false;
  AskGcsAgain(/*report=*/true);
}

// What was said last may be lost. The GCS hears how a job ended before it hears that its driver is
// gone, so the report comes behind the commands; nothing else lies before it.
void Raylet::AskGcsAgain(bool report) {
  heartbeats_sent_.clear();
  next_heartbeat_ = 0;
  gcs_.ResendAll();
  if (report) {
    follower_.Follow();
    gcs_.Describe(
        [this](proto::GcsRequest* request) { FillReport(request->mutable_node_report()); });
  }
  // Processes renew what they follow.
  proto::GcsEvent event;
  event.mutable_restarted()->set_term(gcs_term_);
  for (const auto& [process, entry] : processes_) {
    event.set_client(process.packed());
    SendMessage(To(process), FrameKind::kGcsEvent, event);
  }
}

void Raylet::Leave() {
  leaving_ = true;
  proto::GcsRequest request;
  request.mutable_unregister_node();
  gcs_.Command(std::move(request), [this](const proto::GcsReply&) { has_left_ = true; });
}

void Raylet::TickGcs() {
  if (!gcs_.up()) return;
  if (!actor_rows_.empty()) {
    proto::GcsRequest request;
    for (auto& [id, row] : actor_rows_) {
      const auto actor = ActorId::FromHex(id);
      // Of a creator that died since, the GCS forgot the rows when it heard of that.
      if (actor.ok() && deaths_.IsAlive(actor->maker()))
        *request.mutable_actor_rows()->add_rows() = std::move(row);
    }
    actor_rows_.clear();
    gcs_.Report(std::move(request));
  }
  const Nanos now = Now();
  if (fenced_ || leaving_) return;
  const bool enough = heartbeats_sent_.size() >= kEnoughHeartbeats;
  if (now < next_heartbeat_) {
    // Other nodes hand work to this one by what it says to be free.
    if (enough || view_.nodes.size() == 1 || ledger_.available() == last_available_) return;
  }
  next_heartbeat_ = now + (enough ? std::max(kRareHeartbeat, options_.heartbeat_period)
                                  : options_.heartbeat_period);
  last_available_ = ledger_.available();
  proto::GcsRequest request;
  proto::Heartbeat& heartbeat = *request.mutable_heartbeat();
  heartbeat.set_number(++last_heartbeat_);
  heartbeats_sent_[last_heartbeat_] = now;
  if (heartbeats_sent_.size() > kMostHeartbeatsOpen)
    heartbeats_sent_.erase(heartbeats_sent_.begin());
  heartbeat.set_term(gcs_term_);
  ledger_.available().ToMap(*heartbeat.mutable_available()->mutable_amounts());
  Resources demand;
  for (const LeaseQueue::Pending& pending : queue_.AllPending()) {
    const Amount count = std::max<uint32_t>(pending.missing, 1);
    Resources all;
    pending.spec->resources.ForEach([&](std::string_view name, Amount amount) {
      all.Set(name, std::min(amount, std::numeric_limits<Amount>::max() / count) * count);
    });
    demand += all;  // Saturates.
  }
  demand.ToMap(*heartbeat.mutable_demand()->mutable_amounts());
  heartbeat.set_drained(IsDrained());
  gcs_.Report(std::move(request));
}

}  // namespace sheaf
