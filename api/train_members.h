// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The processes of a training run: where they are placed, which are alive, their ranks.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "api/train_worker.h"
#include "sheaf/placement.h"
#include "sheaf/train.h"

namespace sheaf::inline v1::train::internal {

// A process in its bundle of the placement group.
struct Process {
  ActorHandle<TrainWorker> actor;
  int bundle = 0;
  Place place;
};

// Not thread-safe; used by the driver.
class TrainMembers {
 public:
  explicit TrainMembers(const Options& options);
  ~TrainMembers();  // Ends all processes, and gives their resources back.
  TrainMembers(const TrainMembers&) = delete;
  TrainMembers& operator=(const TrainMembers&) = delete;

  // Fills all places with living processes, keeping those that live; ranks follow nodes. Returns
  // how many are new. Throws TrainingError: there is no room, or they end as soon as they start.
  int Form();
  const std::vector<Process>& by_rank() const { return processes_; }
  size_t nodes() const;
  // For rank `rank`: its local_rank, local_world_size and node_rank.
  void Locate(Start& start) const;
  // Ends it, if it lives; the next Form fills its place.
  void End(const Process& process);

 private:
  Process Begin(int bundle) const;
  [[noreturn]] void ThrowNoRoom() const;

  const Options& options_;
  std::optional<PlacementGroup> group_;
  std::vector<Process> processes_;  // After Form: by rank.
};

}  // namespace sheaf::inline v1::train::internal
