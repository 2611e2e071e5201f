// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Parts of the values of many objects: what lies elsewhere is fetched side by side, kParts and kBytes of
// them at a time (or one); then the others are read in place, all at once. So the objects of which
// parts are read here are held while nothing is waited for: what waits for room may need theirs.
// All parts are held until all are there.
#pragma once

#include <span>
#include <vector>

#include "absl/status/status.h"
#include "worker/core/process_core.h"

namespace sheaf {

class PartGathering {
 public:
  static constexpr size_t kParts = 256;
  static constexpr uint64_t kBytes = uint64_t{256} << 20;  // As ObjectPullerOptions::most_bytes.

  // `parts` and `views` outlive it; `views` gets as many.
  PartGathering(ProcessCore& core, std::span<const ObjectPart> parts,
                std::vector<ObjectView>* views);
  // Takes what has come, and asks for more. True: all are there, or never will be (`status`).
  bool Look();
  // kResourceExhausted: together those that had to be fetched are more than the store.
  const absl::Status& status() const { return status_; }
  // Of those that are not there the first; there is one.
  const ObjectPart& next() const;

 private:
  struct Coming {
    size_t index;
    ObjectHandle copy;
  };

  void TakeArrived();
  void FetchMore();
  bool ViewInPlace();
  bool IsHere(const ObjectPart& part);

  ProcessCore& core_;
  const std::span<const ObjectPart> parts_;
  std::vector<ObjectView>& views_;
  std::vector<bool> fetched_;  // Has its view, of a copy.
  std::vector<size_t> in_place_;
  std::vector<Coming> coming_;
  uint64_t coming_bytes_ = 0;
  uint64_t fetched_bytes_ = 0;
  size_t looked_at_ = 0;
  int lost_copies_ = 0;
  absl::Status status_;
};

}  // namespace sheaf
