// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Where the value of an object is, asked and answered: a borrower asks the owner (or, when that is
// dead, the raylet, which asks the other nodes), the owner answers when the object is ready. What
// lies on another node the raylet is asked to bring here. What the stores have lost is made again
// by its owner. Pure.
#pragma once

#include <deque>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "absl/container/flat_hash_map.h"
#include "base/clock.h"
#include "object_store/messages.h"
#include "proto/raylet.pb.h"
#include "worker/owner/object_handle.h"
#include "worker/owner/owner_questions.h"
#include "worker/owner/reference_table.h"
#include "worker/owner/task_table.h"
#include "worker/owner/transit_table.h"

namespace sheaf {

// Answers to borrowers about small values that have no copy in the store yet, as this process has no
// memory of it: should it be killed, they would be lost, and whoever was told of one might have it
// killed. Memory comes within milliseconds as a rule; a store that is full holds up one answer in a
// second, not each.
class LateAnswers {
 public:
  static constexpr Nanos kPatience = 100 * kMillisecond;
  static constexpr Nanos kFullFor = kSecond;

  explicit LateAnswers(Clock& clock) : clock_(clock) {}

  // Whether `object`, which is ready, is to be kept first.
  bool Wants(const ObjectEntry& object) const {
    return object.unpromoted && !object.location.known() && object.state == ObjectState::kValue &&
           clock_.Now() >= full_until_;
  }
  void Add(ProcessId to, ObjectEntry& object) {
    waiting_.push_back({ObjectHandle(&object), to, clock_.Now() + kPatience});
  }
  bool empty() const { return waiting_.empty(); }
  // When the next is answered in any case.
  Nanos next() const { return waiting_.empty() ? kForever : waiting_.front().until; }
  // Calls `answer(to, object)` for those whose value is kept, or that have waited for long enough.
  template <class Answer>
  void Take(Answer answer) {
    const Nanos now = clock_.Now();
    for (auto& late : std::exchange(waiting_, {})) {
      const ObjectEntry& entry = *late.object.entry();
      const bool kept = entry.location.known() || !entry.unpromoted;
      if (!kept && now >= late.until) full_until_ = now + kFullFor;
      if (kept || now < full_until_) {
        answer(late.to, *late.object.entry());
      } else {
        waiting_.push_back(std::move(late));
      }
    }
  }

 private:
  struct Late {
    ObjectHandle object;
    ProcessId to;
    Nanos until;
  };
  Clock& clock_;
  std::deque<Late> waiting_;
  Nanos full_until_ = 0;
};

class ObjectResolver {
 public:
  using Hook = std::function<void(ObjectEntry&)>;

  ObjectResolver(ProcessId self, Clock& clock, Transport& transport, LocalStore& store,
                 ReferenceTable& references, TaskTable& tasks, TransitTable& transits,
                 TaskDispatcher& submitter, std::function<void(std::span<const ObjectId>)> look_up);

  // Somebody in this process waits for `object`. Does nothing for owned ones, whose tasks bring
  // them, but for those of which only lineage is left: they are made again.
  void Want(ObjectEntry& object);
  // The store of this node does not have `object` where it was said to be, or it lies on another
  // node: asks the raylet to find it or to bring it here, then the owner.
  void Missing(ObjectEntry& object);
  // Whether a look at `object` gives its value or its error now.
  bool IsHere(const ObjectEntry& object) const;
  // Has `object` brought here, and runs `hook` once when IsHere: at once if it is. The entry lives
  // until then.
  void WhenHere(ObjectEntry& object, Hook hook);
  // Grows with each answer about a place, and with each object that turns out to be elsewhere:
  // while it stays, those who gather many need not look for more to bring.
  uint64_t arrivals() const { return arrivals_ + references_.elsewhere(); }

  void OnQuery(ProcessId from, std::string_view body);
  void OnAnswer(ProcessId from, std::string_view body);
  void OnLocated(ObjectId stored, const ObjectLocation* location, const Error& why_not);
  // The raylet is at it: restoring, receiving, or waiting for its turn.
  void OnComing(ObjectId stored);
  void OnAdopted(const proto::AdoptedAnswer& answer);
  void OnOrphans(std::string_view ids) { questions_.OnOrphans(ids); }
  void OnProcessDied(ProcessId process) { questions_.OnProcessDied(process); }
  // `node` does not have `object`, or cannot be asked: who finds out beside a search of this says so.
  void OnNotThere(ObjectEntry& object, NodeNumber node, const Error& why);
  // Borrowers wait for an answer until the value is in the store: some may be there now.
  bool holds_answers() const { return !late_answers_.empty(); }
  void AnswerKept();
  // The raylet of another node (or this one) has copies of objects of this process.
  void OnCopied(ProcessId from, std::span<const ObjectName> names);
  // Of objects that it alone had those of this process are made again, or lost.
  void OnNodeGone(NodeNumber node);
  Nanos Tick();  // Asks again what is not answered; returns when it wants to be called next.

 private:
  // An object of the store that is looked for.
  struct Search {
    Nanos again_at = 0;
    Nanos heard_at = 0;   // Of it, from the raylet that is asked.
    NodeNumber node = 0;  // Where.
    bool bring = false;   // Here; else only whether it is there still.
  };
  void SetAgain(ObjectId stored, Search& search);
  bool ForgetSearch(ObjectId stored, Search* was);
  void SearchAgain(Nanos now);
  void Settle(ObjectId object);
  void AnswerWhenReady(ObjectEntry& object, ProcessId from);
  void AnswerOnceKept(ProcessId from, ObjectEntry& object);
  void Seek(ObjectEntry& object, bool bring);
  void AskStore(ObjectId stored, const ObjectEntry& object, Search& search);
  ObjectId NameOf(ObjectId stored) const;
  ObjectEntry* FindStored(ObjectId stored);
  void AnswerDoubters(ObjectEntry& object);
  void Answer(ProcessId to, ObjectEntry& object);
  void Lost(ObjectEntry& object, const Error& why);

  const ProcessId self_;
  Clock& clock_;
  Transport& transport_;
  LocalStore& store_;
  ReferenceTable& references_;
  TaskTable& tasks_;
  TransitTable& transits_;
  TaskDispatcher& submitter_;
  const std::function<void(std::span<const ObjectId>)> look_up_;
  OwnerQuestions questions_;
  LateAnswers late_answers_;
  absl::btree_map<ObjectId, Search> looking_up_;  // By the name in the store.
  // What is due when, as in OwnerQuestions.
  absl::btree_set<std::pair<Nanos, ObjectId>> searched_again_;
  absl::btree_map<ObjectId, std::vector<Hook>> awaited_;  // WhenHere; each with a use of its entry.
  uint64_t arrivals_ = 0;
  // Borrowers that did not find an object of this process where it was said to be. They are
  // answered when it is known where it is.
  absl::btree_map<ObjectId, std::vector<ProcessId>> doubters_;
  // Name in the store -> object, where they differ.
  absl::flat_hash_map<ObjectId, ObjectId> stored_names_;
};

}  // namespace sheaf
