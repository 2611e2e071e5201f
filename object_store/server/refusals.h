// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What the store says to processes that cannot have what they ask for, and to the raylet of those
// that do what no correct process does; both counted. One thread.
#pragma once

#include <cstdint>
#include <string>

#include "base/frame.h"
#include "base/ids.h"
#include "base/transport.h"
#include "object_store/arena/extent_allocator.h"
#include "object_store/arena/hazard_scan.h"
#include "object_store/arena/store_host.h"
#include "object_store/messages.h"

namespace sheaf {

class Refusals {
 public:
  struct Deps {  // All outlive this.
    Transport& transport;
    StoreObserver& observer;
    const ExtentAllocator& allocator;
    const HazardScan& hazards;
  };

  // `capacity_bytes`: of the allocator, when all of it is free.
  Refusals(uint64_t capacity_bytes, Deps deps) : capacity_bytes_(capacity_bytes), deps_(deps) {}

  // Answers the ExtentRequest or SlotRequest of that number. One that was cancelled does not count.
  void Refuse(ProcessId to, uint64_t request, StoreRefusalReason reason) {
    if (reason != StoreRefusalReason::kCancelled) ++refusals_;
    const StoreRefusal refusal{.request = request,
                               .reason = reason,
                               .capacity_bytes = capacity_bytes_,
                               .used_bytes = capacity_bytes_ - deps_.allocator.free_bytes(),
                               .pinned_bytes = deps_.hazards.pinned_bytes()};
    deps_.transport.To(to).Send(Lane::kControl, kStoreRefused, AsBytes(refusal));
  }
  void Violation(ProcessId process, const std::string& what) {
    ++violations_;
    deps_.observer.OnStoreViolation(process, what);
  }

  uint64_t refusals() const { return refusals_; }
  uint64_t violations() const { return violations_; }

 private:
  const uint64_t capacity_bytes_;
  const Deps deps_;
  uint64_t refusals_ = 0;
  uint64_t violations_ = 0;
};

}  // namespace sheaf
