// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The worker's side of sheaf/train.h: an actor that runs a training function in one thread and
// answers the driver in others.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "sheaf/train.h"

namespace sheaf::inline v1::train::internal {

inline constexpr char kControl[] = "control";  // The concurrency group of all but Run.
inline constexpr uint32_t kControlThreads = 3;
inline constexpr std::chrono::seconds kPoll{1};  // How long the driver's calls wait for reports.

// What a worker is told when its function begins. `epoch` counts how often the group was formed;
// all else holds for it alone.
struct Start {
  uint64_t epoch = 0;
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;
  int local_world_size = 1;
  int node_rank = 0;
  uint64_t steps = 0;         // Recorded so far.
  std::string folder;         // Of the run; empty: there are no checkpoints.
  std::string checkpoint;     // A folder; empty: none.
  std::string group;          // For collectives: its name, new in each epoch.
  int64_t group_timeout = 0;  // Nanoseconds; and so on, as collective::GroupOptions.
  int64_t formation_timeout = 0;
  uint64_t arena_bytes = 0;
  std::string loop;  // The key of the training function.
  std::optional<ObjectRef<char>> config;
};

// One call of Report. `incomplete`: the folder that its checkpoint was written to; empty: none.
struct Report {
  uint64_t number = 0;
  Metrics metrics;
  std::string incomplete;
};
// What a worker has to say. `ended`: the function is over, and nothing follows.
struct Taken {
  std::vector<Report> reports;
  bool ended = false;
  bool stopped = false;     // ... because it was asked to.
  bool collective = false;  // ... with a CollectiveError.
};
// Where a worker is.
struct Place {
  uint32_t node = 0;
  int pid = 0;
};

// Leaves a training function that shall stop.
struct LoopStopped {};

// The training function of one epoch: reports on their way to the driver, and what the driver has
// recorded. Thread-safe.
class Session {
 public:
  explicit Session(Start start);

  const Start& start() const { return start_; }
  const std::optional<Checkpoint>& checkpoint() const { return checkpoint_; }
  collective::Group& group();
  void Report(const Metrics& metrics, const SaveFunction& save);
  bool stopping();

  // The driver's side.

  // Waits up to `timeout` until there is something to say.
  Taken Take(std::chrono::nanoseconds timeout);
  // All reports before this number are recorded.
  void Commit(uint64_t reports);
  // The next Report, or the one that waits, throws LoopStopped; so does what waits in the group.
  void Stop();
  // The function is over.
  void End(bool collective);

 private:
  void ThrowIfStopped() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Start start_;
  const std::optional<Checkpoint> checkpoint_;
  Mutex forming_ ABSL_ACQUIRED_BEFORE(mutex_);  // Held while the group is formed.
  Mutex mutex_;
  CondVar changed_;
  uint64_t next_ ABSL_GUARDED_BY(mutex_);
  uint64_t committed_ ABSL_GUARDED_BY(mutex_);
  Taken unread_ ABSL_GUARDED_BY(mutex_);
  bool urgent_ ABSL_GUARDED_BY(mutex_) = false;  // A report waits for the driver.
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<collective::Group> group_ ABSL_GUARDED_BY(mutex_);
};

class TrainWorker {
 public:
  TrainWorker() = default;
  Place Describe();
  // Makes the session of an epoch, so that Take may follow at once.
  bool Prepare(const Start& start);
  // Runs the function to its end; throws what it throws. `prepared`: the result of Prepare, as in
  // Take.
  void Run(bool prepared);
  Taken Take(uint64_t epoch, bool prepared);
  void Commit(uint64_t epoch, uint64_t reports);
  void Stop(uint64_t epoch);

 private:
  std::shared_ptr<Session> Of(std::optional<uint64_t> epoch);

  Mutex mutex_;
  std::shared_ptr<Session> session_ ABSL_GUARDED_BY(mutex_);
};
SHEAF_ACTOR(TrainWorker, sheaf::Constructor<>, sheaf::InGroup<"control">(&TrainWorker::Describe),
            sheaf::InGroup<"control">(&TrainWorker::Prepare), &TrainWorker::Run,
            sheaf::InGroup<"control">(&TrainWorker::Take),
            sheaf::InGroup<"control">(&TrainWorker::Commit),
            sheaf::InGroup<"control">(&TrainWorker::Stop));

}  // namespace sheaf::inline v1::train::internal
