// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Where the ranks of a collective group meet: the key-value store of the GCS, under the job and the
// group's name. Nothing stays there once a group has been formed.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "collective/rendezvous.h"
#include "worker/runtime.h"

namespace sheaf {

// Uses `runtime`, which outlives it. Thread-safe.
class GcsRendezvous final : public Rendezvous {
 public:
  GcsRendezvous(Runtime& runtime, const std::string& group);
  absl::Status Publish(int rank, absl::string_view bytes, Nanos deadline) override;
  absl::StatusOr<Found> Look(std::span<const int> ranks, Nanos deadline) override;
  absl::Status Withdraw(int rank, absl::string_view bytes, Nanos deadline) override;

 private:
  std::string KeyOf(int rank) const;
  Runtime& runtime_;
  const std::string prefix_;
};

// Where this process is, for groups whose ranks are on several nodes.
struct CollectivePlace {
  std::string node;  // Of the cluster.
  std::string host;  // The address by which other nodes know it; loopback if there are none.
};
absl::StatusOr<CollectivePlace> PlaceOfThisNode(Runtime& runtime, Nanos deadline);

}  // namespace sheaf
