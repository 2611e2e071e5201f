// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "worker/owner/owner_questions.h"

#include <algorithm>
#include <utility>

#include "object_store/messages.h"
#include "proto/raylet.pb.h"
#include "worker/wire.h"

namespace sheaf {
namespace {

constexpr Nanos kAskAgain = kSecond;  // Raylets; owners in ever longer pauses, up to the next.
constexpr Nanos kLongestPause = 8 * kSecond;

}  // namespace

void OwnerQuestions::Ask(ObjectEntry& object, bool lost) {
  NoteAsked(object.id, lost, kAskAgain);
  const ProcessId owner = object.id.maker();
  if (dead_.contains(owner) || owner == kGcs) return AskRaylet(std::string(AsBytes(object.id)));
  transport_.To(owner).Send(Lane::kControl, FrameKind::kObjectQuery,
                            AsBytes(ObjectQueryHead{1, lost}), AsBytes(object.id));
}

void OwnerQuestions::AskRaylet(const std::string& ids) {
  proto::AdoptedQuery query;
  query.set_request(next_request_++);
  query.set_ids(ids);
  SendMessage(transport_.To(RayletOf(self_.node)), FrameKind::kAdoptedQuery, query);
}

void OwnerQuestions::OnOrphans(std::string_view ids) {
  std::vector<ObjectEntry*> orphans;
  for (ObjectId id : FrameItems<ObjectId>(ids)) {
    dead_.insert(id.maker());
    ObjectEntry* object = references_.Find(id);
    if (object != nullptr && !object->owned) orphans.push_back(object);
  }
  AskAboutOrphans(orphans);
}

void OwnerQuestions::OnProcessDied(ProcessId process) {
  dead_.insert(process);
  AskAboutOrphans(references_.BorrowedFrom(process));
}

// Their owners are dead: in as few questions as may be about all that are not ready.
void OwnerQuestions::AskAboutOrphans(std::span<ObjectEntry* const> orphans) {
  std::string ids;
  for (const ObjectEntry* object : orphans) {
    if (object->ready() || object->released) continue;
    NoteAsked(object->id, false, kAskAgain);
    ids.append(AsBytes(object->id));
    if (ids.size() < kMaxStoreItems * sizeof(ObjectId)) continue;
    AskRaylet(ids);
    ids.clear();
  }
  if (!ids.empty()) AskRaylet(ids);
}

Nanos OwnerQuestions::Tick() {
  AskAgain(clock_.Now());
  return asked_again_.empty() ? kForever : asked_again_.begin()->first;
}

// Owners, about all of theirs that are due in as few frames as may be.
void OwnerQuestions::AskAgain(Nanos now) {
  absl::btree_map<std::pair<ProcessId, bool>, std::string> by_owner;
  std::vector<ObjectEntry*> orphans;
  while (!asked_again_.empty() && asked_again_.begin()->first <= now) {
    const ObjectId id = asked_again_.begin()->second;
    const Question question = asked_.at(id);
    const ProcessId owner = id.maker();
    ObjectEntry* object = references_.Find(id);
    if (object == nullptr || object->ready() || object->released) {
      Forget(id);
    } else if (dead_.contains(owner) || owner == kGcs) {
      NoteAsked(id, false, kAskAgain);
      orphans.push_back(object);
    } else {
      NoteAsked(id, question.lost, std::min(2 * question.pause, kLongestPause));
      by_owner[{owner, question.lost}].append(AsBytes(id));
    }
  }
  AskAboutOrphans(orphans);
  for (const auto& [to, ids] : by_owner) {
    constexpr size_t kMost = kMaxStoreItems * sizeof(ObjectId);
    for (size_t at = 0; at < ids.size(); at += kMost) {
      const std::string_view some = std::string_view(ids).substr(at, kMost);
      const ObjectQueryHead head{some.size() / sizeof(ObjectId), to.second};
      transport_.To(to.first).Send(Lane::kControl, FrameKind::kObjectQuery, AsBytes(head), some);
    }
  }
}

void OwnerQuestions::NoteAsked(ObjectId id, bool lost, Nanos pause) {
  Forget(id);
  const Nanos again_at = clock_.Now() + pause;
  asked_[id] = {again_at, pause, lost};
  asked_again_.emplace(again_at, id);
}

void OwnerQuestions::Forget(ObjectId id) {
  const auto question = asked_.find(id);
  if (question == asked_.end()) return;
  asked_again_.erase({question->second.again_at, id});
  asked_.erase(question);
}

}  // namespace sheaf
