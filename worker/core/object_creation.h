// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Memory of the node's store for one value that is to be made, which may take its time: others may
// have to be spilled or freed for it. Guarded by the runtime's lock.
#pragma once

#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "object_store/store_client.h"
#include "worker/core/process_core.h"

namespace sheaf {

class ObjectCreation {
 public:
  // Asks for the memory at once. `nested` are the references inside the value: readers find them in
  // the object, so each can be found by its owner from now on.
  ObjectCreation(ProcessCore& core, const ObjectSpec& spec, std::span<const ObjectHandle> nested);
  // To be called when something has changed. True: the memory is there, or refused.
  bool Look();
  // Once Look has said true, or `waited` says why nobody waits for that any more.
  // kResourceExhausted: the store is full, or was until the time of the wait had passed.
  absl::StatusOr<MutableBuffer> End(const absl::Status& waited);

 private:
  bool is_over() const { return made_.ok() || !absl::IsUnavailable(made_.status()); }

  ProcessCore& core_;
  std::vector<ObjectId> nested_;  // Of `spec_`.
  ObjectSpec spec_;
  absl::StatusOr<MutableBuffer> made_;
  uint64_t seen_ = 0;  // The store's room_version, as it was asked last.
};

}  // namespace sheaf
