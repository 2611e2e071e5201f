// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "raylet/cluster/gcs_session.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>

namespace sheaf {
namespace {

constexpr size_t kMostHeartbeatsOpen = 100;  // Older ones would renew nothing.
// A GCS that has not answered so many has enough to read: it gets one in such a time then.
constexpr size_t kEnoughHeartbeats = 8;
constexpr Nanos kRareHeartbeat = 500 * kMillisecond;
// For a GCS that is away: then one report names the living.
constexpr size_t kMostDeathsKept = 1000;

}  // namespace

void GcsSession::OnLink(bool up, uint64_t term) {
  deps_.gcs.SetUp(up);
  if (!up) return;
  if (term > term_) {
    OnRestarted(term);
  } else {
    AskAgain(std::exchange(report_due_, false));
  }
}

void GcsSession::OnRestarted(uint64_t term) {
  if (term <= term_) return;
  term_ = term;
  report_due_ = false;
  AskAgain(/*report=*/true);
}

// What was said last may be lost. The GCS hears how a job ended before it hears that its driver is
// gone, so the report comes behind the commands; nothing else lies before it.
void GcsSession::AskAgain(bool report) {
  heartbeats_sent_.clear();
  next_heartbeat_ = 0;
  deps_.gcs.ResendAll();
  if (report) {
    deps_.follow_again();
    deps_.gcs.Describe([this](proto::GcsRequest* request) {
      request->mutable_node_report()->Clear();
      deps_.node.FillReport(request->mutable_node_report());
    });
  }
  // Processes renew what they follow.
  proto::GcsEvent event;
  event.mutable_restarted()->set_term(term_);
  for (const auto& [process, entry] : deps_.processes) {
    event.set_client(process.packed());
    SendMessage(deps_.transport.To(process), FrameKind::kGcsEvent, event);
  }
}

void GcsSession::OnHeartbeatReply(const proto::HeartbeatReply& reply) {
  if (leaving_) return;
  if (reply.fenced() && !fenced_) {
    fenced_ = true;
    deps_.node.OnFenced();
    return;
  }
  // Counted from when it was sent: the GCS counts from when that came.
  if (const auto sent = heartbeats_sent_.find(reply.number()); sent != heartbeats_sent_.end()) {
    const Nanos until = Deadline(sent->second, reply.lease_ns());
    heartbeats_sent_.erase(heartbeats_sent_.begin(), std::next(sent));
    if (!reply.fenced() && reply.lease_ns() > 0) deps_.node.OnNodeLease(until, reply.lease_ns());
  }
  OnRestarted(reply.term());
}

void GcsSession::ReportDeath(ProcessId process, const proto::Death& death) {
  if (!deps_.gcs.up() && deps_.gcs.unanswered() >= kMostDeathsKept) {
    report_due_ = true;  // Which names all that live.
    return;
  }
  proto::GcsRequest request;
  request.mutable_process_gone()->set_process(process.packed());
  *request.mutable_process_gone()->mutable_death() = death;
  deps_.gcs.Command(std::move(request), nullptr);
}

void GcsSession::Leave() {
  leaving_ = true;
  proto::GcsRequest request;
  request.mutable_unregister_node();
  deps_.gcs.Command(std::move(request), [this](const proto::GcsReply&) { has_left_ = true; });
}

void GcsSession::Tick() {
  if (!deps_.gcs.up() || fenced_ || leaving_) return;
  const Nanos now = deps_.clock.Now();
  const bool enough = heartbeats_sent_.size() >= kEnoughHeartbeats;
  const Resources& available = deps_.queue.ledger().available();
  if (now < next_heartbeat_) {
    // Other nodes hand work to this one by what it says to be free.
    if (enough || deps_.view.nodes.size() == 1 || available == last_available_) return;
  }
  const Nanos period = deps_.options.heartbeat_period;
  next_heartbeat_ = now + (enough ? std::max(kRareHeartbeat, period) : period);
  last_available_ = available;
  SendHeartbeat(now);
}

void GcsSession::SendHeartbeat(Nanos now) {
  proto::GcsRequest request;
  proto::Heartbeat& heartbeat = *request.mutable_heartbeat();
  heartbeat.set_number(++last_heartbeat_);
  heartbeats_sent_[last_heartbeat_] = now;
  if (heartbeats_sent_.size() > kMostHeartbeatsOpen)
    heartbeats_sent_.erase(heartbeats_sent_.begin());
  heartbeat.set_term(term_);
  last_available_.ToMap(*heartbeat.mutable_available()->mutable_amounts());
  Demand().ToMap(*heartbeat.mutable_demand()->mutable_amounts());
  heartbeat.set_drained(IsDrained());
  deps_.gcs.Report(std::move(request));
}

// What is wanted and not granted here, together.
Resources GcsSession::Demand() const {
  Resources demand;
  for (const LeaseQueue::Pending& pending : deps_.queue.AllPending()) {
    const Amount count = std::max<uint32_t>(pending.missing, 1);
    Resources all;
    pending.spec->resources.ForEach([&](std::string_view name, Amount amount) {
      all.Set(name, std::min(amount, std::numeric_limits<Amount>::max() / count) * count);
    });
    demand += all;  // Saturates.
  }
  return demand;
}

bool GcsSession::IsDrained() const {
  const NodeView* here = deps_.view.Find(deps_.view.local);
  return here->draining && deps_.queue.leases_out() == 0 && !deps_.node.HasEntrypoints() &&
         std::none_of(deps_.processes.begin(), deps_.processes.end(), [](const auto& entry) {
           // A worker without a lease is there for what it has begun elsewhere (WorkerPool::Drain).
           return entry.second.info.role != ProcessRole::kTool;
         });
}

}  // namespace sheaf
