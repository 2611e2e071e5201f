// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Where the value of an object is, asked and answered: a borrower asks the owner (or, when that is
// dead, the raylet), the owner answers when the object is ready; what the store has lost is made
// again by its owner. Pure.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "base/clock.h"
#include "proto/raylet.pb.h"
#include "worker/reference_table.h"
#include "worker/task_table.h"
#include "worker/transit_table.h"

namespace sheaf {

class ObjectResolver {
 public:
  ObjectResolver(ProcessId self, Clock& clock, Transport& transport, ReferenceTable& references,
                 TaskTable& tasks, TransitTable& transits, TaskDispatcher& submitter,
                 std::function<void(std::span<const ObjectId>)> look_up);

  // Somebody in this process waits for `object`. Does nothing for owned ones: their tasks bring
  // them.
  void Want(ObjectEntry& object);
  // The store does not have `object` where it was said to be: asks the raylet, then the owner.
  void Missing(ObjectEntry& object);

  void OnQuery(ProcessId from, std::string_view body);
  void OnAnswer(ProcessId from, std::string_view body);
  void OnLocated(ObjectId stored, const ObjectLocation* location, const Error& why_not);
  void OnAdopted(const proto::AdoptedAnswer& answer);
  void OnOrphans(std::string_view ids);
  void OnProcessDied(ProcessId process);
  Nanos Tick();  // Asks again what is not answered; returns when it wants to be called next.

 private:
  struct Question {
    Nanos asked_at = 0;
    bool lost = false;  // The store had lost it.
  };
  void Ask(ObjectEntry& object, bool lost);
  void Answer(ProcessId to, ObjectEntry& object);
  void Lost(ObjectEntry& object, const Error& why);

  const ProcessId self_;
  Clock& clock_;
  Transport& transport_;
  ReferenceTable& references_;
  TaskTable& tasks_;
  TransitTable& transits_;
  TaskDispatcher& submitter_;
  const std::function<void(std::span<const ObjectId>)> look_up_;
  absl::btree_map<ObjectId, Question> asked_;    // Of owners or, for the dead, the raylet.
  absl::btree_map<ObjectId, Nanos> looking_up_;  // By the name in the store.
  absl::flat_hash_map<ObjectId, ObjectId>
      stored_names_;  // Name in the store -> object, where they differ.
  absl::flat_hash_set<ProcessId> dead_;
  uint64_t next_request_ = 1;
};

}  // namespace sheaf
