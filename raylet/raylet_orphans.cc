// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Orphans: references that are held here to objects of dead owners that are not here. The other
// nodes are asked once which of them have them, and keep what they have as long as this node holds
// the reference (orphan_ledger.h). A process that asks for one hears where it is, or that it is
// gone, when they have answered.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/parse_frame.h"
#include "base/status_macros.h"
#include "object_store/messages.h"
#include "object_store/server/store_owner.h"
#include "raylet/raylet.h"

namespace sheaf {
namespace {

constexpr size_t kMostQuestions = 10'000;
// The process asks before its raylet hears that it holds the reference, or that the owner is dead.
constexpr Nanos kQuestionLimit = OrphanLedger::kAnswerLimit + kSecond;

}  // namespace

std::vector<NodeNumber> Raylet::OtherNodes() const {
  std::vector<NodeNumber> others;
  for (const auto& [node, seen] : view_.nodes) {
    if (node != options_.node && seen.alive) others.push_back(node);
  }
  return others;
}

absl::Status Raylet::OnAdoptedQuery(ProcessId from, const Frame& frame) {
  AdoptedQuestion question;
  SHEAF_ASSIGN_OR_RETURN(question.query, ParseFrame<proto::AdoptedQuery>(frame));
  SHEAF_ASSIGN_OR_RETURN(question.ids, ParseIds(question.query.ids()));
  if (question.ids.size() > kMaxStoreItems) {
    return absl::InvalidArgumentError(
        absl::StrCat("a question about ", question.ids.size(), " objects of dead owners"));
  }
  for (const ObjectId id : question.ids) {
    if (references_.IsHeld(id) && !world_.store.Contains(id) && id.maker().node != kGcs.node) {
      orphans_.Add(id);
    }
  }
  if (IsAnswerable(question)) {
    SendAdopted(from, question);
    return absl::OkStatus();
  }
  const std::pair<ProcessId, std::string> key{from, question.query.ids()};
  const auto known = adopted_questions_.find(key);
  if (known != adopted_questions_.end()) {  // Asked again: the last is answered.
    known->second.query = std::move(question.query);
  } else if (adopted_questions_.size() < kMostQuestions) {  // Else it will be asked again.
    question.until = Now() + kQuestionLimit;
    adopted_questions_.emplace(key, std::move(question));
  }
  return absl::OkStatus();
}

bool Raylet::IsAnswerable(const AdoptedQuestion& question) const {
  const bool alone = OtherNodes().empty();
  return std::all_of(question.ids.begin(), question.ids.end(), [&](ObjectId id) {
    if (alone || id.maker().node == kGcs.node || world_.store.Contains(id)) return true;
    return references_.IsHeld(id) && !orphans_.IsOpen(id);
  });
}

void Raylet::SendAdopted(ProcessId to, const AdoptedQuestion& question) {
  proto::AdoptedAnswer answer;
  answer.set_request(question.query.request());
  answer.set_ids(question.query.ids());
  for (const ObjectId id : question.ids) {
    const bool here = world_.store.Contains(id);
    const std::vector<NodeNumber> places = orphans_.PlacesOf(id);
    answer.add_adopted(here || !places.empty());
    answer.add_nodes(here || places.empty() ? 0 : places.front());
  }
  SendMessage(To(to), FrameKind::kAdoptedAnswer, answer);
}

// Those who wait for nothing more, or have waited for long enough.
void Raylet::AnswerAdopted(Nanos now) {
  absl::erase_if(adopted_questions_, [&](const auto& entry) {
    const auto& [key, question] = entry;
    if (question.until > now && !IsAnswerable(question)) return false;
    if (IsAlive(key.first)) SendAdopted(key.first, question);
    return true;
  });
}

void Raylet::SettleOrphans() {
  const std::vector<ObjectId> fresh = references_.TakeOrphans();
  const bool alone = fresh.empty() || OtherNodes().empty();
  std::vector<ObjectId> settled;
  for (const ObjectId id : fresh) {
    if (!references_.IsHeld(id)) continue;
    if (!alone && id.maker().node != kGcs.node && !world_.store.Contains(id)) {
      orphans_.Add(id);
      if (orphans_.IsOpen(id)) continue;
    }
    settled.push_back(id);
  }
  for (const ObjectId id : orphans_.TakeSettled()) settled.push_back(id);
  if (settled.empty()) return;
  references_.Settled(settled);
  AnswerAdopted(Now());
}

void Raylet::TickOrphans() {
  orphans_.Tick();
  if (!adopted_questions_.empty()) AnswerAdopted(Now());
}

// Another node asks. What is here it keeps here, as a process of this node would.
absl::Status Raylet::OnOrphanRefs(ProcessId from, const Frame& frame) {
  SHEAF_ASSIGN_OR_RETURN(const auto message, ParseFrame<proto::OrphanRefs>(frame));
  SHEAF_ASSIGN_OR_RETURN(const std::vector<ObjectId> held, ParseIds(message.held_ids()));
  SHEAF_ASSIGN_OR_RETURN(const std::vector<ObjectId> dropped, ParseIds(message.dropped_ids()));
  uint64_t& last = orphan_versions_[from.node];
  if (message.version() < last) return absl::OkStatus();
  if (message.version() > last) {
    last = message.version();
    if (!held.empty()) LearnObjectsOf(held.front().maker());  // And all else that is sealed here.
    for (const ObjectId id : dropped) references_.Unhold(from, id);
    std::vector<ObjectId> adopted;
    for (const ObjectId id : held) {
      if (!world_.store.Contains(id)) continue;
      references_.Hold(from, id);
      const auto remains = remains_.find(id.maker());
      const bool undrained = remains != remains_.end() && !remains->second.drained;
      if (IsDeadOwner(id.maker()) && !undrained) adopted.push_back(id);  // Else when it is.
    }
    Adopt(std::move(adopted));
  }
  proto::OrphanRefsAck ack;
  ack.set_version(message.version());
  for (const ObjectId id : held) {
    if (references_.Holds(from, id)) AppendId(ack.mutable_kept_ids(), id);
  }
  SendMessage(To(from), FrameKind::kOrphanRefsAck, ack);
  return absl::OkStatus();
}

}  // namespace sheaf
