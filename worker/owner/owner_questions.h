// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Questions about the values of borrowed objects: to their owners or, when those are dead, to the
// raylet, which asks the other nodes. Each is asked again until it is answered, those for one owner
// in one frame. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "absl/container/flat_hash_set.h"
#include "base/clock.h"
#include "base/ids.h"
#include "base/transport.h"
#include "worker/owner/reference_table.h"

namespace sheaf {

class OwnerQuestions {
 public:
  // All outlive it.
  OwnerQuestions(ProcessId self, Clock& clock, Transport& transport, ReferenceTable& references)
      : self_(self), clock_(clock), transport_(transport), references_(references) {}
  OwnerQuestions(const OwnerQuestions&) = delete;
  OwnerQuestions& operator=(const OwnerQuestions&) = delete;

  // `lost`: the store where it was said to be has lost it.
  void Ask(ObjectEntry& object, bool lost);
  bool IsAsked(ObjectId id) const { return asked_.contains(id); }
  // It was answered.
  void Forget(ObjectId id);
  // The owners of these are dead.
  void OnOrphans(std::string_view ids);
  void OnProcessDied(ProcessId process);
  bool IsDead(ProcessId process) const { return dead_.contains(process); }
  // Asks again what is not answered; returns when it wants to be called next.
  Nanos Tick();

 private:
  struct Question {
    Nanos again_at = 0;
    Nanos pause = 0;    // Between the last two; grows.
    bool lost = false;  // The store had lost it.
  };
  void NoteAsked(ObjectId id, bool lost, Nanos pause);
  void AskRaylet(const std::string& ids);
  void AskAboutOrphans(std::span<ObjectEntry* const> orphans);
  void AskAgain(Nanos now);

  const ProcessId self_;
  Clock& clock_;
  Transport& transport_;
  ReferenceTable& references_;
  absl::btree_map<ObjectId, Question> asked_;
  // What is due when: a walk over all that is asked would cost more than the questions.
  absl::btree_set<std::pair<Nanos, ObjectId>> asked_again_;
  absl::flat_hash_set<ProcessId> dead_;
  uint64_t next_request_ = 1;
};

}  // namespace sheaf
