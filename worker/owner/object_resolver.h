// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Where the value of an object is, asked and answered: a borrower asks the owner (or, when that is
// dead, the raylet, which asks the other nodes), the owner answers when the object is ready. What
// lies on another node the raylet is asked to bring here. What the stores have lost is made again
// by its owner. Pure.
#pragma once

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
#include "worker/owner/owner_questions.h"
#include "worker/owner/reference_table.h"
#include "worker/owner/task_table.h"
#include "worker/owner/transit_table.h"

namespace sheaf {

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
