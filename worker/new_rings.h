// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Brings frames that announce a ring together with its descriptor, which comes on the socket:
// mostly before its frame. They are matched by the ring's number, so that one that is lost (the
// process may open no more files) is missed by its own ring alone. Nothing here waits.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/ids.h"
#include "shm/attach_client.h"

namespace sheaf {

class NewRings {
 public:
  static constexpr Nanos kPatience = 5 * kSecond;  // With a descriptor.

  // A frame names `ring`, with `peer`.
  void Announce(ProcessId peer, uint64_t ring, Nanos now) {
    announced_.push_back({peer, ring, now});
  }
  // What one look at the socket gives; kDeadlineExceeded: nothing is there.
  using Receive = absl::FunctionRef<absl::StatusOr<NewRingPair>()>;
  using Add = absl::FunctionRef<absl::Status(NewRingPair)>;
  // Takes what is on the socket, while rings are announced that have not come. Gives the peers
  // whose rings cannot be had: `add` failed, or nothing has come in kPatience. kUnavailable: the
  // raylet is gone.
  absl::StatusOr<std::vector<ProcessId>> Match(Nanos now, Receive receive, Add add);
  bool awaits_some() const { return !announced_.empty(); }

 private:
  struct Announced {
    ProcessId peer;
    uint64_t ring;
    Nanos since;
  };
  std::vector<Announced> announced_;  // Without a descriptor.
  std::vector<NewRingPair> early_;    // Without a frame.
};

}  // namespace sheaf
