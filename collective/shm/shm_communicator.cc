// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "collective/shm/shm_communicator.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "collective/operation_line.h"
#include "collective/shm/shm_arena.h"
#include "collective/shm/shm_collectives.h"
#include "collective/shm/shm_group.h"
#include "collective/shm/shm_pairs.h"

namespace sheaf {
namespace {

class ShmCommunicator final : public Communicator {
 public:
  explicit ShmCommunicator(std::unique_ptr<ShmGroup> group)
      : group_(std::move(group)),
        arena_(std::make_shared<ShmArena>(group_->arena_bytes())),
        collectives_(*group_),
        lines_(1 + 2 * static_cast<size_t>(group_->world_size())) {
    for (int peer = 0; peer < group_->world_size(); ++peer) {
      senders_.emplace_back(*group_, peer);
      receivers_.emplace_back(*group_, peer);
    }
  }

  ~ShmCommunicator() override {
    for (OperationLine& line : lines_) {
      // The threads of this process's parent are not this process's.
      if (group_->Forked()) {
        line.executor.release();
        continue;
      }
      if (line.started.load() > 0) {
        group_
            ->Fail(absl::StatusCode::kCancelled, -1,
                   "the group was destroyed while an operation ran")
            .IgnoreError();
      }
    }
    for (OperationLine& line : lines_) line.executor.reset();
  }

  int rank() const override { return group_->rank(); }
  int world_size() const override { return group_->world_size(); }
  uint64_t epoch() const override { return group_->epoch(); }
  const std::string& name() const override { return group_->options().name; }

  absl::Status Run(const Operation& operation) override {
    SHEAF_RETURN_IF_ERROR(Check(operation));
    OperationLine& line = LineOf(lines_, operation);
    if (line.started.load(std::memory_order_acquire) > 0) return Start(operation)->Wait(kForever);
    const MutexLock lock(line.running);
    return RunNow(operation, /*interruptible=*/true);
  }

  std::shared_ptr<Work> Start(const Operation& operation) override {
    if (absl::Status status = Check(operation); !status.ok()) return FinishedWork(status);
    return LineOf(lines_, operation).Start("collective", group_->options().interrupted, [=, this] {
      SHEAF_RETURN_IF_ERROR(Check(operation));
      return RunNow(operation, /*interruptible=*/false);
    });
  }

  void Abort(absl::string_view why) override {
    if (!group_->Forked()) {
      group_->Fail(absl::StatusCode::kCancelled, -1, absl::StrCat("aborted: ", why)).IgnoreError();
    }
  }

  absl::Status Health() const override { return group_->Failure(); }

  absl::StatusOr<std::shared_ptr<std::byte>> Allocate(size_t size_bytes) override {
    SHEAF_ASSIGN_OR_RETURN(const size_t offset, arena_->Take(size_bytes));
    if (absl::Status status = Populate(offset + size_bytes); !status.ok()) {
      arena_->GiveBack(offset);
      return status;
    }
    return std::shared_ptr<std::byte>(group_->arena(rank()) + offset,
                                      [arena = arena_, mapping = group_->own_mapping(),
                                       offset](std::byte*) { arena->GiveBack(offset); });
  }

 private:
  absl::Status Check(const Operation& operation) const {
    SHEAF_RETURN_IF_ERROR(CheckUsable(*this, *group_));
    return CheckOperation(operation, rank(), world_size());
  }

  // First fit: what was ever used of the arena is its begin, and stays.
  absl::Status Populate(size_t end) {
    const MutexLock lock(populate_mutex_);
    end = RoundUpToPage(end);
    if (end <= populated_) return absl::OkStatus();
    const size_t arena = static_cast<size_t>(group_->arena(rank()) - group_->own_mapping()->data());
    SHEAF_RETURN_IF_ERROR(group_->Reserve(arena + populated_, end - populated_));
    populated_ = end;
    return absl::OkStatus();
  }

  absl::Status RunNow(const Operation& operation, bool interruptible) {
    switch (operation.kind) {
      case CollectiveKind::kSend:
        return senders_[operation.peer].Run(operation, interruptible);
      case CollectiveKind::kReceive:
        return receivers_[operation.peer].Run(operation, interruptible);
      default:
        return collectives_.Run(operation, interruptible);
    }
  }

  const std::unique_ptr<ShmGroup> group_;
  const std::shared_ptr<ShmArena> arena_;
  ShmCollectives collectives_;
  std::vector<ShmSender> senders_;
  std::vector<ShmReceiver> receivers_;
  std::vector<OperationLine> lines_;
  Mutex populate_mutex_;
  size_t populated_ ABSL_GUARDED_BY(populate_mutex_) = 0;  // Bytes of it whose pages exist.
};

}  // namespace

absl::StatusOr<std::unique_ptr<Communicator>> FormShmCommunicator(
    const CommunicatorOptions& options, Rendezvous& rendezvous) {
  SHEAF_ASSIGN_OR_RETURN(std::unique_ptr<ShmGroup> group, ShmGroup::Form(options, rendezvous));
  return std::make_unique<ShmCommunicator>(std::move(group));
}

}  // namespace sheaf
