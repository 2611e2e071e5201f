// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What the ranks of a group over NCCL share: the control group in which they meet and compare their
// calls, the board on which they tell of failures, and the first failure, which ends the group.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "collective/communicator.h"
#include "collective/nccl/nccl_agreement.h"
#include "collective/nccl/nccl_communicator.h"
#include "collective/nccl/nccl_lane.h"
#include "collective/nccl/rank_board.h"

namespace sheaf {

// Thread-safe.
class NcclGroup {
 public:
  // What is waited for: for the deadline, and for the words of an error.
  struct Waiting {
    Operation operation;
    uint64_t sequence = 0;
    Nanos deadline = kForever;
  };
  // While it lives the calling thread is a user's, whose waits may be interrupted.
  class UserThread {
   public:
    UserThread() { ++count_; }
    ~UserThread() { --count_; }
    UserThread(const UserThread&) = delete;
    UserThread& operator=(const UserThread&) = delete;

   private:
    friend class NcclGroup;
    static thread_local int count_;
  };
  // `interrupted`, asked on users' threads only.
  static std::function<bool()> OnUserThread(std::function<bool()> interrupted);

  static absl::StatusOr<std::unique_ptr<NcclGroup>> Form(const NcclOptions& options,
                                                         std::unique_ptr<Communicator> control);

  int rank() const { return control_->rank(); }
  int world_size() const { return control_->world_size(); }
  uint64_t epoch() const { return control_->epoch(); }
  const std::string& name() const { return control_->name(); }
  const CommunicatorOptions& options() const { return options_; }
  const std::optional<CudaStream>& stream() const { return stream_; }
  const std::shared_ptr<const nccl::Library>& nccl() const { return nccl_; }
  const std::shared_ptr<const CudaDevice>& device() const { return device_; }
  RankBoard& board() { return *board_; }
  // Whether this process was forked from the one that formed the group.
  bool Forked() const;

  // A lane of all ranks. Collective.
  absl::StatusOr<std::unique_ptr<nccl::Lane>> MeetAll();
  // Makes `lane` one of `ranks` ranks that meet under `id`.
  absl::Status Meet(nccl::Lane& lane, const nccl::UniqueId& id, int ranks, int rank,
                    const Waiting& waiting);
  // OK: all ranks have called the same operation.
  absl::Status Agree(const Waiting& waiting);
  // The same for the two ends of a send. `first`: the two meet under the id that comes back.
  absl::StatusOr<nccl::UniqueId> AgreePair(const Waiting& waiting, bool first);
  // Returns when `ready` says so. Its error, and any trouble of the group meanwhile, end the group.
  absl::Status Await(const Waiting& waiting, absl::FunctionRef<absl::StatusOr<bool>()> ready);
  // Waits for `duration`, or until the group fails.
  void Pause(Nanos duration);

  // Ends the group for all ranks, unless it has ended before; returns the failure that ended it.
  absl::Status Fail(absl::Status status);
  // The same for an error of the device or of NCCL, which may be the fault of another rank.
  absl::Status FailWith(const Waiting& waiting, const absl::Status& error);
  // OK, or how the group ended.
  absl::Status Failure() const;

 private:
  NcclGroup(const NcclOptions& options, std::unique_ptr<Communicator> control);
  absl::Status Open(const NcclOptions& options);  // The libraries and the device.
  absl::Status FailInControl(const Waiting& waiting, const absl::Status& error);
  absl::Status Late(const Waiting& waiting) const;
  absl::Status Trouble(Nanos now);
  Nanos Left(const Waiting& waiting) const;

  const CommunicatorOptions options_;
  const std::optional<CudaStream> stream_;
  const uint64_t forks_;  // When this was made.
  std::unique_ptr<Communicator> control_;
  std::shared_ptr<const nccl::Library> nccl_;
  std::shared_ptr<const CudaDevice> device_;
  std::unique_ptr<RankBoard> board_;
  mutable Mutex mutex_;
  CondVar failed_;
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
  Nanos trouble_since_ ABSL_GUARDED_BY(mutex_) = 0;  // Of another rank.
};

}  // namespace sheaf
