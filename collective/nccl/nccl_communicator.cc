// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "collective/nccl/nccl_communicator.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "collective/nccl/nccl_agreement.h"
#include "collective/nccl/nccl_group.h"
#include "collective/nccl/nccl_lane.h"
#include "collective/net/hierarchical_communicator.h"
#include "collective/operation_line.h"

namespace sheaf {
namespace {

constexpr Nanos kFinishTime = 2 * kSecond;  // For NCCL's orderly end, when a group is destroyed.

// The collective operations, or one direction of a pair.
struct NcclLine : OperationLine {
  // Used by whoever holds `running`.
  std::unique_ptr<nccl::Lane> lane;  // Of a pair: from its first operation on.
  uint64_t sequence = 0;             // Operations that were begun.
};

class NcclCommunicatorImpl final : public NcclCommunicator {
 public:
  NcclCommunicatorImpl(std::unique_ptr<NcclGroup> group, std::unique_ptr<nccl::Lane> lane)
      : group_(std::move(group)), lines_(1 + 2 * static_cast<size_t>(group_->world_size())) {
    lines_[0].lane = std::move(lane);
  }

  ~NcclCommunicatorImpl() override {
    if (group_->Forked()) {
      // The threads, the device and what the others see are not this process's.
      for (NcclLine& line : lines_) {
        line.executor.release();
        line.lane.release();
      }
      group_.release();
      return;
    }
    for (NcclLine& line : lines_) {
      if (line.started.load() == 0) continue;
      group_->Fail(absl::CancelledError("the group was destroyed while an operation ran"))
          .IgnoreError();
    }
    for (NcclLine& line : lines_) line.executor.reset();
    FinishLanes();
  }

  int rank() const override { return group_->rank(); }
  int world_size() const override { return group_->world_size(); }
  uint64_t epoch() const override { return group_->epoch(); }
  const std::string& name() const override { return group_->name(); }
  const CudaDevice& device() const override { return *group_->device(); }

  absl::Status Run(const Operation& operation) override { return RunAfter(operation, nullptr); }
  std::shared_ptr<Work> Start(const Operation& operation) override {
    return StartAfter(operation, nullptr);
  }

  absl::Status RunAfter(const Operation& operation, CudaStream after) override {
    SHEAF_RETURN_IF_ERROR(Check(operation));
    NcclLine& line = LineOf(lines_, operation);
    if (line.started.load(std::memory_order_acquire) > 0) {
      return StartAfter(operation, after)->Wait(kForever);
    }
    const MutexLock lock(line.running);
    const NcclGroup::UserThread user;
    return RunNow(line, operation, after);
  }

  std::shared_ptr<Work> StartAfter(const Operation& operation, CudaStream after) override {
    if (absl::Status status = Check(operation); !status.ok()) return FinishedWork(status);
    NcclLine& line = LineOf(lines_, operation);
    return line.Start("nccl", group_->options().interrupted, [=, this, &line] {
      SHEAF_RETURN_IF_ERROR(Check(operation));
      return RunNow(line, operation, after);
    });
  }

  void Abort(absl::string_view why) override {
    if (group_->Forked()) return;
    group_->Fail(absl::CancelledError(absl::StrCat("aborted: ", why))).IgnoreError();
  }

  absl::Status Health() const override { return group_->Failure(); }

  absl::StatusOr<std::shared_ptr<std::byte>> Allocate(size_t size_bytes) override {
    return group_->device()->Allocate(size_bytes);
  }

 private:
  absl::Status Check(const Operation& operation) const {
    SHEAF_RETURN_IF_ERROR(CheckUsable(*this, *group_));
    SHEAF_RETURN_IF_ERROR(CheckOperation(operation, rank(), world_size()));
    if (operation.count == 0 || operation.kind == CollectiveKind::kBarrier) return absl::OkStatus();
    for (const void* array : ArraysOf(operation, rank())) {
      absl::Status status =
          array == nullptr ? absl::OkStatus() : group_->device()->CheckPointer(array);
      if (!status.ok()) {
        return absl::Status(status.code(),
                            absl::StrCat(Describe(operation), ": ", status.message()));
      }
    }
    return absl::OkStatus();
  }

  // With line.running held.
  absl::Status RunNow(NcclLine& line, const Operation& operation, CudaStream after) {
    SHEAF_RETURN_IF_ERROR(
        CheckUsable(*this, *group_));  // The one before may have aborted the lane.
    const NcclGroup::Waiting waiting{operation, ++line.sequence,
                                     Deadline(MonotonicNow(), operation.timeout)};
    const bool pairwise =
        operation.kind == CollectiveKind::kSend || operation.kind == CollectiveKind::kReceive;
    absl::Status status = pairwise ? RunPair(line, waiting, after) : RunAll(line, waiting, after);
    // This thread is the lane's only user.
    if (!group_->Failure().ok() && line.lane != nullptr) line.lane->Abort();
    return status;
  }

  absl::Status RunAll(NcclLine& line, const NcclGroup::Waiting& waiting, CudaStream after) {
    const Operation& operation = waiting.operation;
    const bool barrier = operation.kind == CollectiveKind::kBarrier;
    // Run waits for its own work on the device: only what the user put there can be under way.
    if (barrier) SHEAF_RETURN_IF_ERROR(Move(*line.lane, waiting, operation, after));
    SHEAF_RETURN_IF_ERROR(group_->Agree(waiting));
    if (!barrier && operation.count > 0) {
      SHEAF_RETURN_IF_ERROR(Move(*line.lane, waiting, operation, after));
    }
    group_->board().Finish(waiting.sequence);
    return absl::OkStatus();
  }

  absl::Status RunPair(NcclLine& line, const NcclGroup::Waiting& waiting, CudaStream after) {
    const bool sends = waiting.operation.kind == CollectiveKind::kSend;
    SHEAF_ASSIGN_OR_RETURN(const nccl::UniqueId id,
                           group_->AgreePair(waiting, /*first=*/line.lane == nullptr));
    if (line.lane == nullptr) {
      line.lane = std::make_unique<nccl::Lane>(group_->nccl(), group_->device(), std::nullopt);
      SHEAF_RETURN_IF_ERROR(group_->Meet(*line.lane, id, /*ranks=*/2, sends ? 0 : 1, waiting));
    }
    if (waiting.operation.count == 0) return absl::OkStatus();
    Operation within = waiting.operation;
    within.peer = sends ? 1 : 0;
    return Move(*line.lane, waiting, within, group_->stream().value_or(after));
  }

  // Launches `operation`, as the lane's ranks are numbered, and waits until the data is there.
  absl::Status Move(nccl::Lane& lane, const NcclGroup::Waiting& waiting, const Operation& operation,
                    CudaStream after) {
    if (absl::Status status = lane.Launch(operation, after); !status.ok()) {
      return group_->FailWith(waiting, status);
    }
    return group_->Await(waiting, [&] { return lane.Done(); });
  }

  // Each lane's orderly end; an abort of what does not end in time, or of a dead group.
  void FinishLanes() {
    std::vector<nccl::Lane*> ending;
    for (NcclLine& line : lines_) {
      if (line.lane == nullptr || !line.lane->open()) continue;
      if (group_->Failure().ok() && line.lane->Finish().ok()) ending.push_back(line.lane.get());
    }
    const Nanos deadline = MonotonicNow() + kFinishTime;
    while (!ending.empty() && MonotonicNow() < deadline && group_->Failure().ok()) {
      ending.erase(std::remove_if(ending.begin(), ending.end(),
                                  [](nccl::Lane* lane) {
                                    const absl::StatusOr<bool> ready = lane->Ready();
                                    if (!ready.ok()) return true;
                                    if (*ready) lane->Close();
                                    return *ready;
                                  }),
                   ending.end());
      if (!ending.empty()) group_->Pause(kMillisecond);
    }
    for (NcclLine& line : lines_) line.lane.reset();
  }

  std::unique_ptr<NcclGroup> group_;
  std::vector<NcclLine> lines_;
};

}  // namespace

absl::Status NcclAvailable(const std::vector<std::string>& folders) {
  const auto nccl = nccl::Library::Load(folders);
  if (!nccl.ok()) return nccl.status();
  return CudaLibrary::Load(folders).status();
}

absl::StatusOr<std::unique_ptr<NcclCommunicator>> NewNcclCommunicator(
    const NcclOptions& options, std::unique_ptr<Communicator> control) {
  const NcclGroup::UserThread user;
  SHEAF_ASSIGN_OR_RETURN(std::unique_ptr<NcclGroup> group,
                         NcclGroup::Form(options, std::move(control)));
  SHEAF_ASSIGN_OR_RETURN(std::unique_ptr<nccl::Lane> lane, group->MeetAll());
  return std::make_unique<NcclCommunicatorImpl>(std::move(group), std::move(lane));
}

absl::StatusOr<std::unique_ptr<NcclCommunicator>> NewNcclCommunicator(const NcclOptions& options,
                                                                      Rendezvous& rendezvous) {
  // Not only in NewNcclCommunicator: others need not wait for a rank that cannot take part.
  SHEAF_RETURN_IF_ERROR(NcclAvailable(options.folders));
  const NcclGroup::UserThread user;
  CommunicatorOptions control = options.group;
  control.arena_bytes = 0;
  control.interrupted = NcclGroup::OnUserThread(options.group.interrupted);
  SHEAF_ASSIGN_OR_RETURN(std::unique_ptr<Communicator> group,
                         FormCommunicator(control, rendezvous));
  return NewNcclCommunicator(options, std::move(group));
}

}  // namespace sheaf
