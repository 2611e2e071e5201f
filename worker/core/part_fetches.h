// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Parts of objects that this process reads where the objects are not in its reach: the raylet is asked
// for each until it has come, as an object of this process (docs/design/parts.md). Pure.
//
// Each question has a name of its own, that of the object to come. What has become known of the
// object since makes it another question: the old one is cancelled, and its answer, which may be on
// its way, means nothing.
#pragma once

#include <cstdint>
#include <utility>

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/transport.h"
#include "object_store/messages.h"
#include "worker/owner/object_handle.h"
#include "worker/owner/object_resolver.h"
#include "worker/owner/reference_table.h"

namespace sheaf {

class PartFetches {
 public:
  // All outlive it.
  PartFetches(ProcessId self, Clock& clock, Transport& transport, ReferenceTable& references,
              ObjectResolver& resolver)
      : self_(self),
        clock_(clock),
        transport_(transport),
        references_(references),
        resolver_(resolver) {}
  PartFetches(const PartFetches&) = delete;
  PartFetches& operator=(const PartFetches&) = delete;

  // A new object of this process, whose value will be `bytes` (> 0) of that of `object`, from
  // `offset` on, or the error of `object`. When its handles are gone it is sought no more.
  ObjectHandle Fetch(ObjectEntry& object, uint64_t offset, uint64_t bytes);
  // What the raylet answers about `name`. False: that is no question which is open.
  bool OnLocated(ObjectId name, const absl::StatusOr<ObjectLocation>& location);
  // Asks again what is not answered; returns when it wants to be called next.
  Nanos Tick();
  size_t size() const { return parts_.size(); }

 private:
  struct Part {
    ObjectEntry* copy = nullptr;  // One use each.
    ObjectEntry* of = nullptr;
    uint64_t offset = 0;
    uint64_t bytes = 0;
    ObjectId question;     // Nil: the raylet is not asked.
    ObjectLocation place;  // About which it is asked.
    bool waits = false;    // Until `of` is ready.
    uint32_t failures = 0;
    Nanos again_at = 0;
    Nanos heard_at = 0;
  };
  void Pursue(ObjectId id);
  void Ask(ObjectId id, Part& part);
  void Send(const Part& part, bool cancel);
  void Withdraw(Part& part);
  void SetAgain(ObjectId id, Part& part, Nanos at);
  void OnFailed(ObjectId id, Part& part, const absl::Status& why);
  void Fail(ObjectId id, Error error);
  void End(ObjectId id);

  const ProcessId self_;
  Clock& clock_;
  Transport& transport_;
  ReferenceTable& references_;
  ObjectResolver& resolver_;
  absl::btree_map<ObjectId, Part> parts_;              // By the copy.
  absl::flat_hash_map<ObjectId, ObjectId> questions_;  // The copy of each that is open.
  absl::btree_set<std::pair<Nanos, ObjectId>> again_;
};

}  // namespace sheaf
