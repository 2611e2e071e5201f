// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "raylet/objects/orphan_ledger.h"

#include <algorithm>

#include "base/status_macros.h"
#include "raylet/objects/reference_ledger.h"

namespace sheaf {

OrphanLedger::OrphanLedger(Clock& clock, Transport& transport,
                           std::function<std::vector<NodeNumber>()> others)
    : clock_(clock), transport_(transport), others_(std::move(others)) {}

void OrphanLedger::Add(ObjectId id) {
  if (const auto [it, inserted] = orphans_.try_emplace(id); inserted) Ask(id, it->second);
}

void OrphanLedger::Ask(ObjectId id, Orphan& orphan) {
  orphan.open = true;
  orphan.question = 0;
  wanted_.insert(id);
}

void OrphanLedger::Remove(ObjectId id) {
  const auto orphan = orphans_.extract(id);
  if (orphan.empty()) return;
  wanted_.erase(id);
  for (const NodeNumber place : orphan.mapped().places) peers_.at(place).to_drop.push_back(id);
}

void OrphanLedger::PlacesFailed(ObjectId id) {
  const auto orphan = orphans_.find(id);
  if (orphan == orphans_.end() || orphan->second.places.empty()) return;
  for (const NodeNumber place : std::exchange(orphan->second.places, {})) {
    peers_.at(place).to_drop.push_back(id);
  }
  if (!orphan->second.open) Ask(id, orphan->second);
}

absl::Status OrphanLedger::OnAck(NodeNumber node, const proto::OrphanRefsAck& ack) {
  SHEAF_ASSIGN_OR_RETURN(const std::vector<ObjectId> kept, ParseIds(ack.kept_ids()));
  const auto it = peers_.find(node);
  if (it == peers_.end() || it->second.message.empty() || ack.version() != it->second.version) {
    return absl::OkStatus();
  }
  Peer& peer = it->second;
  peer.message.clear();
  for (const ObjectId id : kept) {
    const auto orphan = orphans_.find(id);
    if (orphan == orphans_.end()) {  // Dropped before it was answered.
      peer.to_drop.push_back(id);
    } else if (std::vector<NodeNumber>& places = orphan->second.places;
               std::find(places.begin(), places.end(), node) == places.end()) {
      places.push_back(node);
    }
  }
  for (const QuestionPtr& question : std::exchange(peer.asked, {})) Answered(*question, node);
  Send(node, peer);
  return absl::OkStatus();
}

void OrphanLedger::NodeGone(NodeNumber node) {
  peers_.erase(node);
  for (const QuestionPtr& question : questions_) Answered(*question, node);
  for (auto& [id, orphan] : orphans_) {
    if (std::erase(orphan.places, node) != 0 && orphan.places.empty() && !orphan.open) {
      Ask(id, orphan);
    }
  }
}

void OrphanLedger::Answered(Question& question, NodeNumber node) {
  question.unanswered.erase(node);
  if (question.unanswered.empty()) Settle(question);
}

void OrphanLedger::Settle(Question& question) {
  if (std::exchange(question.settled, true)) return;
  for (const ObjectId id : question.ids) {
    const auto orphan = orphans_.find(id);
    if (orphan == orphans_.end() || orphan->second.question != question.number) continue;
    orphan->second.open = false;
    settled_.push_back(id);
  }
}

void OrphanLedger::MakeQuestions() {
  if (wanted_.empty()) return;
  const std::vector<NodeNumber> others = others_();
  for (auto next = wanted_.begin(); next != wanted_.end();) {
    const auto question = std::make_shared<Question>();
    question->number = ++last_question_;
    question->unanswered.insert(others.begin(), others.end());
    question->until = clock_.Now() + kAnswerLimit;
    for (; next != wanted_.end() && question->ids.size() < kMaxIdsPerVersion; ++next) {
      orphans_.at(*next).question = question->number;
      question->ids.push_back(*next);
    }
    for (const NodeNumber node : others) peers_[node].to_ask.push_back(question);
    questions_.push_back(question);
    if (others.empty()) Settle(*question);
  }
  wanted_.clear();
}

void OrphanLedger::Tick() {
  MakeQuestions();
  const Nanos now = clock_.Now();
  for (; !questions_.empty() && questions_.front()->until <= now; questions_.pop_front()) {
    Settle(*questions_.front());
  }
  for (auto& [node, peer] : peers_) {
    if (peer.message.empty()) {
      Send(node, peer);
      continue;
    }
    // What could not be asked in its time is not asked any more.
    while (!peer.to_ask.empty() && peer.to_ask.front()->settled) peer.to_ask.pop_front();
    if (now < peer.resend_at) continue;
    peer.resend_after = std::min(2 * peer.resend_after, kLastResend);
    peer.resend_at = now + peer.resend_after;
    transport_.To(RayletOf(node)).Send(Lane::kControl, FrameKind::kOrphanRefs, peer.message);
  }
}

void OrphanLedger::Send(NodeNumber node, Peer& peer) {
  if (peer.to_ask.empty() && peer.to_drop.empty()) return;
  proto::OrphanRefs message;
  message.set_version(++peer.version);
  const size_t drops = std::min(peer.to_drop.size(), kMaxIdsPerVersion);
  for (size_t i = 0; i < drops; ++i) AppendId(message.mutable_dropped_ids(), peer.to_drop[i]);
  peer.to_drop.erase(peer.to_drop.begin(), peer.to_drop.begin() + static_cast<ptrdiff_t>(drops));
  // What is dropped and wanted again is dropped first.
  for (size_t ids = 0; peer.to_drop.empty() && !peer.to_ask.empty();) {
    const QuestionPtr question = peer.to_ask.front();
    ids += question->ids.size();
    if (ids > kMaxIdsPerVersion) break;
    peer.to_ask.pop_front();
    for (const ObjectId id : question->ids) AppendId(message.mutable_held_ids(), id);
    peer.asked.push_back(question);
  }
  peer.message = message.SerializeAsString();
  peer.resend_after = kFirstResend;
  peer.resend_at = clock_.Now() + peer.resend_after;
  transport_.To(RayletOf(node)).Send(Lane::kControl, FrameKind::kOrphanRefs, peer.message);
}

bool OrphanLedger::IsOpen(ObjectId id) const {
  const auto orphan = orphans_.find(id);
  return orphan != orphans_.end() && orphan->second.open;
}

std::vector<NodeNumber> OrphanLedger::PlacesOf(ObjectId id) const {
  const auto orphan = orphans_.find(id);
  return orphan == orphans_.end() ? std::vector<NodeNumber>() : orphan->second.places;
}

std::vector<ObjectId> OrphanLedger::ids() const {
  std::vector<ObjectId> all;
  all.reserve(orphans_.size());
  for (const auto& [id, orphan] : orphans_) all.push_back(id);
  return all;
}

}  // namespace sheaf
