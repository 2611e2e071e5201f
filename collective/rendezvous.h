// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// How the ranks of a group find each other: a place where each leaves some bytes for the others.
// collective/ owns the interface; worker/gcs_rendezvous.h implements it over the GCS, and
// fake_rendezvous.h in memory. One object is one rank's view of one group.
//
// What is found may be old: of a process that died, or of an earlier epoch. Readers prove it (see
// shm_formation.cc), so an implementation promises only that a rank finally sees the last bytes
// that each rank published, and that its own calls return within the deadline. Whether a member is
// alive the implementation of Communicator finds out by itself.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/clock.h"

namespace sheaf {

class Rendezvous {
 public:
  virtual ~Rendezvous() = default;
  // Leaves `bytes` (up to 4 KiB) as those of `rank`, in place of earlier ones.
  virtual absl::Status Publish(int rank, absl::string_view bytes, Nanos deadline) = 0;
  // What each of `ranks` published last, in their order; nullopt: nothing (yet, or it was
  // withdrawn). One question for all, as each may be a round trip.
  using Found = std::vector<std::optional<std::string>>;
  virtual absl::StatusOr<Found> Look(std::span<const int> ranks, Nanos deadline) = 0;
  // Takes back what `rank` published, if it is still `bytes`.
  virtual absl::Status Withdraw(int rank, absl::string_view bytes, Nanos deadline) = 0;
};

}  // namespace sheaf
