// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The values of many objects, taken as they come within reach, in any order. What lies on other
// nodes or on disk is brought here side by side: kObjects at a time, and kBytes of them (or one).
// All are held until all are there, so that more than the store holds can never be: that is said
// before anything is brought.
#pragma once

#include <span>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "worker/core/process_core.h"

namespace sheaf {

class Gathering {
 public:
  static constexpr size_t kObjects = 64;
  static constexpr uint64_t kBytes = uint64_t{256} << 20;  // As ObjectPullerOptions::most_bytes.
  static constexpr size_t kAhead = 1024;  // Objects that are looked at beyond the first missing.

  // `objects` and `views` outlive it; `views` gets as many.
  Gathering(ProcessCore& core, std::span<const ObjectHandle> objects,
            std::vector<ObjectView>* views);
  // Takes what has come, and asks for more. True: all are there, or never will be (`status`).
  bool Look();
  // kResourceExhausted: together they are more than the store, or than the room that was to be had.
  const absl::Status& status() const { return status_; }
  size_t next() const { return next_; }  // The first that is not there.

 private:
  void LookAhead();
  bool Take(size_t i);   // False: it is not here.
  void Count(size_t i);  // Its bytes, if it lies in a store.
  void CheckTotal();

  ProcessCore& core_;
  const std::span<const ObjectHandle> objects_;
  std::vector<ObjectView>& views_;  // Those with a handle are there.
  size_t next_ = 0;
  uint64_t arrivals_ = UINT64_MAX;  // Of the resolver, when LookAhead was here.
  bool counting_ = false;           // Since something was not here.
  absl::flat_hash_set<const ObjectEntry*> counted_;
  uint64_t counted_bytes_ = 0;
  absl::Status status_;
};

}  // namespace sheaf
